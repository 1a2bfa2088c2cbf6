package inspect

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/localestate"
	"berth/schema"
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
	closed, err := r.closedMonths(ctx, filter)
	if err != nil {
		return nil, err
	}
	rates, err := r.rates(ctx)
	if err != nil {
		return nil, err
	}
	u.Sums = sums.All(closed, rates)
	return u, ctx.Err()
}

// rates returns which rate card in force applies to a record: that of its attachment, else default.
func (r *Repository) rates(ctx context.Context) (func(*usage.Record) *schema.RateCard, error) {
	if r.tips.InForce == "" {
		return nil, nil
	}
	loader, err := localestate.NewLoader()
	if err != nil {
		return nil, err
	}
	snap, err := r.Snapshot(ctx, r.tips.InForce)
	if err != nil {
		return nil, err
	}
	loaded, err := loader.Load(ctx, snap)
	if err != nil {
		return nil, err
	}
	cards, refs := map[string]*schema.RateCard{}, map[string]string{}
	attached := func(all map[string]*schema.SharedRuntimeEstate) {
		for _, runtime := range all {
			for _, a := range runtime.Attachments {
				refs[a.Key.ResourceName()] = a.Spec.BillingPolicyRef
			}
		}
	}
	for _, doc := range loaded.Desired.Platform.Others {
		if card, ok := doc.(*schema.RateCard); ok {
			cards[card.Key.Name] = card
		}
	}
	attached(loaded.Desired.Platform.SharedRuntimes)
	for _, tenant := range loaded.Desired.Tenants {
		attached(tenant.SharedRuntimes)
	}
	return func(rec *usage.Record) *schema.RateCard {
		return cards[cmp.Or(refs[rec.AttachmentID], schema.DefaultRates)]
	}, nil
}

// closedMonths reports whether the records of a unit in a month are complete, as far as a filter selects
// days. Days close in their order. The records of a unit that is gone were complete before it went.
func (r *Repository) closedMonths(ctx context.Context, filter UsageFilter) (func(*usage.Record, string) bool, error) {
	last, err := r.ClosedUsage(ctx, r.status)
	if err != nil {
		return nil, fmt.Errorf("read which days are closed: %w", err)
	}
	tree, err := r.ReadStatus(ctx, r.status)
	if err != nil {
		return nil, err
	}
	units := map[string]bool{}
	for _, key := range tree.Units.Keys() {
		units[key.String()] = true
	}
	return func(rec *usage.Record, month string) bool {
		begin, err := time.Parse("2006-01", month)
		end := begin.AddDate(0, 1, -1).Format(time.DateOnly)
		if filter.To != "" {
			end = min(end, filter.To)
		}
		return err == nil && (!units[rec.Unit] || last[rec.Cluster] >= end)
	}, nil
}

// Text implements cli.Report.
func (u *Usage) Text(p *cli.Page) error {
	if len(u.Sums) == 0 {
		_, err := fmt.Fprintln(p, "no usage is recorded for this selection")
		return err
	}
	t := p.Table("MONTH", "STATE", "ORG", "PROJECT", "UNIT", "APP", "JOBS", "CPU HOURS", "GPU HOURS", "MEMORY GIB HOURS", "RATES", "COST")
	for _, s := range u.Sums {
		rates, cost := "-", "-"
		if p := s.Price; p != nil {
			rates, cost = p.Rates, fmt.Sprintf("%d.%06d %s", p.Millionths/1_000_000, p.Millionths%1_000_000, p.Currency)
		}
		t.Row(s.Month, state(s.Closed), cli.OrDash(s.OrgID), cli.OrDash(s.ProjectID), s.Unit, s.AppSlug, fmt.Sprint(s.Jobs), hours(s.CPUSeconds, 1), hours(s.GPUSeconds, 1), hours(s.MemoryMiBSeconds, 1024), rates, cost)
	}
	return t.Flush()
}

func state(closed bool) string {
	if closed {
		return "closed"
	}
	return "open"
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
	rows := [][]string{{"month", "state", "org_id", "project_id", "unit", "app_slug", "jobs", "cpu_seconds", "gpu_seconds", "memory_mib_seconds", "rates", "currency", "cost_millionths"}}
	for _, s := range u.Sums {
		rates, currency, cost := "", "", ""
		if p := s.Price; p != nil {
			rates, currency, cost = p.Rates, p.Currency, fmt.Sprint(p.Millionths)
		}
		rows = append(rows, []string{s.Month, state(s.Closed), s.OrgID, s.ProjectID, s.Unit, s.AppSlug, fmt.Sprint(s.Jobs), fmt.Sprint(s.CPUSeconds), fmt.Sprint(s.GPUSeconds), fmt.Sprint(s.MemoryMiBSeconds), rates, currency, cost})
	}
	return c.WriteAll(rows)
}

// ExportUsage writes what was recorded since a cursor as JSON Lines: {"record":…} for each record,
// {"closing":…} for each day that was closed, and at the end {"cursor":…}, with which the next export
// continues. A correction is a record of its own. Without the last line the export is not complete:
// it is repeated with the same cursor.
func (r *Repository) ExportUsage(ctx context.Context, w io.Writer, cursor string) error {
	if cursor != "" {
		if _, err := r.ReadStatus(ctx, cursor); err != nil {
			return fmt.Errorf("cursor %s is not a commit of berth/status in this repository: fetch the branch, or export without a cursor: %w", cli.Visible(cursor), err)
		}
	}
	out := json.NewEncoder(w)
	for l, err := range r.UsageAdded(ctx, r.status, cursor) {
		if err != nil {
			return fmt.Errorf("%s:%d: %w", l.File, l.Line, err)
		}
		if err := out.Encode(map[string]usage.Record{"record": l.Value}); err != nil {
			return err
		}
	}
	before, err := r.Closings(ctx, cursor, "", "")
	if err != nil {
		return err
	}
	closings, err := r.Closings(ctx, r.status, "", "")
	if err != nil {
		return err
	}
	for _, c := range closings {
		if slices.Contains(before, c) {
			continue
		}
		if err := out.Encode(map[string]usage.Closing{"closing": c}); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return out.Encode(map[string]string{"cursor": r.status})
}
