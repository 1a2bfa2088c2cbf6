package loop_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
	"berth/schema"
)

// manualClock is a clock that moves only when the test advances it.
type manualClock struct {
	start  time.Time
	passed atomic.Int64
}

func newManualClock() *manualClock {
	return &manualClock{start: time.Now().UTC().Truncate(time.Second)}
}

func (c *manualClock) Now() time.Time { return c.start.Add(time.Duration(c.passed.Load())) }

func (c *manualClock) Set(t time.Time) { c.passed.Store(int64(t.Sub(c.start))) }

// faulty is a runtime whose actions fail while broken is set. It counts creations.
type faulty struct {
	runtimes.Runtime
	broken  *atomic.Bool
	creates *atomic.Int64
}

func newFaulty(w *memory.World) faulty {
	return faulty{memory.New(w), new(atomic.Bool), new(atomic.Int64)}
}

func (f faulty) Apply(ctx context.Context, c runtimes.Change) error {
	if c.Action.Verb == plan.Create {
		f.creates.Add(1)
	}
	if f.broken.Load() {
		return errors.New("disk of the host is full")
	}
	return f.Runtime.Apply(ctx, c)
}

// use is a tune that makes f the daemon's only runtime.
func (f faulty) use(o *loop.Options) {
	o.Runtimes = map[string]runtimes.Runtime{"bare_metal": f}
}

func conditionOf(s *plan.Status, typ plan.ConditionType) plan.Condition {
	if c := s.Condition(typ); c != nil {
		return *c
	}
	return plan.Condition{}
}

// failsOnce is a runtime whose first action fails. It notes the time of each action.
type failsOnce struct {
	runtimes.Runtime
	at *[]time.Time
}

func (f failsOnce) Apply(ctx context.Context, c runtimes.Change) error {
	if *f.at = append(*f.at, time.Now()); len(*f.at) == 1 {
		return errors.New("disk of the host is full")
	}
	return f.Runtime.Apply(ctx, c)
}

// The loop retries a failed unit by itself once the delay is over, and not earlier.
func TestFailedUnitIsRetriedWithoutATrigger(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		rt := failsOnce{memory.New(w.world), new([]time.Time)}
		path, text := instance("train", 0)
		w.put(map[string]string{path: text})
		w.start(func(o *loop.Options) {
			o.Settings.Interval, o.Settings.Poll = time.Hour, time.Hour
			o.Runtimes, o.Forge = map[string]runtimes.Runtime{"bare_metal": rt}, nil
		})
		w.eventually("failed", w.phase("train", plan.PhaseFailed))
		w.eventually("running", w.phase("train", plan.PhaseRunning))
		require.Len(t, *rt.at, 2)
		delay := (*rt.at)[1].Sub((*rt.at)[0])
		require.GreaterOrEqual(t, delay, 4*time.Second, "5 s from the begin of the second")
		require.LessOrEqual(t, delay, 6*time.Second, "and up to one more, so that not all units are retried together")
	})
}

// stepped is a runtime that starts each action only on a signal of the test.
type stepped struct {
	runtimes.Runtime
	broken *atomic.Bool
	next   chan struct{} // one receive per action
}

func (h stepped) Apply(ctx context.Context, c runtimes.Change) error {
	select {
	case <-h.next:
	case <-ctx.Done():
		return ctx.Err()
	}
	if h.broken.Load() {
		return errors.New("no such device")
	}
	return h.Runtime.Apply(ctx, c)
}

