package loop_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
)

// actionLog is a runtime that records the id of each action.
type actionLog struct {
	runtimes.Runtime
	mu  *sync.Mutex
	ids *[]string // "id verb member"
}

func newActionLog(w *memory.World) actionLog {
	return actionLog{memory.New(w), new(sync.Mutex), new([]string)}
}

func (l actionLog) Apply(ctx context.Context, c runtimes.Change) error {
	l.mu.Lock()
	*l.ids = append(*l.ids, fmt.Sprintf("%s %s %s", c.Stamp.ActionID, c.Action.Verb, c.Action.Member))
	l.mu.Unlock()
	return l.Runtime.Apply(ctx, c)
}

// sorted returns the actions so far in a fixed order, because independent actions run
// in any order.
func (l actionLog) sorted() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(slices.Values(*l.ids))
}

func (l actionLog) use(o *loop.Options) {
	o.Runtimes = map[string]runtimes.Runtime{"bare_metal": l}
}

// Requirement E2: one revision of an instance is applied once, regardless of further
// observations, restarts and other commits. Each change and each repair has its own
// action ids, also after a change back and forth.
func TestRevisionIsAppliedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log := newActionLog(w.world)
	d := w.start(log.use)
	path := w.run(2)
	once := log.sorted()
	require.Len(t, once, 3, "one create and two joins")
	status := w.status("train")
	for range 3 {
		for range 10 {
			d.does(train)
		}
		commit := w.put(map[string]string{"NOTES.md": fmt.Sprint(time.Now())})
		w.eventually("decided", func() bool { return w.revision().Commit == commit })
		require.NoError(t, d.stop())
		d = w.start(log.use)
		d.ready()
		w.eventually("looked at", func() bool { return len(d.Unsettled()) == 0 })
	}
	require.Equal(t, once, log.sorted())
	again := w.status("train")
	require.Equal(t, []any{status.Revision, status.Digest, status.Attempt}, []any{again.Revision, again.Digest, again.Attempt})

	for _, workers := range []int{3, 2, 3} {
		_, text := instance("train", workers)
		w.put(map[string]string{path: text})
		w.eventually(fmt.Sprint(workers, " workers"), func() bool {
			s := w.status("train")
			return converged(s, workers+1)
		})
	}
	before := w.world.Fingerprint(trainKey)
	for repair := range 2 { // the same fault twice
		require.NoError(t, w.world.SetState(trainKey, "worker-0", plan.Stopped))
		w.eventually("repaired", func() bool { return w.world.Calls("start") == repair+1 && w.phase("train", plan.PhaseRunning)() })
	}
	all := log.sorted()
	require.Equal(t, all, slices.Compact(slices.Clone(all)), "an action id was used twice")
	for _, line := range strings.Split(strings.TrimSpace(before), "\n") {
		require.Contains(t, line, "after 1 starts")
	}
}
