package queueing_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/reconciler/queueing"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/queue"
	"berth/schema/usage"
)

// accounting has the usage of all units, counts its readings, and takes a second of the bubble for each.
type accounting struct {
	mu    sync.Mutex
	asked map[schema.Key]int
	err   error
	used  usage.LiveUsage
}

// read runs in a bubble.
func (a *accounting) read(_ context.Context, unit schema.Key) (usage.LiveUsage, error) {
	a.mu.Lock()
	a.asked[unit]++
	used, err := a.used, a.err
	used.ObservedAt = time.Now()
	a.mu.Unlock()
	time.Sleep(time.Second)
	return used, err
}

var (
	pool   = schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "pool"}
	others = schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "others"}
)

// metering has an accounting with usage of two projects. The project lattice has the instance train and is attached to pool.
func metering() (*accounting, *queueing.Service) {
	v := estate()
	attached := unitOf(schema.EffectiveUnit{Key: pool}, "slurm")
	attached.Attachments = []plan.AttachmentStatus{{ProjectID: "physics.lattice", Phase: plan.AttachmentAttached}}
	left := unitOf(schema.EffectiveUnit{Key: others}, "slurm")
	left.Attachments = []plan.AttachmentStatus{{ProjectID: "physics.lattice", Phase: plan.AttachmentDetached},
		{ProjectID: "physics.collider", Phase: plan.AttachmentAttached}}
	view := schema.EffectiveUnit{Key: schema.InstanceKey("physics", "lattice", "view"), SharedRuntime: "pool"}
	foreign := unitOf(schema.EffectiveUnit{Key: schema.InstanceKey("physics", "collider", "train")}, "slurm")
	v.Units = v.Units.With(attached).With(left).With(unitOf(view, "slurm")).With(foreign)
	a := &accounting{asked: map[schema.Key]int{}, used: usage.LiveUsage{Days: []usage.DaySum{
		{Day: "2026-10-31", ProjectID: "physics.collider", Jobs: 9}, {Day: "2026-10-31", ProjectID: "physics.lattice", Jobs: 1},
		{Day: "2026-10-31", Jobs: 5},
	}}}
	return a, queueing.New(queueing.Options{View: func() (plan.View, bool) { return v, true },
		Stamp: func() (runtimes.Stamp, bool) { return runtimes.Stamp{Epoch: 7}, true }, Usage: a.read})
}

// A project reads its own usage of its own units and of the shared runtimes that it is attached to.
func TestProjectReadsItsOwnUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := metering()
		got, err := s.Usage(t.Context(), as("ada"), false)
		require.NoError(t, err)
		require.Equal(t, map[schema.Key]int{train: 1, pool: 1}, a.asked)
		require.Equal(t, "physics.lattice", got.ProjectID)
		require.Equal(t, []string{train.String(), pool.String()}, []string{got.Items[0].Unit, got.Items[1].Unit})
		for _, item := range got.Items {
			require.Equal(t, []usage.DaySum{{Day: "2026-10-31", ProjectID: "physics.lattice", Jobs: 1}}, item.Days)
		}
		require.Equal(t, 2, got.Items[0].AgeSeconds, "the first unit is read first")
	})
}

// However many people ask in a minute, accounting is read once for each unit, and with live once in ten seconds.
func TestUsageIsReadOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := metering()
		ask := func(n int, live bool) {
			t.Helper()
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() {
					_, err := s.Usage(t.Context(), as("ada"), live)
					require.NoError(t, err)
				})
			}
			wg.Wait()
		}
		count := func(want int) {
			t.Helper()
			require.Equal(t, map[schema.Key]int{train: want, pool: want}, a.asked)
		}
		for range 10 {
			ask(50, false)
			time.Sleep(5 * time.Second)
		}
		count(1)
		time.Sleep(15 * time.Second)
		ask(500, false)
		count(2)
		ask(500, true)
		count(2)
		time.Sleep(10 * time.Second)
		ask(500, true)
		ask(500, true)
		count(3)

		time.Sleep(10 * time.Second)
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { ask(1, true) })
		synctest.Wait()
		got, err := s.Usage(t.Context(), as("ada"), true)
		require.NoError(t, err)
		require.Equal(t, began, got.Items[0].ObservedAt, "it waits for the reading under way")
		wg.Wait()
		count(4)
	})
}

// A unit whose usage cannot be read is in the answer with a reason without names, and without days. Its last good reading
// serves for a minute.
func TestUnreadableUsageHasAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := metering()
		a.err = errors.New("host gpu-1: no route")
		item := func(live bool) usage.UnitUsage {
			got, err := s.Usage(t.Context(), as("ada"), live)
			require.NoError(t, err)
			require.Len(t, got.Items, 2)
			return got.Items[0]
		}
		failed := usage.UnitUsage{Unit: train.String(), AppSlug: "slurm", Reason: "the records of usage cannot be read"}
		require.Equal(t, failed, item(false))
		a.err = nil
		require.Equal(t, failed, item(false), "it is asked once a minute")
		time.Sleep(59 * time.Second)
		require.Len(t, item(false).Days, 1)
		a.err = errors.New("host gpu-1: no route")
		time.Sleep(10 * time.Second)
		require.Equal(t, failed, item(true))
		require.Len(t, item(false).Days, 1)

		a.err, a.used.Reason = nil, "accounting does not answer"
		time.Sleep(time.Minute)
		got := item(false)
		require.Equal(t, "accounting does not answer", got.Reason)
		require.Len(t, got.Days, 1, "as they were written")
		_, err := queueing.New(queueing.Options{View: func() (plan.View, bool) { return plan.View{}, false },
			Stamp: func() (runtimes.Stamp, bool) { return runtimes.Stamp{}, false }}).Usage(t.Context(), as("ada"), false)
		require.ErrorIs(t, err, queue.ErrUnavailable)
	})
}
