package inspect

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
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
	Users    bool   // a line for each user
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

// takes reports whether a filter selects a line. What a project pays of the shared cost depends on the
// records of all projects, so lines are selected and not records.
func (f *UsageFilter) takes(s usage.Sum) bool {
	return (f.Org == "" || s.OrgID == f.Org) && (f.Project == "" || s.ProjectID == f.Project)
}

// Usage is the JSON of `berth usage`.
type Usage struct {
	Format string `json:"format"` // berth.usage/v1
	Commit string `json:"commit"` // of berth/status
	// AsOf is when records were last written: later use is not in the sums. Zero: unknown, as in a shallow history.
	AsOf time.Time `json:"as_of,omitzero"`
	From string    `json:"from,omitempty"`
	To   string    `json:"to,omitempty"`
	// Complete is false if a record could not be read: the sums lack it.
	Complete bool        `json:"complete"`
	Sums     []usage.Sum `json:"sums"`
}

// Used adds up the records that a filter selects. Unreadable ones go to stderr.
func (r *Repository) Used(ctx context.Context, stderr io.Writer, filter UsageFilter) (*Usage, error) {
	u := &Usage{Format: "berth.usage/v1", Commit: r.status, From: filter.From, To: filter.To, Complete: true}
	var records []usage.Record
	for l, err := range r.Usage(ctx, r.status, filter.From, filter.To) {
		if err != nil {
			u.Complete = false
			fmt.Fprintf(stderr, "berth: %s:%d: %s\n", cli.Visible(l.File), l.Line, cli.Visible(err.Error()))
			continue
		}
		records = append(records, l.Value)
	}
	final, err := r.finalDays(ctx, r.status)
	if err != nil {
		return nil, err
	}
	if u.AsOf, err = r.LastChange(ctx, r.status, usage.Dir); err != nil {
		fmt.Fprintf(stderr, "berth: when usage was written is unknown: %s\n", cli.Visible(err.Error()))
	}
	terms := usage.Terms{Users: filter.Users, Closed: final.months(filter.To)}
	inForce, err := r.inForce(ctx)
	if err != nil {
		return nil, err
	}
	terms.Cards = rateCards(inForce)
	if terms.Closings, err = r.Closings(ctx, r.status, filter.From, filter.To); err != nil {
		return nil, err
	}
	all, known := usage.Sums(records, &terms), wanted(map[string]string{"org": filter.Org, "project": filter.Project})
	for _, s := range all {
		known.add("org", s.OrgID)
		known.add("project", s.ProjectID)
	}
	known.addUnits(inForce)
	u.Sums = slices.DeleteFunc(all, func(s usage.Sum) bool { return !filter.takes(s) })
	if filter.From != "" || filter.To != "" { // other days may have the name
		return u, ctx.Err()
	}
	return u, errors.Join(ctx.Err(), known.check("project or record of usage"))
}

