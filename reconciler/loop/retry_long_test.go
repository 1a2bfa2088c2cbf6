//go:build long

package loop_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
)

// Requirement E6: retries wait 5 s, doubling up to 120 s; the tenth failure is the
// last attempt until the revision changes. The state is on berth/status, so a restart
// with an empty cache continues it.
func TestLongRetriesDoubleAndEndAfterTenTries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clock, rt := newManualClock(), newFaulty(w.world)
	rt.broken.Store(true)
	start := func() *daemon {
		return w.start(rt.use, func(o *loop.Options) { o.Now, o.Forge = clock.Now, nil })
	}
	d := start()
	look := func() { d.Enqueue(reconciler.Item{Task: reconciler.TaskUnit, Unit: trainKey}) }
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})

	for try, delay := range []int{5, 10, 20, 40, 80, 120, 120, 120, 120} {
		attempts := try + 1
		w.eventually(fmt.Sprint("failure recorded ", attempts), func() bool {
			s := w.status("train")
			return s != nil && s.Retry != nil && s.Retry.Attempts == attempts
		})
		s := w.status("train")
		require.Equal(t, time.Duration(delay)*time.Second, s.Retry.Next.Sub(clock.Now()), "delay after attempt %d", attempts)
		require.False(t, s.Retry.Terminal)
		require.Contains(t, s.Retry.Reason, "disk of the host is full")
		require.Equal(t, plan.PhaseFailed, s.Phase)
		require.Equal(t, plan.ReasonProgressingWithRetry, conditionOf(s, "Reconciling").Reason)
		if attempts == 2 || attempts == 7 {
			require.NoError(t, d.stop())
			d = start()
			d.ready()
		}
		if attempts == 2 || attempts == 6 { // one second too early
			clock.Set(s.Retry.Next.Add(-time.Second))
			d.does(train)
			d.does(train)
			require.EqualValues(t, attempts, rt.creates.Load(), "attempt before its time")
		}
		clock.Set(s.Retry.Next)
		look()
	}

	terminal := func() bool { s := w.status("train"); return s.Retry != nil && s.Retry.Terminal }
	w.eventually("given up", terminal)
	for _, restarted := range []bool{false, true} {
		if restarted {
			require.NoError(t, d.stop())
			d = start()
			d.ready()
		}
		clock.Set(clock.Now().Add(time.Hour))
		d.does(train)
		d.does(train)
		d.written()
		require.EqualValues(t, 10, rt.creates.Load(), "attempt after the last one")
		s := w.status("train")
		require.Equal(t, 10, s.Retry.Attempts)
		require.Equal(t, plan.ReasonRetriesExhausted, conditionOf(s, "Stalled").Reason)
	}
	failures := slices.DeleteFunc(w.eventTypes(), func(typ string) bool { return typ != "failed" })
	require.Len(t, failures, 1, "the retries of one failure are one event")

	// A new revision starts again with all ten attempts.
	_, text = instance("train", 2)
	w.put(map[string]string{path: text})
	w.eventually("tried again", func() bool {
		s := w.status("train")
		return s.Retry != nil && s.Retry.Attempts == 1 && !s.Retry.Terminal
	})
	rt.broken.Store(false)
	clock.Set(w.status("train").Retry.Next)
	look()
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	require.Nil(t, w.status("train").Retry)
	require.EqualValues(t, 12, rt.creates.Load())
}
