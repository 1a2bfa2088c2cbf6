package inspect

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"time"

	"berth/cmd/internal/cli"
	"berth/schema/usage"
)

// UsageFilter selects records of usage; an empty field selects all.
type UsageFilter struct {
	From, To string // days of the use, both included
	Org      string
	Project  string // TENANT.PROJECT
}

// Check checks the form of the days.
func (f *UsageFilter) Check() error {
	for _, day := range []struct{ flag, value string }{{"--from", f.From}, {"--to", f.To}} {
		if _, err := time.Parse(time.DateOnly, day.value); day.value != "" && err != nil {
			return fmt.Errorf("%s %s: give a day such as 2026-11-01", day.flag, cli.Visible(day.value))
		}
	}
	if f.To != "" && f.From > f.To {
		return fmt.Errorf("--from %s is after --to %s", f.From, f.To)
	}
	return nil
}

func (f *UsageFilter) takes(r usage.Record) bool {
	return (f.Org == "" || r.OrgID == f.Org) && (f.Project == "" || r.ProjectID == f.Project)
}

// Usage is the JSON of `berth usage`.
type Usage struct {
	Format string `json:"format"` // berth.usage/v1
	Commit string `json:"commit"` // of berth/status
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	// Complete is false if a record could not be read: the sums lack it.
	Complete bool        `json:"complete"`
	Sums     []usage.Sum `json:"sums"`
}

// Used adds up the records that a filter selects. Unreadable ones go to stderr.
func (r *Repository) Used(ctx context.Context, stderr io.Writer, filter UsageFilter) (*Usage, error) {
	u := &Usage{Format: "berth.usage/v1", Commit: r.status, From: filter.From, To: filter.To, Complete: true}
	sums := usage.NewSums()
	for l, err := range r.Usage(ctx, r.status, filter.From, filter.To) {
		if err != nil {
			u.Complete = false
			fmt.Fprintf(stderr, "berth: %s:%d: %s\n", cli.Visible(l.File), l.Line, cli.Visible(err.Error()))
			continue
		}
		if filter.takes(l.Value) {
			sums.Add(l.Value)
		}
	}
	u.Sums = sums.All()
	return u, ctx.Err()
}

// Text implements cli.Report.
func (u *Usage) Text(p *cli.Page) error {
	if len(u.Sums) == 0 {
		_, err := fmt.Fprintln(p, "no usage is recorded for this selection")
		return err
	}
	t := p.Table("ORG", "PROJECT", "UNIT", "APP", "JOBS", "CPU HOURS", "GPU HOURS", "MEMORY GIB HOURS")
	for _, s := range u.Sums {
		t.Row(cli.OrDash(s.OrgID), cli.OrDash(s.ProjectID), s.Unit, s.AppSlug, fmt.Sprint(s.Jobs), hours(s.CPUSeconds, 1), hours(s.GPUSeconds, 1), hours(s.MemoryMiBSeconds, 1024))
	}
	return t.Flush()
}

// hours formats seconds, or MiB seconds with 1024 in a unit, as hours with four digits, rounded down:
// a job of a second is not 0.
func hours(seconds, unit int64) string {
	hour := 3600 * unit
	return fmt.Sprintf("%d.%04d", seconds/hour, seconds%hour*10_000/hour)
}

// CSV writes the sums with a line of headers.
func (u *Usage) CSV(w io.Writer) error {
	c := csv.NewWriter(w)
	rows := [][]string{{"org_id", "project_id", "unit", "app_slug", "jobs", "cpu_seconds", "gpu_seconds", "memory_mib_seconds"}}
	for _, s := range u.Sums {
		rows = append(rows, []string{s.OrgID, s.ProjectID, s.Unit, s.AppSlug, fmt.Sprint(s.Jobs), fmt.Sprint(s.CPUSeconds), fmt.Sprint(s.GPUSeconds), fmt.Sprint(s.MemoryMiBSeconds)})
	}
	return c.WriteAll(rows)
}