// inForce returns the documents in force, none before the first decision.
func (r *Repository) inForce(ctx context.Context) (*schema.Desired, error) {
	if r.tips.InForce == "" {
		return &schema.Desired{Platform: &schema.Platform{}}, nil
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
	return loaded.Desired, nil
}

// rateCards returns the rate cards by name.
func rateCards(d *schema.Desired) map[string]*schema.RateCard {
	cards := map[string]*schema.RateCard{}
	for _, doc := range d.Platform.Others {
		if card, ok := doc.(*schema.RateCard); ok {
			cards[card.Key.Name] = card
		}
	}
	return cards
}

// finalDays say of which days of a cluster no record can come any more.
type finalDays struct {
	closed map[string]string // last closed day by cluster; days close in their order
	begun  map[string]string // day on which a unit began, by its name; none: it is gone
	unread bool              // a status file cannot be read: its unit may exist
	today  string            // on which the commit was made, UTC
}

func (r *Repository) finalDays(ctx context.Context, commit string) (f finalDays, err error) {
	if f.closed, err = r.ClosedUsage(ctx, commit); err != nil {
		return f, fmt.Errorf("read which days are closed: %w", err)
	}
	tree, err := r.ReadStatus(ctx, commit)
	if err != nil {
		return f, err
	}
	f.unread = len(tree.Warnings) > 0
	f.begun = map[string]string{}
	for key, prev := range tree.Units.All() {
		f.begun[key.String()] = prev.BegunOn
	}
	log, err := r.Log(ctx, "", commit, 1)
	if err != nil {
		return f, err
	}
	f.today = log[0].When.UTC().Format(time.DateOnly)
	return f, nil
}

// has reports whether a day is final: its cluster has closed it, or it is over and its unit is gone. A unit
// that began later under the name is another one.
func (f *finalDays) has(cluster, unit, day string) bool {
	begun, exists := f.begun[unit]
	return f.closed[cluster] >= day || day < f.today && (!exists && !f.unread || exists && day < begun)
}

// months reports whether all days of a month are final, up to a day; "": to its end.
func (f *finalDays) months(to string) func(cluster, unit, month string) bool {
	return func(cluster, unit, month string) bool {
		begin, err := time.Parse("2006-01", month)
		end := begin.AddDate(0, 1, -1).Format(time.DateOnly)
		if to != "" {
			end = min(end, to)
		}
		return err == nil && f.has(cluster, unit, end)
	}
}

// Text implements cli.Report.
func (u *Usage) Text(p *cli.Page) error {
	if len(u.Sums) == 0 {
		_, err := fmt.Fprintln(p, "no usage is recorded for this selection;",
			"the daemon collects it every hour, or every usage_interval of berth.yaml")
		return err
	}
	columns := []string{"MONTH", "STATE", "ORG", "PROJECT", "UNIT", "APP", "KIND", "JOBS", "CPU HOURS", "GPU HOURS", "MEMORY GIB HOURS",
		"RATES", "COST"}
	users := slices.ContainsFunc(u.Sums, func(s usage.Sum) bool { return s.User != "" })
	if users {
		columns = append(columns, "USER")
	}
	t := p.Table(columns...)
	t.DropFirst("RATES", "APP", "STATE", "KIND", "ORG")
	for _, s := range u.Sums {
		rates, cost := "-", "-"
		if s.Price != nil {
			rates, cost = s.Rates, money(big.NewInt(s.Price.Millionths), s.Price.Currency)
		}
		row := []string{s.Month, state(s.Closed), s.OrgID, s.ProjectID, s.Unit, s.AppSlug, s.Kind, fmt.Sprint(s.Jobs),
			hours(s.CPUSeconds, 1), hours(s.GPUSeconds, 1), hours(s.MemoryMiBSeconds, 1024), rates, cost}
		if users {
			row = append(row, s.User)
		}
		t.Row(row...)
	}
	if err := t.Flush(); err != nil || !p.HasHeaders() {
		return err
	}
	if len(u.Sums) > 1 {
		if err := p.Tables(u.totals(p)); err != nil {
			return err
		}
	}
	if u.AsOf.IsZero() {
		return nil
	}
	_, err := fmt.Fprintf(p, "\nas of %s, when Berth last wrote usage; --server shows later use\n", cli.Stamp(u.AsOf))
	return err
}

// total adds up the lines of a project.
type total struct {
	jobs               int
	cpus, gpus, memory int64                          // of jobs, in seconds
	costs              map[string]map[string]*big.Int // millionths by kind and currency; kind "" has all
	unpriced           map[string]int                 // number of lines that have no price, by kind
}

func (t *total) add(s *usage.Sum) {
	if s.Kind == usage.KindJobs {
		t.jobs += s.Jobs
		t.cpus, t.gpus, t.memory = t.cpus+s.CPUSeconds, t.gpus+s.GPUSeconds, t.memory+s.MemoryMiBSeconds
	}
	for _, kind := range []string{s.Kind, ""} {
		if s.Price == nil {
			t.unpriced[kind]++
			continue
		}
		if t.costs[kind] == nil {
			t.costs[kind] = map[string]*big.Int{}
		}
		if t.costs[kind][s.Price.Currency] == nil {
			t.costs[kind][s.Price.Currency] = new(big.Int)
		}
		sum := t.costs[kind][s.Price.Currency]
		sum.Add(sum, big.NewInt(s.Price.Millionths))
	}
}

func newTotal() *total {
	return &total{costs: map[string]map[string]*big.Int{}, unpriced: map[string]int{}}
}

// cost returns the costs of a kind, such as "1.500000 EUR + 2.000000 USD + 1 line without a price".
func (t *total) cost(kind string) string {
	var all []string
	for _, currency := range slices.Sorted(maps.Keys(t.costs[kind])) {
		all = append(all, money(t.costs[kind][currency], currency))
	}
	switch n := t.unpriced[kind]; n {
	case 0:
	case 1:
		all = append(all, "1 line without a price")
	default:
		all = append(all, fmt.Sprintf("%d lines without a price", n))
	}
	return strings.Join(all, " + ")
}

// totals returns the totals of each project and of all.
func (u *Usage) totals(p *cli.Page) *cli.Table {
	all, of := newTotal(), map[string]*total{}
	for i := range u.Sums {
		s := &u.Sums[i]
		if of[s.ProjectID] == nil {
			of[s.ProjectID] = newTotal()
		}
		of[s.ProjectID].add(s)
		all.add(s)
	}
	t := p.Table("TOTAL OF", "JOBS", "CPU HOURS", "GPU HOURS", "MEMORY GIB HOURS", "COST OF JOBS", "SHARED COST", "COST")
	row := func(name string, s *total) {
		t.Row(name, fmt.Sprint(s.jobs), hours(s.cpus, 1), hours(s.gpus, 1), hours(s.memory, 1024), s.cost(usage.KindJobs),
			s.cost(usage.KindShared), s.cost(""))
	}
	for _, project := range slices.Sorted(maps.Keys(of)) {
		row(cmp.Or(project, "no project"), of[project])
	}
	row("all", all)
	return t
}

// money formats millionths of a currency.
func money(millionths *big.Int, currency string) string {
	whole, rest := new(big.Int).DivMod(new(big.Int).Abs(millionths), big.NewInt(1_000_000), new(big.Int))
	return fmt.Sprintf("%s%s.%06d %s", minus(millionths.Sign() < 0), whole, rest.Int64(), currency)
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
	hour, sign := 3600*unit, minus(seconds < 0)
	if seconds < 0 {
		seconds = -seconds
	}
	return fmt.Sprintf("%s%d.%04d", sign, seconds/hour, seconds%hour*10_000/hour)
}

// minus returns the sign of a number; corrections of earlier months may exceed what a month used.
func minus(isNegative bool) string {
	if isNegative {
		return "-"
	}
	return ""
}

// CSV writes the sums with a line of headers.
func (u *Usage) CSV(w io.Writer) error {
	c := csv.NewWriter(w)
	rows := [][]string{{"month", "state", "org_id", "project_id", "unit", "app_slug", "kind", "user", "jobs", "cpu_seconds", "gpu_seconds",
		"memory_mib_seconds", "rates", "currency", "cost_millionths"}}
	for _, s := range u.Sums {
		rates, currency, cost := "", "", ""
		if p := s.Price; p != nil {
			rates, currency, cost = s.Rates, p.Currency, fmt.Sprint(p.Millionths)
		}
		rows = append(rows, []string{s.Month, state(s.Closed), s.OrgID, s.ProjectID, s.Unit, s.AppSlug, s.Kind, s.User, fmt.Sprint(s.Jobs),
			fmt.Sprint(s.CPUSeconds), fmt.Sprint(s.GPUSeconds), fmt.Sprint(s.MemoryMiBSeconds), rates, currency, cost})
	}
	return c.WriteAll(rows)
}

// ExportUsage writes the records of the days that became final since a cursor as JSON Lines: {"record":…} for
// each record, {"closing":…} for each day that was closed, and at the end {"cursor":…}, with which the next
// export continues. Each record comes once, as final days never change. Without the last line the export is not
// complete: it is repeated with the same cursor.
func (r *Repository) ExportUsage(ctx context.Context, w io.Writer, cursor string) error {
	final, err := r.finalDays(ctx, r.status)
	if err != nil {
		return err
	}
	var before finalDays
	if cursor != "" {
		if before, err = r.finalDays(ctx, cursor); err != nil {
			return fmt.Errorf("cursor %s is not a commit of berth/status in this repository: fetch the branch, or export without a "+
				"cursor: %w", cli.Visible(cursor), err)
		}
	}
	out := json.NewEncoder(w)
	for l, err := range r.Usage(ctx, r.status, "", "") {
		if err != nil {
			return fmt.Errorf("%s:%d: %w", l.File, l.Line, err)
		}
		if rec := &l.Value; !final.has(rec.Cluster, rec.Unit, rec.Day) || before.has(rec.Cluster, rec.Unit, rec.Day) {
			continue
		}
		if err := out.Encode(map[string]usage.Record{"record": l.Value}); err != nil {
			return err
		}
	}
	closings, err := r.Closings(ctx, r.status, "", "")
	if err != nil {
		return err
	}
	for _, c := range closings {
		if before.closed[c.Cluster] >= c.Day {
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
