package load

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
)

// checker checks one value against a shape. It finds all problems and fills in the
// defaults.
type checker struct {
	root     *shape
	problems []problem
	rules    []problem       // about all items of a list, or the size of a mapping
	meant    map[string]bool // paths that misspelt fields probably mean
}

// check returns value with its defaults, and its problems by path. rules are those
// against @unique, @single and @most, which are of interest if there are no others: CUE
// can express these rules too, but its messages cannot become a finding.
func (s *shape) check(value any) (filled any, problems, rules []problem) {
	c := checker{root: s, meant: map[string]bool{}}
	filled = c.value(s, value, "")
	problems = slices.DeleteFunc(c.problems, func(p problem) bool { return p.code == "schema.missing-field" && c.meant[p.path] })
	slices.SortFunc(problems, func(a, b problem) int { return strings.Compare(a.path, b.path) })
	return filled, problems, c.rules
}

func (c *checker) value(s *shape, value any, path string) any {
	kind := kindOf(value)
	if s.kind&kind == 0 {
		c.problems = append(c.problems, s.mismatch(path, value, nil))
		return nil
	}
	for _, one := range s.either {
		if one.kind&kind != 0 {
			return c.value(one, value, path)
		}
	}
	switch v := value.(type) {
	case map[string]any:
		return c.mapping(s, v, path)
	case []any:
		return c.list(s, v, path)
	}
	if broken, ok := s.permits(value); !ok {
		c.problems = append(c.problems, s.mismatch(path, value, broken))
	}
	return value
}

func (c *checker) mapping(s *shape, m map[string]any, path string) map[string]any {
	filled := make(map[string]any, len(m)+2)
	if fields := s.nameless(m); len(fields) > 1 {
		c.problems = append(c.problems, problem{path: path, code: "schema.unknown-field", atKey: true,
			message: fmt.Sprintf("the line with the name of an entry is missing above its fields %s", strings.Join(fields, ", "))})
		return filled
	}
	for name, v := range m {
		sh := s.element
		f, named := s.fields[name]
		if named {
			sh = f.shape
		}
		switch {
		case sh == nil && s.open:
			filled[name] = v
		case sh == nil, !named && !s.allows(name):
			p, meant := s.unknown(c.root, m, path, name)
			c.problems, c.meant[meant] = append(c.problems, p), true
		default:
			filled[name] = c.value(sh, v, child(path, name))
		}
	}
	for name, f := range s.fields {
		if _, there := m[name]; !there && !f.optional {
			filled[name] = c.absent(f, child(path, name))
		}
	}
	if s.most > 0 && len(m) > s.most {
		c.rules = append(c.rules, problem{path: path, code: "schema.length",
			message: fmt.Sprintf("has %d entries, want at most %d", len(m), s.most)})
	}
	return filled
}

// nameless returns the keys of a mapping by name that are fields of its entries, sorted; none if each has a mapping, as an entry.
func (s *shape) nameless(m map[string]any) (fields []string) {
	if s.element == nil || len(s.fields) > 0 {
		return nil
	}
	isEntry := true
	for _, name := range sortedNames(m) {
		if hasKey(s.element.fields, name) {
			fields = append(fields, name)
			isEntry = isEntry && kindOf(m[name]) == cue.StructKind
		}
	}
	if isEntry {
		return nil
	}
	return fields
}

// absent returns the value of an absent field.
func (c *checker) absent(f *field, path string) any {
	s := f.shape
	text := s.fallback
	if text == "" && len(s.enum) == 1 {
		text = s.enum[0]
	}
	switch {
	case f.required:
	case text != "":
		return json.RawMessage(text)
	case s.kind == cue.StructKind:
		return c.mapping(s, nil, path)
	case s.kind == cue.ListKind && !s.nonEmpty:
		return []any{}
	}
	c.problems = append(c.problems, problem{path: path, code: "schema.missing-field", message: "is missing, want " + s.wants()})
	return nil
}

func (c *checker) list(s *shape, list []any, path string) []any {
	if s.nonEmpty && len(list) == 0 {
		c.problems = append(c.problems, s.mismatch(path, list, nil))
	}
	if s.unique != "" {
		c.unique(s.unique, list, path)
	}
	if s.single != "" {
		c.single(s.single, list, path)
	}
	if s.element == nil {
		return list
	}
	filled := make([]any, len(list))
	for i, v := range list {
		filled[i] = c.value(s.element, v, Item(path, i))
	}
	return filled
}

// unique checks that a field differs between the items of a list.
func (c *checker) unique(field string, list []any, path string) {
	first := map[string]int{}
	for i, item := range list {
		m, _ := item.(map[string]any)
		id, ok := m[field].(string)
		if !ok {
			continue
		}
		if k, taken := first[id]; taken {
			c.rules = append(c.rules, brokenRule(child(Item(path, i), field), "%s is what %s has already", describe(id), Item(path, k)))
			continue
		}
		first[id] = i
	}
}

// single checks that a field is true for at most one item of a list.
func (c *checker) single(field string, list []any, path string) {
	first := -1
	for i, item := range list {
		if m, _ := item.(map[string]any); m[field] != true {
			continue
		}
		if first >= 0 {
			c.rules = append(c.rules, brokenRule(child(Item(path, i), field), "only one can be, and %s is", Item(path, first)))
			continue
		}
		first = i
	}
}

// permits reports whether s permits a scalar of its kind, and the rule that it breaks, if
// one does. CUE decides about the rules of a shape that is loose.
func (s *shape) permits(value any) (broken *rule, ok bool) {
	if len(s.enum) > 0 {
		text, err := json.Marshal(value)
		return nil, err == nil && slices.Contains(s.enum, string(text))
	}
	if s.loose {
		return nil, true
	}
	return brokenBy(s.rules, value)
}

// allows reports whether a free key may have that name.
func (s *shape) allows(name string) bool {
	_, ok := brokenBy(s.keys, name)
	return ok
}

func brokenBy(rules []rule, value any) (broken *rule, ok bool) {
	for i := range rules {
		if r := &rules[i]; !r.permits(value) {
			return r, false
		}
	}
	return nil, true
}

// permits reports whether a value of the rule's type satisfies it.
func (r *rule) permits(value any) bool {
	var n float64
	switch v := value.(type) {
	case string:
		return r.form == nil || r.form.MatchString(v) == (r.op == cue.RegexMatchOp)
	case int64:
		n = float64(v)
	case float64:
		n = v
	}
	switch r.op {
	case cue.GreaterThanEqualOp:
		return n >= r.num
	case cue.GreaterThanOp:
		return n > r.num
	case cue.LessThanEqualOp:
		return n <= r.num
	case cue.LessThanOp:
		return n < r.num
	case cue.NotEqualOp:
		return n != r.num
	}
	return true
}

func kindOf(v any) cue.Kind {
	switch v.(type) {
	case string:
		return cue.StringKind
	case bool:
		return cue.BoolKind
	case int64:
		return cue.IntKind
	case float64:
		return cue.FloatKind
	case []any:
		return cue.ListKind
	}
	return cue.StructKind
}
