package load

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"

	"berth/schema"
)

// Document is the result of reading one file. It is immutable and shared between loads.
// It depends only on path, blob and mode.
type Document struct {
	File     schema.File
	Key      schema.Key
	Decl     schema.Document // *schema.Instance and so on; nil if the document is invalid
	Header   *schema.Header
	Findings []schema.Diagnostic
	Size     int       // bytes read
	tree     *tree     // kept if another document decides how to read a part of this one
	Draft    *Document // readable part of an invalid document; may be nil

	configs sync.Map // Config by its version
}

// Has reports whether the document has a field at path.
func (d *Document) Has(path string) bool {
	_, ok := d.tree.at[path]
	return ok
}

// Valid reports whether the document is valid by itself, whatever other documents say.
func (d *Document) Valid() bool { return d.Decl != nil }

// paths interns field paths: ten thousand documents have the same few hundred.
type paths struct {
	mu  sync.Mutex
	all map[string]string
}

func (p *paths) intern(s string) string {
	const most = 50_000 // arbitrary keys could fill it without end
	p.mu.Lock()
	defer p.mu.Unlock()
	if t, ok := p.all[s]; ok {
		return t
	}
	if len(p.all) < most {
		p.all[s] = s
	}
	return s
}

// documentParser makes documents from files.
type documentParser struct {
	judge    *judge
	paths    *paths
	releases map[string]schema.Releases    // by runtime_backend
	checks   map[string]schema.ConfigCheck // by runtime_backend
}

// refused returns a document with one finding, at the file's first line.
func refused(f schema.File, key schema.Key, code, format string, args ...any) *Document {
	return &Document{File: f, Key: key, Findings: []schema.Diagnostic{*fault(f.Path, pos{1, 1}, code, format, args...)}}
}

// admit checks f by its path and mode alone. It returns the key of the document at that
// path, or a refused document; ignore: the file is not part of the estate.
func admit(f schema.File) (key schema.Key, doc *Document, ignore bool) {
	key, finding, ignore := Locate(f.Path)
	if ignore {
		return key, nil, true
	}
	switch f.Mode {
	case schema.ModePlain:
	case schema.ModeSymlink:
		return key, refused(f, key, "path.symlink", "is a symbolic link: an estate holds plain files only"), false
	case schema.ModeExecutable:
		return key, refused(f, key, "path.executable", "is executable: remove the bit (git update-index --chmod=-x)"), false
	case schema.ModeSubmodule:
		return key, refused(f, key, "path.submodule", "is a submodule: an estate holds plain files only"), false
	default:
		return key, refused(f, key, "path.mode", "has the mode %06o: an estate holds plain files only", f.Mode), false
	}
	if finding != nil {
		return key, &Document{File: f, Findings: []schema.Diagnostic{*finding}}, false
	}
	return key, nil, false
}

// read reads a file admitted by admit.
func (r *documentParser) read(f schema.File, key schema.Key, data []byte, more bool) *Document {
	doc := &Document{File: f, Key: key}
	t, findings := readTree(f.Path, data, more)
	if t == nil {
		doc.Findings = findings
		return doc
	}
	if p := envelope(t, key); p != nil {
		doc.Findings = []schema.Diagnostic{diagnose(t, f.Path, *p)}
		return doc
	}
	spec, problems := r.parse(t, f, key)
	problems = append(problems, misnamed(t, key)...)
	if len(problems) == 0 {
		doc.Decl, doc.Header = spec, spec.Head()
		if doc.tree = t; !doc.Has("spec.config") {
			doc.tree = nil
		}
		return doc
	}
	if doc.Draft = r.draft(doc, t, problems); doc.Draft != nil && spec == nil {
		problems = append(problems, r.draftParameters(doc.Draft)...)
	}
	for _, p := range problems {
		doc.Findings = append(doc.Findings, diagnose(t, f.Path, p))
	}
	doc.Findings = Bounded(doc.Findings)
	return doc
}

// parse returns the document of a tree, or its problems. The document is nil if it does
// not match its definition.
func (r *documentParser) parse(t *tree, f schema.File, key schema.Key) (schema.Document, []problem) {
	out, problems := r.judge.judge(string(key.Kind), t.value)
	if len(problems) > 0 {
		return nil, problems
	}
	spec, err := decode(key.Kind, out, &schema.Header{Key: key, File: f.Path, Blob: f.Blob, Fields: r.fields(t)})
	if err != nil {
		return nil, []problem{{code: "schema.value", message: err.Error()}}
	}
	return spec, r.semantics(spec, t)
}

// misnamed returns the problem of a document whose name differs from its path.
func misnamed(t *tree, key schema.Key) []problem {
	metadata, _ := t.value["metadata"].(map[string]any)
	name, ok := metadata["name"].(string)
	own := key
	own.Name = name
	path, _ := own.Path()
	if _, valid := schema.KeyAt(path); !ok || name == key.Name || !valid {
		return nil // the finding about its form is clearer
	}
	return []problem{{path: "metadata.name", code: "path.name-mismatch",
		message: fmt.Sprintf("is %q, but the file's place says %q: make them equal", name, key.Name)}}
}

