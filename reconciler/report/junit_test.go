package report_test

import (
	"encoding/xml"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/reconciler/report"
	"berth/schema"
)

// junitShape has the allowed attributes and children of each element, according to
// Jenkins' schema, for the part that GitLab reads too.
var junitShape = map[string]struct{ attributes, children []string }{
	"testsuites": {[]string{"tests", "failures"}, []string{"testsuite"}},
	"testsuite":  {[]string{"name", "tests", "failures", "errors"}, []string{"testcase"}},
	"testcase":   {[]string{"classname", "name", "file", "line"}, []string{"failure", "system-out"}},
	"failure":    {[]string{"type", "message"}, nil},
	"system-out": {nil, nil},
}

// checkJUnit checks all XML for CI systems: its shape, correct counts, unique case
// names, and failures whose text is complete without the message. It returns the number
// of failed cases.
func checkJUnit(t *testing.T, raw []byte) (failed int) {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(string(raw)))
	var path []string
	names := map[string]bool{}
	cases, claimed, text := 0, map[string]int{}, ""
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		switch tok := tok.(type) {
		case xml.StartElement:
			name := tok.Name.Local
			shape, ok := junitShape[name]
			require.True(t, ok, "no element %s", name)
			if len(path) == 0 {
				require.Equal(t, "testsuites", name)
			} else {
				require.Contains(t, junitShape[path[len(path)-1]].children, name)
			}
			attr := map[string]string{}
			for _, a := range tok.Attr {
				require.Contains(t, shape.attributes, a.Name.Local)
				attr[a.Name.Local] = a.Value
			}
			switch name {
			case "testsuites":
				for _, k := range shape.attributes {
					n, err := strconv.Atoi(attr[k])
					require.NoError(t, err)
					claimed[k] = n
				}
			case "testcase":
				cases++
				id := attr["classname"] + "\x00" + attr["name"]
				require.NotEmpty(t, attr["name"])
				require.False(t, names[id], "two cases are %q", id)
				names[id] = true
				if attr["line"] != "" {
					require.NotEmpty(t, attr["file"])
				}
			case "failure":
				failed++
				require.NotEmpty(t, attr["message"])
			}
			path, text = append(path, name), ""
		case xml.CharData:
			text += string(tok)
		case xml.EndElement:
			if tok.Name.Local == "failure" {
				require.NotEmpty(t, strings.TrimSpace(text))
			}
			path, text = path[:len(path)-1], ""
		}
	}
	require.Equal(t, claimed["tests"], cases)
	require.Equal(t, claimed["failures"], failed)
	require.NotZero(t, cases, "CI systems read an empty report as a job that did not run")
	return failed
}

func TestJUnitOfFindings(t *testing.T) {
	raw, err := report.JUnit(nil, 12)
	require.NoError(t, err)
	require.Zero(t, checkJUnit(t, raw))
	require.Contains(t, string(raw), `name="12 documents"`)

	at := schema.Diagnostic{Severity: schema.SeverityError, Code: "schema.enum", Message: "a < b & \"c\" \x1b[2J ]]>",
		File: "tenants/a/tenant.yaml", Line: 3, Column: 5}
	mild := at
	mild.Severity = schema.SeverityWarning
	raw, err = report.JUnit([]schema.Diagnostic{at, at, mild}, 12)
	require.NoError(t, err)
	require.Equal(t, 2, checkJUnit(t, raw))
	require.Contains(t, string(raw), `file="tenants/a/tenant.yaml" line="3"`)
	require.Contains(t, string(raw), "tenants/a/tenant.yaml:3:5: error:")
}

// junitOf checks the XML of a proposal: it fails if the check of the proposal fails.
func junitOf(t *testing.T, p plan.Proposal) {
	t.Helper()
	raw, err := report.JUnitPlan(p)
	require.NoError(t, err)
	require.Equal(t, p.Blocked(), checkJUnit(t, raw) > 0)
}

// The note that Berth's plan may differ is shown to a CI system too, and fails no
// case.
func TestJUnitShowsNote(t *testing.T) {
	raw, err := report.JUnitPlan(plan.Proposal{Note: "Fetch again, or give --base 5e4d3c2a19."})
	require.NoError(t, err)
	require.Zero(t, checkJUnit(t, raw))
	require.Contains(t, string(raw), "<system-out>Fetch again, or give --base 5e4d3c2a19.</system-out>")
	require.Contains(t, report.Markdown(plan.Proposal{Note: "Fetch again."}), "\n> Fetch again.\n", "where the page has no other text, too")
}
