package loop_test

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
)

// counters returns metrics of a loop, and a function that returns the values of a counter by the values of its labels.
func counters(t *testing.T) (*loop.Metrics, func(name string) map[string]float64) {
	reg := prometheus.NewRegistry()
	return loop.NewMetrics(reg), func(name string) map[string]float64 {
		families, err := reg.Gather()
		require.NoError(t, err)
		out := map[string]float64{}
		for _, f := range families {
			if f.GetName() != name {
				continue
			}
			for _, m := range f.Metric {
				values := ""
				for _, l := range m.Label {
					values += " " + l.GetValue()
				}
				out[values[1:]] = m.GetCounter().GetValue()
			}
		}
		return out
	}
}

// Requirement E11: an attempt to schedule is counted for each unit whose members have no node, when a placement comes into
// force. Placed members are no attempt again.
func TestSchedulingAttemptsAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m, counter := counters(t)
	w.start(func(o *loop.Options) { o.Forge, o.Metrics = nil, m })
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	const name = "scheduling_attempts_total"
	require.Equal(t, map[string]float64{"placed": 1}, counter(name))

	decided := func(files map[string]string) {
		t.Helper()
		commit := w.put(files)
		w.eventually("decided", func() bool { return w.revision().Commit == commit })
	}
	decided(map[string]string{"README.md": "nothing of Berth's\n"})
	require.Equal(t, map[string]float64{"placed": 1}, counter(name))

	path, text = instance("large", 8)
	decided(map[string]string{path: text})
	require.Equal(t, map[string]float64{"placed": 1, "unschedulable": 1}, counter(name))
	decided(map[string]string{"README.md": "nothing again\n"})
	require.Equal(t, map[string]float64{"placed": 1, "unschedulable": 2}, counter(name), "it is tried with each placement")
}

// Requirement E11: each applied action is counted by verb and result, and each retry by what began it.
func TestActionsAndRetriesAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m, counter := counters(t)
	w.forge.let("ada", reconciler.CanWrite)
	d := w.start(func(o *loop.Options) { o.Settings.MaxAttempts, o.Metrics = 1, m })
	pr := w.pull(1, instanceNamed("train", 1))
	w.reviewed(pr)
	gaveUp := func() bool { s := w.status("train"); return s != nil && s.Retry != nil && s.Retry.Terminal }
	const actions, retries = "reconciliation_actions_total", "retry_total"
	w.world.FailStep(1, errors.New("the disk is full"))
	w.merge(pr)
	w.eventually("gave up", gaveUp)
	require.Equal(t, map[string]float64{"create failed": 1}, counter(actions), "a skipped action is not applied")
	require.Empty(t, counter(retries), "the first attempt is none")

	w.comes(w.forge.say(1, "ada", "/berth retry"), reconciler.Accepted)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	require.Equal(t, map[string]float64{"create done": 1, "create failed": 1, "join done": 1}, counter(actions))
	require.Equal(t, map[string]float64{"requested": 1}, counter(retries))
	require.NoError(t, d.stop())
}

// The loop counts a retry that it begins after the delay, and one that an operation asks for.
func TestRetriesAreCountedByKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clock, rt := newManualClock(), newFaulty(w.world)
	m, counter := counters(t)
	rt.broken.Store(true)
	d := w.start(rt.use, func(o *loop.Options) { o.Now, o.Forge, o.Settings.MaxAttempts, o.Metrics = clock.Now, nil, 2, m })
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	failed := func(attempts int) func() bool {
		return func() bool {
			s := w.status("train")
			return s != nil && s.Retry != nil && s.Retry.Attempts == attempts
		}
	}
	w.eventually("failed", failed(1))
	clock.Set(w.status("train").Retry.Next)
	w.eventually("failed again", failed(2))
	require.Equal(t, map[string]float64{"automatic": 1}, counter("retry_total"))
	d.does(train)
	require.Equal(t, map[string]float64{"automatic": 1}, counter("retry_total"), "it gave up")

	rt.broken.Store(false)
	w.ask([3]string{"again", "retry", ""})
	w.operated("again", plan.OperationDone)
	w.eventually("train runs", w.running("train", 1))
	require.Equal(t, map[string]float64{"automatic": 1, "requested": 1}, counter("retry_total"))
}
