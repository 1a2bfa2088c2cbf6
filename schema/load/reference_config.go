package load

import (
	"berth/schema"
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/cue"
)

// ConfigReference returns a page about the fields that a backend defines for the config of an
// instance and for a version's manifest.parameters, as Markdown, with a section for each field at
// the top. intro comes below the title. example is a YAML file of the parameters; each section
// shows its part. It is an error if the example is invalid, or if a field has no comment or no
// place in the example.
func ConfigReference(backends map[string]string, name, intro string, example []byte) ([]byte, error) {
	j, err := newJudge(backends)
	if err != nil {
		return nil, err
	}
	config, parameters := j.defs[configDef(name)].shape, j.defs[parametersDef(name)].shape
	if config == nil || parameters == nil {
		return nil, fmt.Errorf("no backend %s; the backends are %s", name, strings.Join(slices.Sorted(maps.Keys(backends)), ", "))
	}
	t, findings := readTree("example", example, false)
	if len(findings) > 0 {
		return nil, fmt.Errorf("example of backend %s: %s", name, findings[0].Message)
	}
	if _, problems := j.judge(parametersDef(name), t.value); len(problems) > 0 {
		return nil, fmt.Errorf("example of backend %s: %s: %s", name, problems[0].path, problems[0].message)
	}
	markParametersOnly(parameters, config)
	if err := checkDescribed("", parameters, []any{t.value}); err != nil {
		return nil, fmt.Errorf("backend %s: %w", name, err)
	}

	var r reference
	r.line("# Fields of config and manifest.parameters: " + name)
	r.line(intro)
	r.table(func() {
		for field, f := range schema.Sorted(parameters.fields) {
			r.rowOf("["+"`"+field+"`](#"+field+")", r.typeOf(f.shape), f)
		}
	})
	parts := topLevelParts(example)
	for _, field := range sortedNames(parameters.fields) {
		r.line("## " + field)
		r.line("```yaml\n" + parts[field] + "```")
		if below := parameters.fields[field].shape; len(below.fields) > 0 || below.kind == cue.ListKind && len(below.element.fields) > 0 {
			r.table(func() { r.fields(field, below) })
		}
	}
	return append(bytes.TrimRight(r.Bytes(), "\n"), '\n'), nil
}

// markParametersOnly adds to the description of each field of parameters that config lacks that
// only a version may set it. Both have the same fields otherwise.
func markParametersOnly(parameters, config *shape) {
	for name, f := range parameters.fields {
		switch in := config.fields[name]; {
		case in == nil:
			f.shape.doc += " **(only in `manifest.parameters`)**"
		case len(in.shape.fields) > 0:
			markParametersOnly(f.shape, in.shape)
		}
	}
}

// checkDescribed returns an error if a field below path has no comment, or none of the values has
// it.
func checkDescribed(path string, s *shape, values []any) error {
	for _, name := range sortedNames(s.fields) {
		at, below, f := child(path, name), valuesOf(values, name), s.fields[name].shape
		if len(f.doc) < 4 {
			return fmt.Errorf("field %s has no comment in its definition", at)
		}
		if len(below) == 0 {
			return fmt.Errorf("field %s is not in the example", at)
		}
		if err := checkDescribed(at, f, below); err != nil {
			return err
		}
	}
	if s.kind != cue.ListKind || s.element == nil {
		return nil
	}
	var items []any
	for _, v := range values {
		list, _ := v.([]any)
		items = append(items, list...)
	}
	return checkDescribed(path+"[]", s.element, items)
}

// valuesOf returns the values of a field in those mappings that have it.
func valuesOf(mappings []any, field string) (values []any) {
	for _, v := range mappings {
		m, _ := v.(map[string]any)
		if value, ok := m[field]; ok {
			values = append(values, value)
		}
	}
	return values
}

// topLevelParts returns the text of each field at the top of a YAML mapping in block style, with
// the comments in front of it.
func topLevelParts(text []byte) map[string]string {
	key := regexp.MustCompile(`^([a-z_]+):`)
	parts := map[string]string{}
	name, comments := "", ""
	for line := range strings.Lines(string(text)) {
		switch m := key.FindStringSubmatch(line); {
		case m != nil:
			name = m[1]
			parts[name], comments = comments+line, ""
		case strings.HasPrefix(line, "#"):
			comments += line
		case strings.TrimSpace(line) != "":
			parts[name] += line
		}
	}
	return parts
}
