package loop

import (
	"context"
	"errors"
	"iter"
	"log/slog"
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
	records  []usage.Record
	closings []usage.Closing
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
		b.records, b.closings = append(b.records, batch.Usage...), append(b.closings, batch.Closings...)
	}
	return "tip", b.down
}

func (b *usageBranch) ClosedUsage(context.Context, string) (map[string]string, error) {
	return nil, nil
}

func (b *usageBranch) UsageSince(context.Context, string, string, string) iter.Seq2[usage.Record, error] {
	b.mu.Lock()
	defer b.mu.Unlock()
	records := slices.Clone(b.records)
	return func(yield func(usage.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// hours returns what the branch counts for each day, in hours.
func (b *usageBranch) hours() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	newest := usage.NewRecorded()
	for _, r := range b.records {
		newest.Add(r)
	}
	out := map[string]int64{}
	for part, r := range newest.All() {
		out[part.Day] += r.Elapsed() / 3600
	}
	return out
}

// meterOf is the accounting of a runtime.
type meterOf struct {
	jobs []usage.Job
	at   time.Time
}

func (m *meterOf) Cluster(schema.Key) string { return "c" }

func (m *meterOf) ReadUsage(context.Context, runtimes.Scope, runtimes.Stamp, time.Time) (runtimes.UsageReading, error) {
	return runtimes.UsageReading{Jobs: m.jobs, At: m.at}, nil
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
		return usage.Job{Cluster: "c", JobID: 1, Submitted: at(20), Started: at(from), Ended: at(to), CPUs: 1}
	}
	branch = &usageBranch{}
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
		Presence: plan.Present, Complete: true, Unit: &plan.Unit{Effective: schema.EffectiveUnit{AppSelection: schema.AppSelection{RuntimeBackend: "bare_metal"}}}}}
	unit.BegunOn = "2026-10-30"
	c = &usageCollector{recorder: &recorder{status: w, log: log, now: now}, inForce: newInForce(), repo: branch,
		meters: map[string]runtimes.Meter{"bare_metal": meter}, timeout: time.Minute, opened: map[string]string{}}
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
		require.Equal(t, map[string]int64{"2026-10-30": 2, "2026-10-31": 0}, branch.hours())
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
		require.Equal(t, map[string]int64{"2026-10-30": 2, "2026-10-31": 0}, branch.hours())
		closed := map[string]int64{}
		for _, one := range branch.closings {
			closed[one.Day] = one.CPUs / 3600
		}
		require.Equal(t, branch.hours(), closed)
	})
}
