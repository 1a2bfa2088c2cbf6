package report

import (
	"regexp"
	"slices"
	"strings"

	"berth/schema"
)

// sides separates findings about invalid documents from those about the effects of a
// change.
func sides(ds []schema.Diagnostic) (written, permitted []schema.Diagnostic) {
	for _, d := range ds {
		if isDecided(d.Code) {
			permitted = append(permitted, d)
		} else {
			written = append(written, d)
		}
	}
	return written, permitted
}

// isDecided reports whether a finding of that code depends on other documents, on people
// or on the state in force. Such a finding belongs to the check berth/plan.
func isDecided(code string) bool {
	return slices.Contains([]string{"policy", "authority", "deletion", "estate", "feature", "capacity", "kind"},
		family(strings.TrimPrefix(code, "base.")))
}

// family returns the first part of a code.
func family(code string) string {
	family, _, _ := strings.Cut(code, ".")
	return family
}

// acknowledgement returns the digest that acknowledges a blocked deletion, or "".
func acknowledgement(f schema.Diagnostic) string {
	if family(f.Code) != "deletion" {
		return ""
	}
	return hexDigest.FindString(f.Message)
}

func withoutErrors(ds []schema.Diagnostic) []schema.Diagnostic {
	return slices.DeleteFunc(slices.Clone(ds), func(f schema.Diagnostic) bool { return f.Severity == schema.SeverityError })
}

// bySeverity returns findings with the errors first.
func bySeverity(ds []schema.Diagnostic) []schema.Diagnostic {
	rank := func(d schema.Diagnostic) int {
		return slices.Index([]schema.Severity{schema.SeverityError, schema.SeverityWarning, schema.SeverityNote}, d.Severity)
	}
	out := slices.Clone(ds)
	slices.SortStableFunc(out, func(a, b schema.Diagnostic) int { return rank(a) - rank(b) })
	return out
}

func finding(f schema.Diagnostic) string {
	return prose(f.Message) + " (" + code(f.Code) + ")"
}

var hexDigest = regexp.MustCompile(`\b[0-9a-f]{16}\b`)

// severities counts findings: "1 error and 2 warnings".
func severities(ds []schema.Diagnostic) string {
	var parts []string
	for _, s := range []schema.Severity{schema.SeverityError, schema.SeverityWarning, schema.SeverityNote} {
		n := 0
		for _, d := range ds {
			if d.Severity == s {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, count(n, string(s)))
		}
	}
	return sentence(parts)
}
