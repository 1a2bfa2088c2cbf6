package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/usage"
)

// usageCollector writes what jobs used to berth/status while their units run, and closes days.
//
// It keeps nothing that it cannot read from the branch again: the end of the last record is the cursor
// of a cluster, and the last closing says which days are complete. A day that is over is read again as
// a whole before it is closed, so nothing that came late is missing.
type usageCollector struct {
	*recorder
	inForce  *inForce
	repo     reconciler.Repo
	meters   map[string]runtimes.Meter // by runtime_backend
	interval time.Duration
	timeout  time.Duration // of one unit
	// opened is the first day of a cluster that has no closing yet, as it was found: without it, each
	// collection would read all records of the branch.
	opened map[string]string
}

// usageTimeout bounds one collection of a unit: sacct needs some seconds for 100,000 jobs.
const usageTimeout = 5 * time.Minute

// run collects at intervals until ctx ends.
func (c *usageCollector) run(ctx context.Context) {
	if _, ok := c.repo.(reconciler.UsageReader); !ok || len(c.meters) == 0 {
		return
	}
	for {
		wait := c.interval
		if c.inForce.current() == nil {
			wait = min(wait, time.Second) // nothing is decided yet, so the places of units are unknown
		} else if err := c.collect(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("usage not collected", "error", err, "again_in", wait)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// metered is a unit that runs, with its meter.
type metered struct {
	prev    *plan.Status
	meter   runtimes.Meter
	cluster string
	from    string // first day that is not closed; "": unknown
}

// collect reads all units that run, one after the other.
func (c *usageCollector) collect(ctx context.Context) error {
	reader := c.repo.(reconciler.UsageReader)
	tip := c.status.Tip()
	closed, err := reader.ClosedUsage(ctx, tip)
	if err != nil {
		return fmt.Errorf("read which days are closed: %w", err)
	}
	var units []metered
	first := "~" // after all days
	for _, prev := range c.status.Units().All() {
		if m, ok := c.metered(prev, closed); ok {
			units, first = append(units, m), min(first, m.from)
		}
	}
	if len(units) == 0 {
		return nil
	}
	recorded, err := readUsage(ctx, reader, tip, first)
	if err != nil {
		return err
	}
	for _, m := range units {
		if err := c.collectUnit(ctx, m, recorded[m.cluster]); err != nil && ctx.Err() == nil {
			log := c.unitLog(m.prev)
			if errors.Is(err, runtimes.ErrWaiting) {
				log.Info("usage of a unit not collected yet", "reason", err.Error(), "again_in", c.interval)
			} else {
				log.Warn("usage of a unit not collected", "error", err, "again_in", c.interval)
			}
		}
	}
	return ctx.Err()
}

func (c *usageCollector) metered(prev *plan.Status, closed map[string]string) (m metered, ok bool) {
	o := prev.Observed
	if o == nil || o.Presence != plan.Present || !o.Complete || o.Unit == nil || o.Unit.Effective.SharedRuntime != "" {
		return m, false
	}
	meter := c.meters[o.Unit.Effective.RuntimeBackend]
	if meter == nil {
		return m, false
	}
	m = metered{prev: prev, meter: meter, cluster: meter.Cluster(prev.Key)}
	if last, err := time.Parse(time.DateOnly, closed[m.cluster]); err == nil {
		m.from = usage.NextDay(last).Format(time.DateOnly)
	} else {
		m.from = c.opened[m.cluster]
	}
	return m, true
}

// recordedUsage is what the branch has of a cluster.
type recordedUsage struct {
	parts map[usage.Part]usage.Record // with the highest correction
	last  time.Time                   // end of the last one
}

func (r *recordedUsage) add(rec usage.Record) {
	if old, ok := r.parts[rec.Part()]; !ok || rec.Correction > old.Correction {
		r.parts[rec.Part()] = rec
	}
	if rec.Ended.After(r.last) {
		r.last = rec.Ended
	}
}

// news returns the records that the branch lacks: of parts that it does not have, and corrections of
// those that it has otherwise.
func (r *recordedUsage) news(records []usage.Record) (out []usage.Record) {
	for _, rec := range records {
		if old, ok := r.parts[rec.Part()]; ok {
			rec.GPUType = cmp.Or(rec.GPUType, old.GPUType) // a node that has left is not known any more
			if rec.Job.Equal(old.Job) {
				continue
			}
			rec.Correction = old.Correction + 1
		}
		out = append(out, rec)
	}
	return out
}

// readUsage reads the records of a day and later by cluster. A record that cannot be read is written
// again if the runtime still has it.
func readUsage(ctx context.Context, reader reconciler.UsageReader, tip, first string) (map[string]*recordedUsage, error) {
	all := map[string]*recordedUsage{}
	for rec, err := range reader.UsageSince(ctx, tip, first) {
		if err != nil {
			continue
		}
		of := all[rec.Cluster]
		if of == nil {
			of = &recordedUsage{parts: map[usage.Part]usage.Record{}}
			all[rec.Cluster] = of
		}
		of.add(rec)
	}
	return all, ctx.Err()
}

// collectUnit records what the jobs of a unit used since the last time, and closes days that are over.
func (c *usageCollector) collectUnit(ctx context.Context, m metered, have *recordedUsage) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if have == nil {
		have = &recordedUsage{parts: map[usage.Part]usage.Record{}}
	}
	since, isWhole := have.last, m.from < c.now().UTC().Format(time.DateOnly) || have.last.IsZero()
	if isWhole {
		since, _ = time.Parse(time.DateOnly, m.from) // zero if it is unknown
	}
	epoch, leader := c.status.Leadership()
	stamp := runtimes.Stamp{Epoch: epoch, Leader: leader, Commit: m.prev.Revision, CorrelationID: m.prev.CorrelationID}
	scope := newView(c.inForce.current(), m.prev, c.now()).scope()
	reading, err := m.meter.ReadUsage(ctx, scope, stamp, since)
	if err != nil {
		return err
	}
	jobs := slices.DeleteFunc(reading.Jobs, func(j usage.Job) bool { return j.Day() < m.from }) // closed
	news := have.news(attributed(m.prev, jobs))
	if err := c.status.RecordUsage(ctx, news...); err != nil {
		return fmt.Errorf("the usage of %d jobs is not recorded: %w: %w", len(news), err, runtimes.ErrWaiting)
	}
	for _, rec := range news {
		have.add(rec)
	}
	if m.from == "" {
		m.from = reading.At.UTC().Format(time.DateOnly)
		for part := range have.parts {
			m.from = min(m.from, part.Day)
		}
		c.opened[m.cluster] = m.from
	}
	if !isWhole {
		return nil
	}
	return c.close(ctx, m, have, reading.At, func(day time.Time) (int64, bool, error) { return m.meter.AccountedDay(ctx, scope, stamp, day) })
}

// close closes the days before at that accounting has added up, in their order.
func (c *usageCollector) close(ctx context.Context, m metered, have *recordedUsage, at time.Time, accounted func(time.Time) (int64, bool, error)) error {
	day, err := time.Parse(time.DateOnly, m.from)
	if err != nil {
		return err
	}
	sums := map[string]*usage.Closing{}
	for part, rec := range have.parts {
		s := sums[part.Day]
		if s == nil {
			s = &usage.Closing{}
			sums[part.Day] = s
		}
		s.Parts++
		s.CPUs += rec.Elapsed() * int64(rec.CPUs)
	}
	for ; !usage.NextDay(day).After(at); day = usage.NextDay(day) {
		seconds, ok, err := accounted(day)
		if err != nil || !ok {
			return err
		}
		closing := usage.Closing{}
		if s := sums[day.Format(time.DateOnly)]; s != nil {
			closing = *s
		}
		closing.Cluster, closing.Day, closing.Unit, closing.Accounted = m.cluster, day.Format(time.DateOnly), m.prev.Key.String(), seconds
		c.status.RecordClosings(closing)
	}
	return c.status.Flush(ctx)
}

// attributed returns the records of jobs of a unit.
func attributed(prev *plan.Status, jobs []usage.Job) []usage.Record {
	unit := usage.Record{
		UnitID: schema.ID(prev.UID, prev.Key), AppSlug: prev.App, CorrelationID: prev.CorrelationID,
		OperatingMode: prev.OperatingMode, ControlPlaneScope: prev.ControlPlaneScope, RuntimeBackend: prev.RuntimeBackend,
	}
	names := map[string]string{}
	for _, a := range prev.Attachments {
		names[a.ProjectID] = a.Name
	}
	records := make([]usage.Record, 0, len(jobs))
	for _, j := range jobs {
		records = append(records, usage.New(prev.Key, unit, j, names))
	}
	return records
}

// recordUsage is recordLast for this unit.
func (r *unitRun) recordUsage(ctx context.Context, jobs []usage.Job) error {
	return r.usage.recordLast(ctx, r.view.prev, jobs)
}

// recordLast puts what jobs of a unit used onto berth/status before their records at the runtime
// end, unless it is there. Until the remote takes it, the action waits.
func (c *usageCollector) recordLast(ctx context.Context, prev *plan.Status, jobs []usage.Job) error {
	records := attributed(prev, jobs)
	if reader, ok := c.repo.(reconciler.UsageReader); ok && len(records) > 0 {
		first := slices.MinFunc(records, func(a, b usage.Record) int { return a.Started.Compare(b.Started) })
		have, err := readUsage(ctx, reader, c.status.Tip(), first.Day())
		if err != nil {
			return err
		}
		if of := have[first.Cluster]; of != nil {
			records = of.news(records)
		}
	}
	flush, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	if err := c.status.RecordUsage(flush, records...); err != nil {
		return fmt.Errorf("the usage of %d jobs is not recorded: %w: %w", len(jobs), err, runtimes.ErrWaiting)
	}
	return nil
}

// metersOf returns the runtimes that are meters. A runtime that wraps another one has Unwrap.
func metersOf(all map[string]runtimes.Runtime) map[string]runtimes.Meter {
	meters := map[string]runtimes.Meter{}
	for backend, r := range all {
		if w, ok := r.(interface{ Unwrap() runtimes.Runtime }); ok {
			r = w.Unwrap()
		}
		if m, ok := r.(runtimes.Meter); ok {
			meters[backend] = m
		}
	}
	return meters
}
