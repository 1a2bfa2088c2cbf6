package decide

import (
	"slices"
	"time"

	"berth/schema"
)

// unusualDates are findings about days that a change sets and that are over, or years away. An earlier one
// was ahead when it came into force.
func unusualDates(c comparison) (out []schema.Diagnostic) {
	if c.today == "" {
		return nil // it is not known
	}
	far := farDay(c.today)
	for was, is := range changed[schema.Document](c) {
		old := datesOf(was)
		for _, set := range datesOf(is) {
			switch {
			case set.day == "" || slices.Contains(old, set):
			case set.day > far:
				out = append(out, is.Head().Warning(set.path, codeFar, "%s is more than %d years ahead: check the year", set.day, farAhead))
			case set.day < c.today || set.day == c.today && !set.lasts:
				found := is.Head().Warning(set.path, codePast, "%s is not in the future: %s", set.day, set.effect)
				if set.useless && was == nil {
					found.Severity = schema.SeverityError
				}
				out = append(out, found)
			}
		}
	}
	return out
}

// farDay is the last day that is not far ahead of a day.
func farDay(today string) string {
	day, err := time.Parse(time.DateOnly, today)
	if err != nil {
		return "9999-12-31" // today is not known
	}
	return day.AddDate(farAhead, 0, 0).Format(time.DateOnly)
}

// farAhead is beyond how many years a day is more often a mistake than meant.
const farAhead = 10

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
		return []date{{"spec.noncompliant.grace_until", d.Spec.Noncompliant.GraceUntil, false, false,
			"instances that policy no longer allows stop with the merge; a later day gives their owners time"}}
	}
	return nil
}
