package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/reconciler"
	"berth/reconciler/fair"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/usage"
)

// usageCollector writes what jobs used to berth/status while their units run, and closes days.
//
// It remembers nothing: the last closing of a cluster says which day is the first open one, and all days
// from then on are read from accounting and written whole. A day that is over is closed in the commit that
// writes it, so nothing that came late is missing. usage.Book says how a closed day is corrected.
type usageCollector struct {
	*recorder
	inForce  *inForce
	repo     reconciler.Repo
	meters   map[string]runtimes.Meter // by runtime_backend
	interval time.Duration
	timeout  time.Duration // of one unit
	// writing has a chan struct{} for each cluster, full from reading the branch and accounting until the days
	// are on the remote: a collection that read before a removal must not write after it.
	writing sync.Map
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
		if !sleep(ctx, wait) {
			return
		}
	}
}

// collect reads all units that run, one after the other. Tenants take turns.
func (c *usageCollector) collect(ctx context.Context) error {
	if err := c.flush(ctx); err != nil {
		return err
	}
	closed, err := c.repo.(reconciler.UsageReader).ClosedUsage(ctx, c.status.Tip())
	if err != nil {
		return fmt.Errorf("read which days are closed: %w", err)
	}
	for units := inTurns(c.status.Units()); units.Len() > 0; {
		prev := units.Pop()
		meter, ok := c.meterOf(prev)
		if !ok {
			continue
		}
		m := metered{prev: prev, cluster: meter.Cluster(prev.Key)}
		// The accounting of a unit that was created again under its name has nothing of the days before.
		m.first = max(dayAfter(closed[m.cluster]), prev.BegunOn)
		if err := c.collectUnit(ctx, m, meter); err != nil && ctx.Err() == nil {
			log := c.unitLog(prev)
			if errors.Is(err, runtimes.ErrWaiting) {
				log.Info("usage of a unit not collected yet", "reason", err.Error(), "again_in", c.interval)
			} else {
				log.Warn("usage of a unit not collected", "error", err, "again_in", c.interval)
			}
		}
	}
	return ctx.Err()
}

// inTurns returns the units of all tenants.
func inTurns(memory plan.Memory) *fair.Queue[*plan.Status] {
	units := fair.NewQueue(func(s *plan.Status) string { return s.Key.Tenant })
	for _, s := range memory.All() {
		units.Push(s)
	}
	return units
}

// flush returns once the branch has the usage that was read before: a day is written by what the branch has of it.
func (c *usageCollector) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	if err := c.status.FlushUsage(ctx); err != nil {
		return fmt.Errorf("the usage that was read before is not recorded: %w: %w", err, runtimes.ErrWaiting)
	}
	return nil
}

// meterOf returns the meter of a unit whose usage is collected.
func (c *usageCollector) meterOf(prev *plan.Status) (m runtimes.Meter, ok bool) {
	o := prev.Observed
	if !isComplete(o) || prev.Phase == plan.PhaseStopped || o.Unit == nil || o.Unit.Effective.SharedRuntime != "" {
		return nil, false
	}
	m, ok = c.meters[o.Unit.Effective.RuntimeBackend]
	return m, ok
}

