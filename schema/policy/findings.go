package policy

import (
	"fmt"

	"berth/schema"
)

// Findings are the refusals among decisions as diagnostics, at the value that
// is refused. Their codes are "policy." and the rule.
func Findings(decisions []schema.Decision) []schema.Diagnostic {
	var ds []schema.Diagnostic
	for _, d := range decisions {
		if d.Verdict != schema.Deny && d.Verdict != schema.Stop {
			continue
		}
		ds = append(ds, schema.Diagnostic{
			Severity: schema.SeverityError, Code: "policy." + d.Rule,
			Message: fmt.Sprintf("%s: %s (%s:%d)", d.Field, d.Message, d.Source.File, d.Source.Line),
			File:    d.At.File, Line: d.At.Line, Column: d.At.Column, Path: d.Field,
		})
	}
	schema.SortDiagnostics(ds)
	return ds
}
