package schema

import "slices"

// Lines are the lines of files that a diff shows: those it adds and those it
// leaves around them, by the file's path after the change. Only beside such a
// line can a forge show a finding within the change itself.
type Lines map[string][]LineRange

// LineRange is a run of lines, both ends included. Lines count from 1.
type LineRange struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// Has says whether the diff shows a line of a file.
func (l Lines) Has(file string, line int) bool {
	return slices.ContainsFunc(l[file], func(r LineRange) bool { return r.First <= line && line <= r.Last })
}
