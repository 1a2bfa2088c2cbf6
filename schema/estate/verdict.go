package estate

import (
	"berth/schema"
	"berth/schema/load"
)

// verdict is the result of judging the documents of a tree against a catalog.
type verdict struct {
	findings []schema.Diagnostic
	out      map[string]bool     // files that are not in Desired
	needs    map[string][]string // the files that cause it
	uses     map[string][]string // files that a file needs and that others could replace
	nodes    []string            // names by which configs select nodes
	catalog  *catalog            // only in the platform's verdict

	all      []schema.Diagnostic // every finding in the tree
	outPrint string              // fingerprint of the files that are not in Desired, including invalid ones
	claims   *claimed
}

func newVerdict() *verdict {
	return &verdict{out: map[string]bool{}, needs: map[string][]string{}, uses: map[string][]string{}}
}

// refuse records a finding that holds its document.
func (v *verdict) refuse(doc *load.Document, path, code, message string, needs ...string) {
	v.findings = append(v.findings, load.Found(doc, path, schema.SeverityError, code, message))
	v.without(doc, needs...)
}

// without records that a document is not in Desired because of a document that it needs.
// The finding is at the needed document.
func (v *verdict) without(doc *load.Document, needs ...string) {
	v.out[doc.File.Path] = true
	v.needs[doc.File.Path] = append(v.needs[doc.File.Path], needs...)
}