// lock locks the days of a cluster until unlock.
func (c *usageCollector) lock(ctx context.Context, cluster string) (unlock func(), err error) {
	of, _ := c.writing.LoadOrStore(cluster, make(chan struct{}, 1))
	held := of.(chan struct{})
	select {
	case held <- struct{}{}:
		return func() { <-held }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dayAfter returns the day after one, and dayBefore the day before; "" of "".
func dayAfter(day string) string  { return shiftDay(day, 1) }
func dayBefore(day string) string { return shiftDay(day, -1) }

func shiftDay(day string, by int) string {
	at, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return ""
	}
	return at.AddDate(0, 0, by).Format(time.DateOnly)
}

// metered is a unit with what is recorded of it.
type metered struct {
	prev    *plan.Status
	cluster string
	first   string // first open day; "": no day is closed
}

// collectUnit writes the open days of a unit, and closes those that are over.
func (c *usageCollector) collectUnit(ctx context.Context, m metered, meter runtimes.Meter) error {
	ctx, cancel := context.WithTimeout(runtimes.WithTenant(ctx, m.prev.Key.Tenant), c.timeout)
	defer cancel()
	unlock, err := c.lock(ctx, m.cluster)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.flush(ctx); err != nil {
		return err
	}
	open, err := c.readOpenDays(ctx, m, meter, false)
	if err != nil {
		return err
	}
	if m.first == "" {
		m.first = open.at.UTC().Format(time.DateOnly)
		for date := range open.days {
			m.first = min(m.first, date)
		}
	}
	scope, stamp := c.address(m.prev)
	closings, waits := c.close(m, open.days, c.over(open.at), func(day time.Time) (usage.DayReport, bool, error) {
		return meter.AccountedDay(ctx, scope, stamp, day)
	})
	return cmp.Or(c.record(ctx, open.changed, closings), waits)
}

// address returns how a runtime is asked about a unit.
func (c *usageCollector) address(prev *plan.Status) (runtimes.Scope, runtimes.Stamp) {
	epoch, leader := c.status.Leadership()
	stamp := runtimes.Stamp{Epoch: epoch, Leader: leader, Commit: prev.Revision, CorrelationID: prev.CorrelationID}
	return newView(c.inForce.current(), prev, c.now()).scope(), stamp
}

// openReading is a reading of the open days of a unit.
type openReading struct {
	at      time.Time // of the runtime's clock
	days    map[string][]usage.Record
	changed []usage.Day // those that differ from the branch
}

// readOpenDays reads the open days of a unit; toNow is that of runtimes.UsageRange. It has no effect.
func (c *usageCollector) readOpenDays(ctx context.Context, m metered, meter runtimes.Meter, toNow bool) (o openReading, err error) {
	scope, stamp := c.address(m.prev)
	first, _ := time.Parse(time.DateOnly, m.first) // zero if it is unknown
	reading, err := meter.ReadUsage(ctx, scope, stamp, runtimes.UsageRange{Since: first, ToNow: toNow})
	if err != nil {
		return openReading{}, err
	}
	o.at = reading.At
	o.days, o.changed, err = c.openDays(ctx, m, reading.Jobs, func(since time.Time) ([]usage.Job, error) {
		longer, err := meter.ReadUsage(ctx, scope, stamp, runtimes.UsageRange{Since: since, ToNow: toNow})
		return longer.Jobs, err
	})
	return o, err
}

// record writes days and closings.
func (c *usageCollector) record(ctx context.Context, days []usage.Day, closings []usage.Closing) error {
	if err := c.status.RecordUsage(ctx, days, closings); err != nil {
		return fmt.Errorf("the usage of %d days is not recorded: %w: %w", len(days), err, runtimes.ErrWaiting)
	}
	return nil
}

// startDelay is longer than the start of a job takes to reach accounting: a scheduler may keep it for some seconds.
const startDelay = time.Minute

// over returns the time before which a day is over: by the clock of the runtime and by that of Berth. If one
// of them is wrong, no day closes that lies ahead.
func (c *usageCollector) over(at time.Time) time.Time {
	if now := c.now().UTC(); now.Before(at) {
		at = now
	}
	return at.UTC().Add(-startDelay)
}

// openDays returns the records of the open days of a unit, and those days that differ from the branch. jobs are
// of a reading of these days; longer reads all days since a time.
func (c *usageCollector) openDays(ctx context.Context, m metered, jobs []usage.Job, longer func(since time.Time) ([]usage.Job, error)) (
	days map[string][]usage.Record, changed []usage.Day, err error,
) {
	book := usage.Book{First: m.first, Now: c.attributed(m.prev, jobs)}
	if book.Have, err = c.recorded(ctx, m, dayBefore(m.first)); err != nil {
		return nil, nil, err
	}
	if runs, since := book.Missing(); len(runs) > 0 {
		more, err := longer(since)
		if err != nil {
			return nil, nil, err
		}
		more = slices.DeleteFunc(slices.Clone(more), func(j usage.Job) bool { return !runs[j.Run()] })
		book.Now = append(book.Now, c.attributed(m.prev, more)...)
	}
	var closed []usage.Record
	if runs, since := book.Ended(); len(runs) > 0 {
		if closed, err = c.recorded(ctx, m, since.UTC().Format(time.DateOnly)); err != nil {
			return nil, nil, err
		}
	}
	days = book.OpenDays(closed)
	had := map[string][]usage.Record{}
	for _, r := range book.Have {
		had[r.Day] = append(had[r.Day], r)
	}
	for _, date := range slices.Sorted(maps.Keys(days)) {
		d := usage.Day{Tenant: m.prev.Key.Tenant, Cluster: m.cluster, Date: date, Records: days[date]}
		isSame, err := d.Equal(had[date])
		if err != nil {
			return nil, nil, err
		}
		if !isSame {
			changed = append(changed, d)
		}
	}
	return days, changed, nil
}

// recorded reads the records of a unit of a day and later. It fails if one cannot be read: accounting may have
// it no longer, and the day is written by what is read.
func (c *usageCollector) recorded(ctx context.Context, m metered, first string) (all []usage.Record, err error) {
	for rec, err := range c.recordsOf(ctx, m, first) {
		if err != nil {
			return nil, err
		}
		all = append(all, rec)
	}
	return all, ctx.Err()
}

// recordsOf yields the records of a unit of a day and later, in order of days.
func (c *usageCollector) recordsOf(ctx context.Context, m metered, first string) iter.Seq2[usage.Record, error] {
	return func(yield func(usage.Record, error) bool) {
		for rec, err := range c.repo.(reconciler.UsageReader).UsageOf(ctx, c.status.Tip(), m.prev.Key.Tenant, m.cluster, first) {
			if err != nil {
				err = fmt.Errorf("records of usage on %s are unreadable: %w", reconciler.BranchStatus, err)
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// close returns the closings of days before at that accounting has added up, in their order, and why the next
// one is not closed; nil: it is not over, or it waits for accounting.
func (c *usageCollector) close(
	m metered, days map[string][]usage.Record, at time.Time, accounted func(time.Time) (usage.DayReport, bool, error),
) (closings []usage.Closing, waits error) {
	for date := m.first; date < at.Format(time.DateOnly); date = dayAfter(date) {
		day, err := time.Parse(time.DateOnly, date)
		if err != nil {
			return closings, err
		}
		report, ok, err := accounted(day)
		if err != nil || !ok {
			return closings, err
		}
		closing := usage.Closing{Cluster: m.cluster, Day: date, Accounted: report.CPUs, Unused: report.Unused}
		closing.Count(days[date])
		c.attribute(m.prev, &closing)
		closings = append(closings, closing)
	}
	return closings, nil
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
	queueMaps := c.inForce.current().Desired.QueueMaps()
	records := make([]usage.Record, 0, len(jobs))
	for _, j := range jobs {
		if of, _, _ := strings.Cut(j.ProjectID, "."); prev.Key.Tenant != "" && of != prev.Key.Tenant {
			j.ProjectID = "" // an account that somebody made there: a tenant's unit bills its own tenant only
		}
		rec := usage.New(prev.Key, unit, j, attachments)
		tenant, project, _ := strings.Cut(rec.ProjectID, ".")
		rec.Queue = schema.QueueMapAmong(queueMaps, prev.App, tenant, project).QueueOf(rec.Partition, rec.QoS)
		records = append(records, rec)
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

// recordLast puts what jobs of a unit used onto berth/status before their records at the runtime
// end. Until the remote takes it, the action waits. Accounting has jobs of this unit only, so days before it
// began count as open, too.
func (c *usageCollector) recordLast(ctx context.Context, prev *plan.Status, jobs []usage.Job) error {
	reader, ok := c.repo.(reconciler.UsageReader)
	if !ok || len(jobs) == 0 {
		return nil
	}
	cluster := jobs[0].Cluster
	unlock, err := c.lock(ctx, cluster)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.flush(ctx); err != nil {
		return err
	}
	closed, err := reader.ClosedUsage(ctx, c.status.Tip())
	if err != nil {
		return fmt.Errorf("read which days are closed: %w", err)
	}
	m := metered{prev: prev, cluster: cluster, first: dayAfter(closed[cluster])}
	_, changed, err := c.openDays(ctx, m, jobs, func(time.Time) ([]usage.Job, error) { return nil, nil })
	if err != nil {
		return err
	}
	flush, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	return c.record(flush, changed, nil)
}

// openSince returns the first day of a unit whose usage is not closed on berth/status, or in words that it is unknown.
func (c *usageCollector) openSince(ctx context.Context, prev *plan.Status) string {
	const start = "its start"
	reader, ok := c.repo.(reconciler.UsageReader)
	meter := c.meters[prev.RuntimeBackend]
	if !ok || meter == nil {
		return start
	}
	closed, err := reader.ClosedUsage(ctx, c.status.Tip())
	if err != nil {
		return "an unknown day (" + err.Error() + ")"
	}
	return cmp.Or(dayAfter(closed[meter.Cluster(prev.Key)]), prev.BegunOn, start)
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
