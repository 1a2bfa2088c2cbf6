package decide

import (
	"slices"

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
			if slices.Contains(datesOf(before.Document(key)), is) {
				continue
			}
			found := warnAt(after.Header(key), is.path, codePast, "%s is not in the future: %s", is.day, is.effect)
			if is.useless && before.Document(key) == nil {
				found.Severity = schema.SeverityError
			}
			out = append(out, found)
		}
	}
	return out
}

// date is a day in a document.
type date struct {
	path, day string
	lasts     bool   // the day itself is ahead
	useless   bool   // a new document with a day that is over has no effect
	effect    string // of a day that is over
}

// datesOf are the days of a document that the loader and the rules of its kind do not compare with
// the present.
func datesOf(doc any) []date {
	const returned = "the nodes return when this is merged"
	switch d := doc.(type) {
	case *schema.Contribution:
		return []date{{"spec.until", d.Spec.Until, false, true, returned}}
	case *schema.Attachment:
		return []date{{"spec.contribution_policy.until", d.Spec.ContributionPolicy.Until, false, true, returned}}
	case *schema.RateCard:
		return []date{{"spec.from", d.Spec.From, true, false, "the prices of days since then change where their month is not closed"}}
	case *schema.Policy:
		return []date{{"spec.noncompliant.grace_until", d.Spec.Noncompliant.GraceUntil, false, false, "instances that policy no longer allows stop with the merge; a later day gives their owners time"}}
	}
	return nil
}
