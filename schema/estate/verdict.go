package estate

import (
	"crypto/sha256"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// verdict is the result of judging the documents of a tree against a catalog.
type verdict struct {
	findings []schema.Diagnostic
	out      map[string]bool     // files that are not in Desired
	needs    map[string][]string // the files that cause it
	uses     map[string][]string // files that a file needs of which others would serve as well
	catalog  *catalog            // of the platform's verdict

	all      []schema.Diagnostic // every finding in the tree
	outPrint string              // fingerprint of the files that are not in Desired, invalid ones too
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

// without records that a document cannot stand, as something it needs cannot;
// the finding about that stands elsewhere.
func (v *verdict) without(doc *load.Document, needs ...string) {
	v.out[doc.File.Path] = true
	v.needs[doc.File.Path] = append(v.needs[doc.File.Path], needs...)
}

// seal sums up the verdict on a tree.
func (v *verdict) seal(t *tree) {
	v.findings = load.Bounded(v.findings)
	if !t.valid || len(v.out)+len(v.findings) > 0 {
		var out strings.Builder
		for _, doc := range t.docs {
			v.all = append(v.all, doc.Findings...)
			if !doc.Valid() || v.out[doc.File.Path] {
				out.WriteString(doc.File.Path)
				out.WriteByte(0)
			}
		}
		v.all, v.outPrint = load.Bounded(append(v.all, v.findings...)), out.String()
	}
	v.claims = claimedBy(t, v)
}

// mostVerdicts is how many catalogs are in use at one time: main's, the one in
// force, and those of a pull request or two.
const mostVerdicts = 4

// judged is the verdict against what has this fingerprint, computed once.
func (t *tree) judged(fingerprint [sha256.Size]byte, compute func() (*verdict, error)) (*verdict, error) {
	t.mu.Lock()
	v := t.verdicts[fingerprint]
	t.mu.Unlock()
	if v != nil {
		return v, nil
	}
	v, err := compute()
	if err != nil {
		return nil, err
	}
	v.seal(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.verdicts) >= mostVerdicts {
		clear(t.verdicts)
	}
	t.verdicts[fingerprint] = v
	return v, nil
}
