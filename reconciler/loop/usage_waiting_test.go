package loop

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/usage"
)

// usageBranch keeps what is written to berth/status about usage. While it is down, nothing is written.
type usageBranch struct {
	reconciler.Repo // the collector calls no other method

	mu       sync.Mutex
	down     error
	days     map[string][]usage.Record
	closings []usage.Closing
	writes   int
	damaged  error             // of the records
	reads    []string          // first day of each reading of records
	closed   map[string]string // last closed day by cluster
}

func (b *usageBranch) setDown(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = err
}

func (b *usageBranch) Fetch(context.Context) (reconciler.Tips, error) { return reconciler.Tips{}, nil }

func (b *usageBranch) ReadStatus(context.Context, string) (reconciler.StatusTree, error) {
	return reconciler.StatusTree{}, nil
}

func (b *usageBranch) AuditTail(context.Context, string, time.Time, int) ([]audit.Line, error) {
	return nil, nil
}

func (b *usageBranch) WriteStatus(_ context.Context, _ string, batch reconciler.StatusBatch) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down == nil {
		for _, d := range batch.Usage {
			b.days[d.Date] = d.Records
		}
		b.closings, b.writes = append(b.closings, batch.Closings...), b.writes+1
	}
	return "tip", b.down
}

func (b *usageBranch) ClosedUsage(context.Context, string) (map[string]string, error) {
	return b.closed, nil
}

func (b *usageBranch) UsageOf(_ context.Context, _, _, _, first string) iter.Seq2[usage.Record, error] {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads = append(b.reads, first)
	days, damaged := maps.Clone(b.days), b.damaged
	return func(yield func(usage.Record, error) bool) {
		if damaged != nil && !yield(usage.Record{}, damaged) {
			return
		}
		for _, day := range slices.Sorted(maps.Keys(days)) {
			for _, r := range days[day] {
				if day >= first && !yield(r, nil) {
					return
				}
			}
		}
	}
}

// hours returns what the branch counts for each day, in hours.
func (b *usageBranch) hours() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]int64{}
	for day, records := range b.days {
		for _, r := range records {
			out[day] += r.CPUSeconds / 3600
		}
	}
	return out
}

// meterOf is the accounting of a runtime.
type meterOf struct {
	jobs    []usage.Job
	running []usage.Job // have used this until at
	at      time.Time
	err     error
	asked   int
}

func (m *meterOf) Cluster(schema.Key) string { return "c" }

func (m *meterOf) ReadUsage(_ context.Context, _ runtimes.Scope, _ runtimes.Stamp, r runtimes.UsageRange) (runtimes.UsageReading, error) {
	m.asked++
	reading := runtimes.UsageReading{Jobs: m.jobs, At: m.at}
	if r.ToNow {
		reading.Jobs = slices.Concat(m.jobs, m.running)
	}
	return reading, m.err
}

func (m *meterOf) AccountedDay(_ context.Context, _ runtimes.Scope, _ runtimes.Stamp, day time.Time) (usage.DayReport, bool, error) {
	return usage.DayReport{}, m.at.After(usage.NextDay(day)), nil
}

// waitingUsage has the reading of a job on two days, of which the branch has nothing yet as it is down. The job was
// lost: by a later reading it ended on the first day.
func waitingUsage(t *testing.T) (branch *usageBranch, c *usageCollector, meter *meterOf, unit *plan.Status, later []usage.Job) {
	day := time.Date(2026, 10, 30, 0, 0, 0, 0, time.UTC)
	job := func(from, to int) usage.Job {
		at := func(hours int) time.Time { return day.Add(time.Duration(hours) * time.Hour) }
		return usage.Job{Cluster: "c", JobID: 1, Submitted: at(20), Started: at(from), Ended: at(to), Resources: usage.Resources{CPUs: 1}}
	}
	branch = &usageBranch{days: map[string][]usage.Record{}}
	meter = &meterOf{jobs: []usage.Job{job(20, 24), job(24, 30)}, at: day.Add(31 * time.Hour)}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	now := func() time.Time { return meter.at }
	w := status.NewWriter(status.Options{Repo: branch, Window: time.Second, Log: log, Now: now})
	require.NoError(t, w.Lead(t.Context()))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })
	unit = &plan.Status{Key: schema.InstanceKey("physics", "lab", "train"), Phase: plan.PhaseRunning, Observed: &plan.Observed{
		Presence: plan.Present, Complete: true,
		Unit: &plan.Unit{Effective: schema.EffectiveUnit{AppSelection: schema.AppSelection{RuntimeBackend: "bare_metal"}}}}}
	unit.BegunOn = "2026-10-30"
	c = &usageCollector{recorder: &recorder{status: w, log: log, now: now}, inForce: newInForce(NewMetrics(nil)), repo: branch,
		meters: map[string]runtimes.Meter{"bare_metal": meter}, timeout: time.Minute}
	c.inForce.set(&reconciler.State{Effective: &schema.Effective{}, Desired: &schema.Desired{}})
	branch.setDown(errors.New("the remote is down"))
	require.ErrorIs(t, c.recordLast(t.Context(), unit, meter.jobs), runtimes.ErrWaiting)
	return branch, c, meter, unit, []usage.Job{job(20, 22)}
}

