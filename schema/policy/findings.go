package policy

import (
	"fmt"

	"berth/schema"
)

// Findings are the refusals among decisions as diagnostics, at the value that
// is refused; and as warnings who uses an app or a version that is deprecated, or
// that is disabled and was there before. Their codes are "policy." and the rule.
func Findings(decisions []schema.Decision) []schema.Diagnostic {
	var ds []schema.Diagnostic
	for _, d := range decisions {
		severity := schema.SeverityError
		switch {
		case d.Verdict == schema.Deny, d.Verdict == schema.Stop:
		case d.Verdict == schema.Allow && d.Rule == "status":
			severity = schema.SeverityWarning
		default:
			continue
		}
		ds = append(ds, schema.Diagnostic{
			Severity: severity, Code: "policy." + d.Rule,
			Message: fmt.Sprintf("%s: %s (%s:%d)", d.Field, d.Message, d.Source.File, d.Source.Line),
			File:    d.At.File, Line: d.At.Line, Column: d.At.Column, Path: d.Field,
		})
	}
	schema.SortDiagnostics(ds)
	return ds
}
