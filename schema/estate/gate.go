package estate

import (
	"berth/schema"
)

// Failing lists the files of a part that are invalid by themselves or in the wrong
// place, sorted by path. Other documents do not matter. It returns false if the part is
// missing or unreadable.
func (r *Result) Failing(part string) (files []string, readable bool) {
	s := r.tree(part)
	if s == nil {
		return nil, false
	}
	for _, doc := range s.docs {
		if !doc.Valid() {
			files = append(files, doc.File.Path)
		}
	}
	return files, true
}

// HeaderAt returns the header of the document at path, also of one that waits for
// another document; nil if the document is not valid by itself.
func (r *Result) HeaderAt(path string) *schema.Header {
	if s := r.tree(partOf(path).Name); s != nil {
		if doc := s.at(path); doc != nil && doc.Valid() {
			return doc.Header
		}
	}
	return nil
}