// What a removal records last is compared with all that was read before, also with what the remote did not have
// yet: the sums are those of the last reading, as the accounting of the unit has them.
func TestUsageBeforeRemovalCorrectsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		branch, c, _, unit, later := waitingUsage(t)
		ended := make(chan error)
		go func() { ended <- c.recordLast(t.Context(), unit, later) }()
		synctest.Wait()
		branch.setDown(nil)
		require.NoError(t, c.status.Fetched(t.Context(), "tip")) // a fetch shows that the remote answers again
		require.NoError(t, <-ended)
		require.Equal(t, map[string]int64{"2026-10-30": 2}, branch.hours())
	})
}

// A collection waits likewise. The closing of a day counts what the branch has of it.
func TestCollectionCorrectsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		branch, c, meter, unit, later := waitingUsage(t)
		_, ok := c.status.SetUnit(nil, *unit)
		require.True(t, ok)
		meter.jobs, meter.at = later, meter.at.Add(24*time.Hour)
		ended := make(chan error)
		go func() { ended <- c.collect(t.Context()) }()
		synctest.Wait()
		branch.setDown(nil)
		require.NoError(t, c.status.Fetched(t.Context(), "tip")) // a fetch shows that the remote answers again
		require.NoError(t, <-ended)
		require.Equal(t, map[string]int64{"2026-10-30": 2}, branch.hours())
		closed := map[string]int64{}
		for _, one := range branch.closings {
			closed[one.Day] = one.CPUs / 3600
		}
		require.Equal(t, map[string]int64{"2026-10-30": 2, "2026-10-31": 0}, closed)
	})
}

// A reading that says what the branch has makes no commit. Nothing is read of a stopped unit.
func TestSameUsageMakesNoCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		branch, c, meter, unit, _ := waitingUsage(t)
		branch.setDown(nil)
		require.NoError(t, c.status.Fetched(t.Context(), "tip"))
		require.NoError(t, c.status.Flush(t.Context()))
		meter.at = meter.at.Add(-24 * time.Hour) // no day is over
		_, ok := c.status.SetUnit(nil, *unit)
		require.True(t, ok)
		require.NoError(t, c.status.Flush(t.Context()))
		writes := branch.writes
		require.NoError(t, c.collect(t.Context()))
		require.Equal(t, 1, meter.asked)
		require.Equal(t, writes, branch.writes)

		stopped := *unit
		stopped.Phase = plan.PhaseStopped
		_, ok = c.status.SetUnit(c.status.Unit(unit.Key), stopped)
		require.True(t, ok)
		require.NoError(t, c.collect(t.Context()))
		require.Equal(t, 1, meter.asked)
	})
}

// A day whose records cannot be read is not replaced: accounting may have them no longer.
func TestUnreadableUsageIsNotReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		branch, c, meter, unit, later := waitingUsage(t)
		branch.setDown(nil)
		require.NoError(t, c.status.Fetched(t.Context(), "tip"))
		require.NoError(t, c.status.Flush(t.Context()))
		before := branch.hours()
		meter.jobs, branch.damaged = later, errors.New("usage/2026-10-30/physics/c.jsonl:1: not a usage record")
		err := c.collectUnit(t.Context(), metered{prev: unit, cluster: "c", first: "2026-10-30"}, meter)
		require.ErrorIs(t, err, branch.damaged)
		require.Equal(t, before, branch.hours())
	})
}

// A collection that reads while a removal records its last usage waits for it: what it reads then is not older
// than what it replaces.
func TestCollectionWaitsForARemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		branch, c, meter, unit, _ := waitingUsage(t)
		branch.setDown(nil)
		require.NoError(t, c.status.Fetched(t.Context(), "tip"))
		unlock, err := c.lock(t.Context(), "c")
		require.NoError(t, err)
		ended := make(chan error)
		go func() {
			ended <- c.collectUnit(t.Context(), metered{prev: unit, cluster: "c", first: "2026-10-30"}, meter)
		}()
		synctest.Wait()
		require.Zero(t, meter.asked)
		unlock()
		require.NoError(t, <-ended)
		require.Equal(t, 1, meter.asked)
	})
}

// Requirement E9: the units of one tenant delay the collection from those of others by one turn each.
func TestTenantsTakeTurnsInTheCollection(t *testing.T) {
	var units []*plan.Status
	add := func(tenant string, n int) {
		for i := range n {
			units = append(units, &plan.Status{Key: schema.InstanceKey(tenant, "p", fmt.Sprint(i))})
		}
	}
	const others, each = 20, 5
	add("large", 10_000)
	for i := range others {
		add(fmt.Sprint("other-", i), each)
	}
	left := others * each
	queue := inTurns(plan.Remember(units...))
	require.Equal(t, 10_000+left, queue.Len())
	for n := 1; left > 0; n++ {
		if queue.Pop().Key.Tenant != "large" {
			left--
		}
		require.LessOrEqual(t, n, (others+1)*each)
	}
}
