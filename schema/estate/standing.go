package estate

import (
	"berth/schema"
	"berth/schema/load"
)

// standing is a tree judged together with the others. It does not change once it is in a
// Result.
type standing struct {
	*tree
	verdict *verdict
	owners  map[identity]string // path, for identities of several documents
	more    []schema.Diagnostic // findings that other trees cause
	lost    map[string][]string // files that are not in Desired because of other trees, and the files that cause it
}

// out reports whether a document is not in Desired.
func (s *standing) out(doc *load.Document) bool {
	_, lost := s.lost[doc.File.Path]
	return lost || !doc.Valid() || s.verdict.out[doc.File.Path]
}

// raw lists the findings in a tree before they are cut.
func (s *standing) raw() (ds []schema.Diagnostic) {
	for _, doc := range s.docs {
		ds = append(ds, doc.Findings...)
	}
	return append(ds, s.verdict.findings...)
}

// without records that a document waits for documents of other trees.
func (s *standing) without(file string, needs ...string) {
	if s.lost == nil {
		s.lost = map[string][]string{}
	}
	s.lost[file] = append(s.lost[file], needs...)
}