// misplaced adds the correct place for its kind to the finding about a misplaced
// document. It adds nothing if the reader panics on the content.
func misplaced(doc *Document, data []byte, more bool) (out *Document) {
	out = doc
	defer func() { _ = recover() }()
	t, _ := readTree(doc.File.Path, data, more)
	if t == nil || doc.Findings[0].Code != "path.misplaced" {
		return doc
	}
	kind, _ := t.value["kind"].(string)
	if ps := kindPlaces(schema.Kind(kind)); len(ps) > 0 {
		doc.Findings[0].Message = fmt.Sprintf("no kind of document belongs here; a document of kind %s belongs at %s", kind,
			strings.Join(ps, " or "))
	} else if kind != "" {
		doc.Findings[0].Message = fmt.Sprintf("no kind of document belongs here, and Berth has no kind %s: move the file out of "+
			"platform/ and tenants/", short(kind))
	}
	return doc
}

// envelope checks apiVersion and kind, which decide how the rest is read.
func envelope(t *tree, key schema.Key) *problem {
	version, ok := t.value["apiVersion"]
	switch {
	case !ok:
		if !hasKey(t.value, "kind") || !hasKey(t.value, "spec") {
			break // the finding about kind is clearer
		}
		return nil // the definition reports it with everything else
	case version != schema.APIVersion:
		message := fmt.Sprintf("got %s, want %q", describe(version), schema.APIVersion)
		if name, _ := version.(string); name != "" && !strings.HasPrefix(name, "berth") {
			message += ": a document of another program belongs outside platform/ and tenants/"
		}
		return &problem{path: "apiVersion", code: "schema.api-version", message: message}
	}
	kind, ok := t.value["kind"]
	switch {
	case !ok:
		if guess := Nearest("kind", sortedNames(t.value)); guess != "" {
			return &problem{path: guess, code: "schema.unknown-field", message: `no such field: did you mean "kind"?`, atKey: true}
		}
		return &problem{path: "kind", code: "schema.missing-field", message: fmt.Sprintf("is missing, want %q", key.Kind)}
	case kind == string(key.Kind):
		return nil
	}
	text, _ := kind.(string)
	if ps := kindPlaces(schema.Kind(text)); len(ps) > 0 {
		return &problem{path: "kind", code: "path.kind",
			message: fmt.Sprintf("a document of kind %s belongs here, not %s, which belongs at %s", key.Kind, text,
				strings.Join(ps, " or "))}
	}
	return &problem{path: "kind", code: "schema.kind", message: fmt.Sprintf("got %s, want %q", describe(kind), key.Kind)}
}

// diagnose gives a problem the position of its field; a missing field has the position
// of its parent.
func diagnose(t *tree, file string, p problem) schema.Diagnostic {
	at := t.of(p.path)
	if p.atKey {
		at = t.keyOf(p.path)
	}
	d := fault(file, at, p.code, "%s%s", subject(p.path), p.message)
	d.Path = p.path
	return *d
}

func (r *documentParser) fields(t *tree) []schema.FieldPos {
	fs := make([]schema.FieldPos, 0, len(t.at))
	for path := range t.at {
		if path == "" {
			continue
		}
		at := t.of(path)
		fs = append(fs, schema.FieldPos{
			Path: r.paths.intern(path), Line: uint16(min(at.line, math.MaxUint16)), Column: uint16(min(at.column, math.MaxUint16)),
		})
	}
	slices.SortFunc(fs, func(a, b schema.FieldPos) int { return strings.Compare(a.Path, b.Path) })
	return fs
}

// decode makes the Go value of a document from its JSON, with defaults. The JSON header
// overrides header.
func decode(kind schema.Kind, data []byte, header *schema.Header) (schema.Document, error) {
	doc := kind.New()
	if doc == nil {
		return nil, fmt.Errorf("kind %s is not read", kind)
	}
	var head struct {
		Metadata struct {
			UID    string            `json:"uid"`
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Suspend bool `json:"suspend"`
		Spec    any  `json:"spec"`
	}
	head.Spec = reflect.ValueOf(doc).Elem().FieldByName("Spec").Addr().Interface() // every document has it
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	to := doc.Head()
	*to = *header
	to.UID, to.Labels, to.Suspend = head.Metadata.UID, head.Metadata.Labels, head.Suspend
	return doc, nil
}

// Found returns a finding in a valid document.
func Found(doc *Document, path string, severity schema.Severity, code, message string) schema.Diagnostic {
	at := doc.Header.At(path)
	return schema.Diagnostic{
		Severity: severity, Code: code, Message: subject(path) + message,
		File: at.File, Line: at.Line, Column: at.Column, Path: path,
	}
}
