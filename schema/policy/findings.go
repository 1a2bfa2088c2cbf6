package policy

import (
	"fmt"

	"berth/schema"
)

// Findings returns the denials among decisions as diagnostics at the denied value,
// and warnings about uses of an app or version that is deprecated, or disabled and
// used before. The code is "policy." and the rule.
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
			Message: fmt.Sprintf("%s: %s (%s)", d.Field, d.Message, d.Source.Place()),
			File:    d.At.File, Line: d.At.Line, Column: d.At.Column, Path: d.Field,
		})
	}
	schema.SortDiagnostics(ds)
	return ds
}
