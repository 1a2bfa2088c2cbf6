package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/status"
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
	// opened is the first day of a cluster whose unit has neither a closing nor a first day in its status,
	// as it was found: without it, each collection would read all records of the branch.
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
	from    string // first open day of the unit; "": unknown
}

// collect reads all units that run, one after the other.
func (c *usageCollector) collect(ctx context.Context) error {
	reader := c.repo.(reconciler.UsageReader)
	if err := c.flush(ctx); err != nil {
		return err
	}
	tip := c.status.Tip()
	closed, err := reader.ClosedUsage(ctx, tip)
	if err != nil {
		return fmt.Errorf("read which days are closed: %w", err)
	}
	units := map[string][]metered{} // by tenant
	for _, prev := range c.status.Units().All() {
		if m, ok := c.metered(prev, closed); ok {
			units[prev.Key.Tenant] = append(units[prev.Key.Tenant], m)
		}
	}
	for _, tenant := range slices.Sorted(maps.Keys(units)) {
		if err := c.collectTenant(ctx, reader, tip, tenant, units[tenant]); err != nil {
			return err
		}
	}
	return nil
}

// collectTenant reads the units of a tenant. It reads the records of that tenant only: a unit whose days do not
// close makes the collection of its own tenant slower. Projects of all tenants use the platform's units, "".
func (c *usageCollector) collectTenant(ctx context.Context, reader reconciler.UsageReader, tip, tenant string, units []metered) error {
	first := slices.MinFunc(units, func(a, b metered) int { return cmp.Compare(a.from, b.from) }).from
	recorded, err := readUsage(ctx, reader, tip, first, tenant)
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

// flush returns once the branch has the usage that was read before: a part that the branch lacks can be
// neither corrected nor withdrawn.
func (c *usageCollector) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	if err := c.status.FlushUsage(ctx); err != nil {
		return fmt.Errorf("the usage that was read before is not recorded: %w: %w", err, runtimes.ErrWaiting)
	}
	return nil
}

// metered returns a unit whose usage is collected. Its first open day is the day after the last closing of
// its cluster or, if that is later, the day on which the unit began: the accounting of a unit that was deleted
// and created again under its name has nothing of the days before.
func (c *usageCollector) metered(prev *plan.Status, closed map[string]string) (m metered, ok bool) {
	o := prev.Observed
	if !isComplete(o) || prev.Phase == plan.PhaseStopped || o.Unit == nil || o.Unit.Effective.SharedRuntime != "" {
		return m, false
	}
	meter := c.meters[o.Unit.Effective.RuntimeBackend]
	if meter == nil {
		return m, false
	}
	m = metered{prev: prev, meter: meter, cluster: meter.Cluster(prev.Key), from: prev.BegunOn}
	if last, err := time.Parse(time.DateOnly, closed[m.cluster]); err == nil { // also of a deleted unit of that name
		m.from = max(m.from, usage.NextDay(last).Format(time.DateOnly))
	}
	m.from = cmp.Or(m.from, c.opened[m.cluster])
	return m, true
}

// readUsage reads the records of a tenant of a day and later by cluster. A record that cannot be read is written
// again if the runtime still has it.
func readUsage(ctx context.Context, reader reconciler.UsageReader, tip, first, tenant string) (map[string]*usage.Recorded, error) {
	all := map[string]*usage.Recorded{}
	for rec, err := range reader.UsageSince(ctx, tip, first, tenant) {
		if err != nil {
			continue
		}
		of := all[rec.Cluster]
		if of == nil {
			of = usage.NewRecorded()
			all[rec.Cluster] = of
		}
		of.Add(rec)
	}
	return all, ctx.Err()
}

