package usage

import (
	"cmp"
	"slices"
	"time"
)

// DaySum is what jobs of a project used of a unit on a day.
type DaySum struct {
	Day       string `json:"day"` // UTC, such as 2026-11-01
	ProjectID string `json:"-"`   // "": no project's
	Closed    bool   `json:"closed"`
	Jobs      int    `json:"jobs"` // that used something
	Amounts
}

// DaySums adds records up, in order of day and project. A correction counts on the day of its record.
func DaySums(records []Record, closed bool) []DaySum {
	type line struct{ day, project string }
	sums, runs := map[line]*DaySum{}, map[line]map[Run]bool{}
	for i := range records {
		r := &records[i]
		key := line{r.Day, r.ProjectID}
		if sums[key] == nil {
			sums[key], runs[key] = &DaySum{Day: r.Day, ProjectID: r.ProjectID, Closed: closed}, map[Run]bool{}
		}
		sums[key].add(1, r.Amounts)
		if r.Held() > 0 && r.Corrects == "" {
			runs[key][r.Run()] = true
		}
	}
	all := make([]DaySum, 0, len(sums))
	for key, sum := range sums {
		sum.Jobs = len(runs[key])
		all = append(all, *sum)
	}
	slices.SortFunc(all, func(a, b DaySum) int { return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.ProjectID, b.ProjectID)) })
	return all
}

// LiveUsage is what jobs used of a unit, by day. The open days are those of accounting at ObservedAt, or with a Reason the
// written ones.
type LiveUsage struct {
	// ObservedAt is when accounting was asked. With a Reason it is until when the written days are known: to the end of the
	// last job that was written, or of the last closed day; zero: nothing was written. Jobs that run are written up to the last
	// midnight.
	ObservedAt time.Time
	// Reason says why accounting was not read, without names of hosts; "": it was.
	Reason string
	Days   []DaySum // of all projects, in order of days
}

// UnitUsage is the part of a project in a LiveUsage.
type UnitUsage struct {
	Unit    string `json:"unit"` // as in Record
	AppSlug string `json:"app_slug"`
	// Observed is nil if neither accounting nor the records could be read, or if nothing was written yet.
	*Observed
	Reason string   `json:"reason,omitempty"`
	Days   []DaySum `json:"days,omitzero"` // in order, those with use; nil: unknown
}

// Observed says until when usage is known.
type Observed struct {
	ObservedAt time.Time `json:"observed_at"` // UTC, as in LiveUsage
	AgeSeconds int       `json:"age_seconds"` // of the answer
}

// ProjectUsage is what a project used of its units. It lacks units that are deleted, and shared runtimes from which
// the project is detached.
type ProjectUsage struct {
	ProjectID string      `json:"project_id"`
	Items     []UnitUsage `json:"items"`
}
