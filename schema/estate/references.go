package estate

import (
	"fmt"
	"slices"

	"berth/schema"
	"berth/schema/load"
)

// references finds the documents that those of a tree refer to, in the tree and in the platform's catalog,
// and records wrong references in the verdict.
type references struct {
	*verdict
	tree    *tree
	catalog *catalog
}

// ranked returns the documents that can be judged: first those that others need, then by
// path.
func (r *references) ranked(docs []*load.Document) []*load.Document {
	var by [][]*load.Document
	for _, doc := range docs {
		if doc.Valid() && !r.out[doc.File.Path] {
			rank := doc.Key.Kind.Info().Rank
			by = slices.Grow(by, rank+1)[:max(len(by), rank+1)]
			by[rank] = append(by[rank], doc)
		}
	}
	return slices.Concat(by...)
}

// bad reports whether a document of this part is not in Desired, as far as is known.
func (r *references) bad(doc *load.Document) bool { return !doc.Valid() || r.out[doc.File.Path] }

// need returns the document of this tree that a field of doc refers to. If that is
// missing or invalid, it records a finding or a dependency of doc, and returns nil.
func (r *references) need(doc *load.Document, at, code string, key schema.Key, missing string) *load.Document {
	return r.needIn(r.tree.byFile, r.bad, doc, at, code, key, missing)
}

// needOfPlatform is need for a document of the platform.
func (r *references) needOfPlatform(doc *load.Document, at, code string, key schema.Key, missing string) *load.Document {
	return r.needIn(r.catalog.byFile, r.catalog.bad, doc, at, code, key, missing)
}

func (r *references) needIn(
	docs map[string]*load.Document, bad func(*load.Document) bool, doc *load.Document, at, code string, key schema.Key, missing string,
) *load.Document {
	path, _ := key.Path()
	switch to := docs[path]; {
	case to == nil:
		r.refuse(doc, at, code, fmt.Sprintf("%s (%s)%s", missing, path, r.likely(docs, key)), path)
		return nil
	case bad(to):
		r.without(doc, path)
		return nil
	default:
		return to
	}
}

// likely suggests the name of a document beside the one that is missing, for the end of a message.
func (r *references) likely(docs map[string]*load.Document, missing schema.Key) string {
	return Meant(missing.Name, r.beside(docs, missing))
}

// beside lists the names of the documents beside one that is missing.
func (r *references) beside(docs map[string]*load.Document, missing schema.Key) (names []string) {
	if len(r.findings) > load.MaxFindings { // further findings are cut, and the search is expensive
		return nil
	}
	for _, doc := range docs {
		beside := doc.Key
		if beside.Name = missing.Name; beside == missing {
			names = append(names, doc.Key.Name)
		}
	}
	slices.Sort(names)
	return names
}

// warn records a finding that holds no document.
func (r *references) warn(doc *load.Document, at, code, message string) {
	r.findings = append(r.findings, load.Found(doc, at, schema.SeverityWarning, code, message))
}

// end is the field of a document that clashes with one of another.
type end struct {
	doc  *load.Document
	path string
}

func (e end) place() string { return e.doc.Header.At(e.path).Place() }

// clash returns a finding at one of two fields that may not say the same. says is the message at one end about the
// other. A change that brings the other end gets the finding there.
func clash(at, other end, severity schema.Severity, code string, says func(of end) string) schema.Diagnostic {
	f := load.Found(at.doc, at.path, severity, code, says(other))
	f.Other = schema.Place{Position: other.doc.Header.At(other.path), Path: other.path, Says: says(at)}
	return f
}

// clash records a clash that holds its document.
func (r *references) clash(at, other end, code string, says func(of end) string) {
	r.findings = append(r.findings, clash(at, other, schema.SeverityError, code, says))
	r.without(at.doc, other.doc.File.Path)
}

// unknown tells warnUnknown which names of a list are known, and how to report the others.
type unknown struct {
	code  string
	known func(name string) bool
	all   func() []string // names to suggest from
	says  func(name string) string
}

// warnUnknown warns about names of a list that are not known, and suggests others. Further
// findings are cut, and the search for suggestions is expensive, so it stops early.
func (r *references) warnUnknown(doc *load.Document, at func(int) string, list []string, u unknown) {
	told, all := 0, []string(nil)
	for i, name := range list {
		if told > load.MaxFindings {
			return
		}
		if u.known(name) {
			continue
		}
		if told == 0 {
			all = u.all()
		}
		message := u.says(name)
		if told < load.MaxFindings {
			message += Meant(name, all)
		}
		r.warn(doc, at(i), u.code, message)
		told++
	}
}

// stocked warns about a name that no available node has. It is not an error, because the
// node may come later.
func (r *references) stocked(doc *load.Document, at, what, name string) {
	if name != "" {
		r.stockedAll(doc, func(int) string { return at }, what, []string{name})
	}
}

// stockedAll is stocked for the names of a list. Without nodes nothing is known.
func (r *references) stockedAll(doc *load.Document, at func(int) string, what string, names []string) {
	if r.catalog.unsure || !slices.ContainsFunc(r.catalog.available(r.tree.tenant), func(s stock) bool { return len(s[what]) > 0 }) {
		return
	}
	r.warnUnknown(doc, at, names, unknown{
		code:  "ref.no-node",
		known: func(name string) bool { return r.catalog.has(r.tree.tenant, what, name) },
		all:   func() []string { return r.catalog.names(r.tree.tenant, what) },
		says: func(name string) string {
			if r.tree.tenant != "" {
				return fmt.Sprintf("no node that %s may be given has the %s %s", r.tree.tenant, what, name)
			}
			return fmt.Sprintf("no node has the %s %s", what, name)
		},
	})
}

// CodeNoEffect is the code of the warning about a valid part of a document that changes nothing.
const CodeNoEffect = "schema.no-effect"
