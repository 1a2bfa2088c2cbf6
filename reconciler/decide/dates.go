package decide

import (
	"fmt"

	"berth/schema"
)

// pastDates are findings about days that a change sets and that are over. An earlier one was ahead
// when it came into force.
func pastDates(touched []schema.PathChange, before, after *schema.Desired, today string) (out []schema.Diagnostic) {
	for _, c := range touched {
		key, ok := schema.KeyAt(c.Path)
		if !ok || today == "" {
			continue
		}
		for _, is := range datesOf(after.Document(key)) {
			if is.day == "" || is.day > today || is.day == today && is.lasts {
				continue
			}
			kept := false
			for _, was := range datesOf(before.Document(key)) {
				kept = kept || was == is
			}
			if kept {
				continue
			}
			at := after.Header(key).At(is.path)
			out = append(out, schema.Diagnostic{
				Severity: is.severity, Code: codePast, File: at.File, Line: at.Line, Column: at.Column, Path: is.path,
				Message: fmt.Sprintf("%s: %s is not ahead: %s", is.path, is.day, is.effect),
			})
		}
	}
	return out
}

// date is a day in a document.
type date struct {
	path, day string
	lasts     bool // the day itself is ahead
	severity  schema.Severity
	effect    string // of a day that is over
}

// datesOf are the days of a document that the loader and the rules of its kind do not compare with
// the present.
func datesOf(doc any) []date {
	const returned = "the nodes would return at once; write a later day, or take it away"
	switch d := doc.(type) {
	case *schema.Contribution:
		return []date{{"spec.until", d.Spec.Until, false, schema.SeverityError, returned}}
	case *schema.Attachment:
		return []date{{"spec.contribution_policy.until", d.Spec.ContributionPolicy.Until, false, schema.SeverityError, returned}}
	case *schema.RateCard:
		return []date{{"spec.from", d.Spec.From, true, schema.SeverityWarning, "the prices of days since then change where their month is not closed"}}
	case *schema.Policy:
		return []date{{"spec.noncompliant.grace_until", d.Spec.Noncompliant.GraceUntil, false, schema.SeverityWarning, "instances that policy no longer allows stop with the merge; a later day gives their owners time"}}
	}
	return nil
}