// collectUnit records what the jobs of a unit used since the last time, and closes days that are over.
func (c *usageCollector) collectUnit(ctx context.Context, m metered, have *usage.Recorded) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if have == nil {
		have = usage.NewRecorded()
	}
	epoch, leader := c.status.Leadership()
	stamp := runtimes.Stamp{Epoch: epoch, Leader: leader, Commit: m.prev.Revision, CorrelationID: m.prev.CorrelationID}
	scope := newView(c.inForce.current(), m.prev, c.now()).scope()
	reading, withdrawn, isWhole, err := c.read(m, have, func(since time.Time) (runtimes.UsageReading, error) {
		return m.meter.ReadUsage(ctx, scope, stamp, since)
	})
	if err != nil {
		return err
	}
	jobs := slices.DeleteFunc(reading.Jobs, func(j usage.Job) bool { return j.Day() < m.from }) // closed
	unrecorded := append(have.Unrecorded(c.attributed(m.prev, jobs)), withdrawn...)
	if err := c.status.RecordUsage(ctx, unrecorded...); err != nil {
		return fmt.Errorf("the usage of %d jobs is not recorded: %w: %w", len(unrecorded), err, runtimes.ErrWaiting)
	}
	for _, rec := range unrecorded {
		have.Add(rec)
	}
	if m.from == "" {
		m.from = reading.At.UTC().Format(time.DateOnly)
		for part := range have.All() {
			m.from = min(m.from, part.Day)
		}
		c.opened[m.cluster] = m.from
	}
	if !isWhole {
		return nil
	}
	return c.close(ctx, m, have, c.over(reading.At), func(day time.Time) (usage.DayReport, bool, error) {
		return m.meter.AccountedDay(ctx, scope, stamp, day)
	})
}

// over returns the time before which a day is over: by the clock of the runtime and by that of Berth. If one
// of them is wrong, no day closes that lies ahead.
func (c *usageCollector) over(at time.Time) time.Time {
	if now := c.now().UTC(); now.Before(at) {
		return now
	}
	return at.UTC()
}

// read reads the runs that ended since the last record. If an open day is over, or nothing is recorded yet, it
// reads all runs since the first open day (isWhole). Then withdrawn has the corrections of records that the
// runtime no longer confirms.
func (c *usageCollector) read(m metered, have *usage.Recorded, read func(since time.Time) (runtimes.UsageReading, error)) (reading runtimes.UsageReading, withdrawn []usage.Record, isWhole bool, err error) {
	from, _ := time.Parse(time.DateOnly, m.from) // zero if it is unknown
	if !have.Last().IsZero() {
		reading, err = read(have.Last())
		if err != nil || m.from >= c.over(reading.At).Format(time.DateOnly) {
			return reading, nil, false, err
		}
	}
	if reading, err = read(from); err != nil {
		return reading, nil, false, err
	}
	withdrawn, missing := have.Withdrawn(reading.Jobs, m.from)
	if len(missing) > 0 { // runs that ended before, or that accounting has no longer
		first := slices.MinFunc(missing, func(a, b usage.Record) int { return a.Submitted.Compare(b.Submitted) })
		longer, err := read(first.Submitted)
		if err != nil {
			return reading, nil, false, err
		}
		withdrawn, _ = have.Withdrawn(longer.Jobs, m.from)
	}
	return reading, withdrawn, true, nil
}

// close closes the days before at that accounting has added up, in their order.
func (c *usageCollector) close(ctx context.Context, m metered, have *usage.Recorded, at time.Time, accounted func(time.Time) (usage.DayReport, bool, error)) error {
	day, err := time.Parse(time.DateOnly, m.from)
	if err != nil {
		return err
	}
	sums := map[string]*usage.Closing{} // by day
	for part, rec := range have.All() {
		if rec.Held() == 0 { // withdrawn
			continue
		}
		s := sums[part.Day]
		if s == nil {
			s = &usage.Closing{}
			sums[part.Day] = s
		}
		if rec.ProjectID != "" && !slices.Contains(s.Projects, rec.ProjectID) {
			s.Projects = append(s.Projects, rec.ProjectID)
		}
		s.Parts++
		s.CPUs += rec.Elapsed() * int64(rec.CPUs)
	}
	for ; !usage.NextDay(day).After(at); day = usage.NextDay(day) {
		report, ok, err := accounted(day)
		if err != nil || !ok {
			return err
		}
		closing := usage.Closing{}
		if s := sums[day.Format(time.DateOnly)]; s != nil {
			closing = *s
		}
		closing.Cluster, closing.Day = m.cluster, day.Format(time.DateOnly)
		closing.Accounted, closing.Unused = report.CPUs, report.Unused
		c.attribute(m.prev, &closing)
		c.status.RecordClosings(closing)
	}
	return c.status.Flush(ctx)
}

