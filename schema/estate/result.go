package estate

import (
	"iter"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// Result is the outcome of reading one snapshot. It must not be changed.
type Result struct {
	// Desired holds the valid documents, except those that need a missing or invalid
	// one. Tenants, projects and the platform with equal documents are the same
	// pointers in every Result.
	Desired *schema.Desired
	// Diagnostics is sorted. An error holds its file; see doc.go for the codes.
	Diagnostics []schema.Diagnostic
	// Needs lists, for each file that is not in Desired because of other files, these
	// files: missing, invalid, or contradicting it. Sorted.
	Needs map[string][]string
	// Unreadable lists the parts that cannot be read, sorted. Their documents are not
	// in Desired and not known.
	Unreadable []string
	// Incomplete has, for each unreadable part with missing objects in the repository,
	// the error, a schema.ErrIncomplete.
	Incomplete map[string]error

	snapshot schema.Snapshot // that was read

	trees []*standing       // by name
	users map[string]string // claims to Unix accounts, if some contradict each other; else nil
	free  bool              // whether all claims are different
}

// of returns the result for another snapshot with the same parts.
func (r *Result) of(snap schema.Snapshot) *Result {
	of := *r
	of.snapshot, of.Diagnostics = snap, slices.Clip(of.Diagnostics)
	return &of
}

// standsOver reports whether the result would be the same over the one in force: no claim
// needs a winner, and no app is gone.
func (r *Result) standsOver(inForce *Result) bool {
	return inForce == nil || r.free && !slices.ContainsFunc(r.trees, func(s *standing) bool { return len(inForce.goneApps(s)) > 0 })
}

// tree returns the tree of that name, or nil.
func (r *Result) tree(name string) *standing {
	if r == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(r.trees, name, func(s *standing, name string) int { return strings.Compare(s.name, name) })
	if !ok {
		return nil
	}
	return r.trees[i]
}

// reason returns the finding for an unreadable part.
func (r *Result) reason(part string) schema.Diagnostic {
	for _, d := range r.Diagnostics {
		if d.File == part && (d.Code == codeUnreadable || d.Code == codeTooLarge) {
			return d
		}
	}
	return schema.Diagnostic{}
}

// Key returns the key of the file at path if a document may be there, otherwise zero.
func (r *Result) Key(path string) schema.Key {
	if s := r.tree(partOf(path).Name); s != nil {
		if doc := s.at(path); doc != nil {
			return doc.Key
		}
	}
	return schema.Key{}
}

// Documents iterates over the files at paths of documents, by part and path.
func (r *Result) Documents() iter.Seq2[string, schema.Key] {
	return func(yield func(string, schema.Key) bool) {
		for _, s := range r.trees {
			for _, doc := range s.docs {
				if !doc.Key.IsZero() && !yield(doc.File.Path, doc.Key) {
					return
				}
			}
		}
	}
}

// Len returns the number of files in Documents.
func (r *Result) Len() (n int) {
	for _, s := range r.trees {
		n += s.documents
	}
	return n
}

// Count returns the number of them in a tenant, or in platform/ for "".
func (r *Result) Count(tenant string) int {
	name := "platform"
	if tenant != "" {
		name = "tenants/" + tenant
	}
	if s := r.tree(name); s != nil {
		return s.documents
	}
	return 0
}

// AllNodes reports whether every declared node is in Desired.
func (r *Result) AllNodes() bool {
	s := r.tree("platform")
	return s == nil || !slices.ContainsFunc(s.docs, func(doc *load.Document) bool { return doc.Key.Kind == schema.KindNode && s.out(doc) })
}

// Waits reports whether other files keep a valid file out of Desired.
func (r *Result) Waits(path string) bool { return hasEntry(r.Needs, path) }

// uses returns the files that a file needs and that another file could replace.
func (r *Result) uses(path string) []string {
	if s := r.tree(partOf(path).Name); s != nil {
		return s.verdict.uses[path]
	}
	return nil
}

// estate is a Result under construction.
type estate struct {
	*Result
	loader *Loader
	held   *Result // result whose claims have priority; may be nil
}

// refuse records a finding about a document that other trees cause.
func (e *estate) refuse(s *standing, f schema.Diagnostic, needs ...string) {
	s.more = append(s.more, f)
	if f.Severity == schema.SeverityError {
		s.without(f.File, needs...)
	}
}

// goneApps lists the apps that r has for the tenant of s, and s has not. Documents that name them
// mean them still: otherwise units would become units of an app of the platform with that slug.
func (r *Result) goneApps(s *standing) (slugs []string) {
	held := r.tree(s.name)
	if held == nil || held.tree == s.tree {
		return nil
	}
	for _, slug := range sortedKeys(held.names.apps) {
		if s.names.apps[slug] == nil {
			slugs = append(slugs, slug)
		}
	}
	return slugs
}
