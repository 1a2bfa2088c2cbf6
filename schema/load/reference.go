package load

import (
	"bytes"
	"fmt"
	"strings"

	"cuelang.org/go/cue"

	"berth/schema"
)

// Reference returns the reference of kinds and fields as Markdown, made from the
// table of kinds and the comments of the CUE definitions.
func Reference() ([]byte, error) {
	j, err := newJudge(nil)
	if err != nil {
		return nil, err
	}
	common := j.defs[string(schema.KindTenant)].shape
	r := reference{name: common.fields["metadata"].shape.fields["name"].shape.wants()}
	r.line("# Kinds and fields")
	r.line("Every document of an estate has one of these kinds. This page is generated: `berth schema docs` prints it.")
	r.line("An invalid document is held alone, together with the documents that need it. `berth validate` checks a whole estate.")
	r.line("## All kinds")
	r.table(func() {
		for _, name := range []string{"apiVersion", "metadata", "suspend"} {
			r.field(name, common.fields[name])
		}
		r.row("kind", "one of the kinds below", common.fields["kind"])
	})
	r.line("Type *name* is " + r.name + ".")
	for _, kind := range schema.Kinds() {
		r.kind(kind, j.defs[string(kind)].shape)
	}
	return r.Bytes(), nil
}

// Reference returns a page about the fields of a settings file as Markdown, with a
// section for each mapping at the top. intro comes below the title.
func (s *Settings) Reference(title, intro string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	top := s.judge.defs[s.name].shape
	var r reference
	r.line("# " + title)
	r.line(intro)
	var sections []string
	r.table(func() {
		for name, f := range schema.Sorted(top.fields) {
			r.row(name, r.typeOf(f.shape), f)
			if f.shape.kind == cue.StructKind {
				sections = append(sections, name)
			}
		}
	})
	for _, name := range sections {
		r.line("## " + name)
		r.table(func() { r.fields(name, top.fields[name].shape) })
	}
	return r.Bytes()
}

type reference struct {
	bytes.Buffer
	name string // rule for a name
}

// line writes one paragraph.
func (r *reference) line(text string) { fmt.Fprintf(r, "%s\n\n", text) }

// table writes the header of a table of fields and its rows.
func (r *reference) table(rows func()) {
	r.WriteString("| Field | Type | Description |\n|---|---|---|\n")
	rows()
	r.WriteString("\n")
}

func (r *reference) kind(kind schema.Kind, s *shape) {
	info := kind.Info()
	r.line("## " + string(kind))
	r.line(s.doc)
	for _, n := range info.NoEffect {
		r.line("**No effect yet:** Berth checks `" + n.Field + "`; so far " + n.SoFar + ".")
	}
	var facts []string
	fact := func(name string, values []schema.PathPattern) {
		var quoted []string
		for _, v := range values {
			quoted = append(quoted, "`"+v.String()+"`")
		}
		if len(quoted) > 0 {
			facts = append(facts, "- "+name+": "+strings.Join(quoted, ", "))
		}
	}
	fact("Path", info.Places)
	fact("Status on `berth/status`", info.Status)
	if info.Permission != "" {
		facts = append(facts, "- Permission for every change: `"+info.Permission+"`")
	}
	switch info.Removal {
	case schema.RemovalEnds:
		facts = append(facts, "- Deleting a document ends what it declares; the deletion rule applies.")
	case schema.RemovalDrops:
		facts = append(facts, "- Deleting a document removes capacity or content; the deletion rule applies.")
	case schema.RemovalWidens:
		facts = append(facts, "- Deleting a document lifts its limits; the deletion rule applies.")
	}
	if info.InsteadOfSuspend != "" {
		facts = append(facts, "- `suspend: true` is refused: "+info.InsteadOfSuspend+".")
	}
	r.line(strings.Join(facts, "\n"))
	r.table(func() { r.fields("spec", s.fields["spec"].shape) })
}

// fields writes a row for each field of a mapping, and below it those of its value.
func (r *reference) fields(path string, s *shape) {
	for _, name := range sortedNames(s.fields) {
		r.field(child(path, name), s.fields[name])
	}
	if s.kind == cue.StructKind && s.element != nil {
		r.fields(path+".<name>", s.element)
	}
	if s.kind == cue.ListKind && s.element != nil {
		r.fields(path+"[]", s.element)
	}
}

func (r *reference) field(path string, f *field) {
	r.row(path, r.typeOf(f.shape), f)
	r.fields(path, f.shape)
}

func (r *reference) row(path, typ string, f *field) { r.rowOf("`"+path+"`", typ, f) }

// rowOf is row with the first cell in Markdown.
func (r *reference) rowOf(first, typ string, f *field) {
	text := f.shape.doc
	switch {
	case f.required:
		text += " **(required)**"
	case f.shape.fallback != "":
		text += " (default `" + f.shape.fallback + "`)"
	}
	fmt.Fprintf(r, "| %s | %s | %s |\n", first, cell(typ), cell(text))
}

// typeOf describes the valid values.
func (r *reference) typeOf(s *shape) string {
	wants := s.wants()
	switch {
	case wants == r.name:
		return "name"
	case s.kind == cue.ListKind && s.element != nil:
		return strings.TrimPrefix(wants, "a ") + ", each: " + r.typeOf(s.element)
	case s.kind == cue.StructKind && s.element != nil:
		return "mapping by name"
	case s.kind == cue.StructKind: // its fields have rows of their own
		return "mapping"
	}
	return strings.TrimPrefix(strings.TrimPrefix(wants, "a "), "text: ")
}

// cell escapes text for a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*.", `\*.`, "\n", " ").Replace(strings.TrimSpace(text))
}