// attribute adds to a closing what its shared cost is billed to.
func (c *usageCollector) attribute(prev *plan.Status, closing *usage.Closing) {
	key := prev.Key
	closing.Unit, closing.OwnerID, closing.AppSlug = key.String(), key.Tenant, prev.App
	closing.Projects = slices.Compact(slices.Sorted(slices.Values(append(closing.Projects, projectsOf(prev)...))))
	if key.Kind != schema.KindSharedRuntime {
		return
	}
	if e := c.inForce.current().Desired.SharedRuntime(key.Tenant, key.Name); e != nil && e.Runtime != nil {
		closing.BillingPolicyRef = e.Runtime.Spec.BillingPolicyRef
	}
}

// projectsOf returns the project of an instance, or those that are attached to a shared runtime.
func projectsOf(prev *plan.Status) (ids []string) {
	if prev.Key.Project != "" {
		return []string{prev.Key.ProjectID()}
	}
	for _, a := range prev.Attachments {
		if a.Phase == plan.AttachmentAttached {
			ids = append(ids, a.ProjectID)
		}
	}
	return ids
}

// attributed returns the records of jobs of a unit.
func (c *usageCollector) attributed(prev *plan.Status, jobs []usage.Job) []usage.Record {
	unit := usage.Record{
		UnitID: schema.ID(prev.UID, prev.Key), AppSlug: prev.App, CorrelationID: prev.CorrelationID,
		OperatingMode: prev.OperatingMode, ControlPlaneScope: prev.ControlPlaneScope, RuntimeBackend: prev.RuntimeBackend,
	}
	attachments := map[string]usage.Attachment{}
	for _, a := range prev.Attachments {
		attachments[a.ProjectID] = usage.Attachment{Name: a.Name, BillingPolicyRef: c.ratesOf(prev.Key, a.Name)}
	}
	records := make([]usage.Record, 0, len(jobs))
	for _, j := range jobs {
		if of, _, _ := strings.Cut(j.ProjectID, "."); prev.Key.Tenant != "" && of != prev.Key.Tenant {
			j.ProjectID = "" // an account that somebody made there: a tenant's unit bills its own tenant only
		}
		records = append(records, usage.New(prev.Key, unit, j, attachments))
	}
	return records
}

// ratesOf returns which rate card an attachment names. Its status has that until the project is
// detached, also after its document is gone.
func (c *usageCollector) ratesOf(unit schema.Key, attachment string) string {
	var detail attachmentDetail
	at := schema.Key{Kind: schema.KindAttachment, Tenant: unit.Tenant, Parent: unit.Name, Name: attachment}
	if s := c.status.Resource(at); s != nil && attachment != "" {
		status.Detail(s, &detail)
	}
	return detail.BillingPolicyRef
}

// recordUsage is recordLast for this unit.
func (r *unitRun) recordUsage(ctx context.Context, jobs []usage.Job) error {
	return r.usage.recordLast(ctx, r.view.prev, jobs)
}

// jobsLost announces jobs that the scheduler of the unit lost.
func (r *unitRun) jobsLost(jobs []plan.LostJob) {
	if len(jobs) > 0 {
		r.status.Announce(status.LostJobsEvent(r.view.prev, jobs, r.now()))
	}
}

// recordLast puts what jobs of a unit used onto berth/status before their records at the runtime
// end, unless it is there. Until the remote takes it, the action waits.
func (c *usageCollector) recordLast(ctx context.Context, prev *plan.Status, jobs []usage.Job) error {
	if err := c.flush(ctx); err != nil {
		return err
	}
	records := c.attributed(prev, jobs)
	if reader, ok := c.repo.(reconciler.UsageReader); ok && len(records) > 0 {
		first := slices.MinFunc(records, func(a, b usage.Record) int { return a.Started.Compare(b.Started) })
		have, err := readUsage(ctx, reader, c.status.Tip(), first.Day(), prev.Key.Tenant)
		if err != nil {
			return err
		}
		if of := have[first.Cluster]; of != nil {
			withdrawn, _ := of.Withdrawn(jobs, "")
			records = append(of.Unrecorded(records), withdrawn...)
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
