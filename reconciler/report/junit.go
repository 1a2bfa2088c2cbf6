package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// The parts of JUnit XML that CI systems read. GitLab identifies a case by class and
// name, and shows the text of a failure, not its message. Jenkins shows both.
type (
	junitReport struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		File    string        `xml:"file,attr,omitempty"`
		Line    int           `xml:"line,attr,omitempty"`
		Failure *junitFailure `xml:"failure"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitFailure struct {
		Type    string `xml:"type,attr"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit encodes the findings of `berth validate` as JUnit XML. Each finding is a case;
// an error is a failed case. Without findings there is one case, which passes.
func JUnit(found []schema.Diagnostic, documents int) ([]byte, error) {
	s := junitSuite{Name: plan.CheckValidate}
	s.findings(found)
	if len(s.Cases) == 0 {
		s.add(junitCase{Name: count(documents, "document")})
	}
	return junit(s)
}

// JUnitPlan encodes p as JUnit XML: the two checks, with a case for each finding,
// unit and held document. An error, a blocked unit and a held document fail.
func JUnitPlan(p plan.Proposal) ([]byte, error) {
	written, allowed := sides(p.Diagnostics)
	v := junitSuite{Name: plan.CheckValidate}
	for _, f := range mergeConflicts(&p) {
		v.add(junitCase{Name: "conflict in " + clean(f), File: clean(f),
			Failure: failure("conflict", clean(f)+": changed in the branch and in the base")})
	}
	v.findings(written)
	if len(v.Cases) == 0 {
		v.add(junitCase{Name: count(len(p.Documents), "document")})
	}
	u := junitSuite{Name: plan.CheckPlan}
	u.findings(allowed)
	for _, x := range inOrder(&p) {
		c := junitCase{Name: changeOf(&p, x).verbOf(x) + " " + unitName(x.Key)}
		var b strings.Builder
		unitText(&b, &p, x)
		if k := blockOf(x); k != nil && !p.Comes(x.Key) {
			c.Failure = failure(string(k.Code), unitName(x.Key)+": "+k.Message)
		}
		c.Out = b.String()
		u.add(c)
	}
	for _, h := range unexplained(&p) {
		u.add(junitCase{Name: "held " + clean(h.File), File: clean(h.File),
			Failure: failure(string(h.Reason), clean(h.File)+": "+h.Message)})
	}
	if len(u.Cases) == 0 {
		u.add(junitCase{Name: clean(planTitle(&p, &plan.PullContext{}))})
	}
	if p.Note != "" {
		u.add(junitCase{Name: "why the plan of Berth may differ", Out: clean(p.Note)})
	}
	return junit(v, u)
}

// findings adds a case for each finding.
func (s *junitSuite) findings(ds []schema.Diagnostic) {
	seen := map[string]int{}
	for _, f := range ds {
		name := clean(place(f.File, f.Line, f.Column) + " " + f.Code)
		if seen[name]++; seen[name] > 1 {
			name += fmt.Sprintf(" (%d)", seen[name])
		}
		c := junitCase{Name: name, File: clean(f.File), Line: f.Line}
		if f.Severity == schema.SeverityError {
			c.Failure = failure(f.Code, f.Message)
			c.Failure.Text = clean(f.String())
		} else {
			c.Out = clean(f.String())
		}
		s.add(c)
	}
}

func failure(code, message string) *junitFailure {
	return &junitFailure{Type: clean(code), Message: clean(message), Text: clean(message)}
}

func (s *junitSuite) add(c junitCase) {
	c.Class = s.Name
	s.Cases = append(s.Cases, c)
	s.Tests++
	if c.Failure != nil {
		s.Failures++
	}
}

func junit(suites ...junitSuite) ([]byte, error) {
	r := junitReport{Suites: suites}
	for _, s := range suites {
		r.Tests += s.Tests
		r.Failures += s.Failures
	}
	var b bytes.Buffer
	b.WriteString(xml.Header)
	enc := xml.NewEncoder(&b)
	enc.Indent("", "  ")
	if err := enc.Encode(r); err != nil {
		return nil, fmt.Errorf("encode JUnit XML: %w", err)
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}