// Requirement A5: the loop takes an instance through every phase. Each phase is
// visible on berth/status while it lasts.
func TestLoopReachesEveryPhase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clock := newManualClock()
	rt := stepped{memory.New(w.world), new(atomic.Bool), make(chan struct{})}
	d := w.start(func(o *loop.Options) {
		o.Now, o.Forge = clock.Now, nil
		o.Runtimes = map[string]runtimes.Runtime{"bare_metal": rt}
	})
	// until releases actions until the phase is p.
	until := func(p plan.Phase) {
		t.Helper()
		reached := w.phase("train", p)
		if p == plan.PhaseDeleted {
			reached = func() bool { return w.status("train") == nil }
		}
		w.eventually(string(p), func() bool {
			if reached() {
				return true
			}
			select {
			case rt.next <- struct{}{}:
			default: // no action waits
			}
			return false
		})
	}
	path, text := instance("train", 1)
	w.put(map[string]string{path: "suspend: true\n" + text})
	w.eventually("requested", w.phase("train", plan.PhaseRequested))

	w.put(map[string]string{path: text})
	w.eventually("deploying", w.phase("train", plan.PhaseDeploying))
	require.Equal(t, plan.PhaseDeploying, w.status("train").Phase)
	require.Empty(t, w.world.Remains(trainKey), "the phase is recorded before the first host action")

	rt.broken.Store(true)
	until(plan.PhaseFailed)
	s := w.status("train")
	require.Equal(t, "create : no such device", s.FailureReason)
	require.Equal(t, plan.Condition{Type: "Ready", Status: "False", Reason: "Failed", Message: s.FailureReason, Revision: s.Revision},
		conditionOf(s, "Ready"))

	rt.broken.Store(false)
	clock.Set(s.Retry.Next)
	d.Enqueue(reconciler.Item{Task: reconciler.TaskUnit, Unit: trainKey})
	until(plan.PhaseRunning)
	require.Empty(t, w.status("train").FailureReason)

	_, text = instance("train", 2)
	w.put(map[string]string{path: text})
	w.eventually("updating", w.phase("train", plan.PhaseUpdating))
	until(plan.PhaseRunning)

	w.put(map[string]string{path: text + "  desired_state: stopped\n"})
	until(plan.PhaseStopped)
	w.put(nil, path)
	w.eventually("deleting", w.phase("train", plan.PhaseDeleting))
	until(plan.PhaseDeleted)

	require.Equal(t, []string{"requested", "failed", "running", "running", "deleting", "deleted"}, w.eventTypes())
	w.noEventTwice()
	require.Empty(t, w.world.Remains(schema.InstanceKey("physics", "lab", "train")))
}

// Requirement E1: by default the loop observes a unit every 5 s.
func TestUnitIsObservedEveryFiveSeconds(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		rt := stamped{memory.New(w.world), new(sync.Mutex), new([]time.Time)}
		path, text := instance("train", 1)
		w.put(map[string]string{path: text})
		w.start(func(o *loop.Options) {
			o.Settings.Interval, o.Settings.Poll = 0, time.Hour
			o.Runtimes, o.Forge = map[string]runtimes.Runtime{"bare_metal": rt}, nil
		})
		w.eventually("running", w.phase("train", plan.PhaseRunning))
		time.Sleep(time.Minute)
		rt.mu.Lock()
		defer rt.mu.Unlock()
		require.GreaterOrEqual(t, len(*rt.at), 12, "observations of a minute")
		last := (*rt.at)[len(*rt.at)-12:]
		for i := range last[1:] {
			require.Equal(t, 5*time.Second, last[i+1].Sub(last[i]))
		}
		require.Less(t, time.Since(last[11]), 5*time.Second)
	})
}

// stamped is a runtime that records the time of each observation.
type stamped struct {
	runtimes.Runtime
	mu *sync.Mutex
	at *[]time.Time
}

func (s stamped) Observe(ctx context.Context, sc runtimes.Scope) plan.Observed {
	s.mu.Lock()
	*s.at = append(*s.at, time.Now())
	s.mu.Unlock()
	return s.Runtime.Observe(ctx, sc)
}

// A repair by a person shows in the next observation, and the smaller plan is tried at once. The delay of requirement
// E6 stays for a plan that did not become smaller.
func TestRepairByAPersonDoesNotWaitForTheNextAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clock, rt := newManualClock(), newFaulty(w.world)
	d := w.start(rt.use, func(o *loop.Options) {
		o.Now, o.Forge, o.Settings.Interval = clock.Now, nil, 10*time.Millisecond
	})
	path, text := instance("train", 2)
	w.put(map[string]string{path: text})
	w.eventually("running", w.phase("train", plan.PhaseRunning))

	rt.broken.Store(true)
	state := func(member string, s plan.State) { require.NoError(t, w.world.SetState(trainKey, member, s)) }
	failed := func(attempts int) func() bool {
		return func() bool {
			s := w.status("train")
			return s.Retry != nil && s.Retry.Attempts == attempts
		}
	}
	state("worker-0", plan.Stopped)
	state("worker-1", plan.Stopped)
	w.eventually("failed", failed(1))
	d.does(train)
	require.Equal(t, 1, w.status("train").Retry.Attempts, "the same attempt waits")

	state("worker-0", plan.Running)
	w.eventually("the smaller plan is tried, and fails", failed(2))
	state("worker-1", plan.Running)
	w.eventually("nothing is left to try", func() bool { return w.status("train").Retry == nil })
	require.Equal(t, plan.PhaseRunning, w.status("train").Phase)
}
