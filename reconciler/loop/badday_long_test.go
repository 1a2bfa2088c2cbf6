//go:build long

package loop_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
	"berth/schema"
)

// deaf is a runtime that never answers for some instances.
type deaf struct{ runtimes.Runtime }

func (d deaf) Observe(ctx context.Context, s runtimes.Scope) plan.Observed {
	if strings.HasPrefix(s.Key.Name, "hang") {
		<-ctx.Done()
		return plan.Observed{Key: s.Key, Presence: plan.Unknown, Reason: "the host hangs"}
	}
	return d.Runtime.Observe(ctx, s)
}

// deafAndCounted is deaf and counts concurrent hanging observations.
type deafAndCounted struct {
	deaf
	now, most *atomic.Int64
}

func (d deafAndCounted) Observe(ctx context.Context, s runtimes.Scope) plan.Observed {
	d.most.Store(max(d.most.Load(), d.now.Add(1)))
	defer d.now.Add(-1)
	return d.deaf.Observe(ctx, s)
}

// Requirement E9: with 500 units whose runtime never answers, the number of
// observations and goroutines stays bounded. Neither new commits nor the stop of the daemon
// wait for a unit.
func TestLongLoopStaysBoundedWith500HangingUnits(t *testing.T) {
	w := newWorld(t)
	rt := deafAndCounted{deaf{memory.New(w.world)}, new(atomic.Int64), new(atomic.Int64)}
	before := runtime.NumGoroutine()
	d := w.start(func(o *loop.Options) {
		o.Forge, o.Settings.Observe = nil, 24*time.Hour // an observation outlasts the test
		o.Runtimes = map[string]runtimes.Runtime{"bare_metal": rt}
	})
	files := map[string]string{}
	for i := range 500 {
		path, text := instance(fmt.Sprintf("hang-%03d", i), 0)
		files[path] = text
	}
	commit := w.put(files)
	w.eventually("decided", func() bool { return w.revision().Commit == commit })
	w.eventually("many hang", func() bool { return rt.now.Load() >= 12 })
	commit = w.put(map[string]string{"NOTES.md": "nothing of Berth's\n"})
	w.eventually("the next commit is decided", func() bool { return w.revision().Commit == commit })
	w.eventually("more hang", func() bool { return rt.now.Load() >= 20 })
	require.LessOrEqual(t, runtime.NumGoroutine()-before, 200)
	require.NoError(t, d.stop(), "it waits for no observation")
	require.LessOrEqual(t, rt.most.Load(), int64(4+2*4*16))
	require.Zero(t, rt.now.Load())
	require.Zero(t, w.world.Calls("create"), "a unit with unknown presence is not created")
}

// Hanging units do not delay the observation of other units.
func TestLongHangingUnitsDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.start(func(o *loop.Options) {
		o.Settings.Workers, o.Settings.Observe = 2, 24*time.Hour // a hanging observation outlasts the test
		o.Runtimes = map[string]runtimes.Runtime{"bare_metal": deaf{memory.New(w.world)}}
	})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	files := map[string]string{}
	for i := range 6 {
		path, text := instance(fmt.Sprintf("hang-%d", i), 0)
		files[path] = text
	}
	w.put(files)
	w.eventually("decided", func() bool { return w.status("hang-5") != nil })
	require.NoError(t, w.world.SetState(schema.InstanceKey("physics", "lab", "train"), "worker-0", plan.Stopped))
	w.eventually("repaired", func() bool { return w.world.Calls("start") > 0 })
}
