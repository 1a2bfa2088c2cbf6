//go:build long

package loop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
)

// brittle is a runtime that cannot start one member.
type brittle struct {
	runtimes.Runtime
	member string
}

func (b brittle) Apply(ctx context.Context, c runtimes.Change) error {
	if c.Action.Verb == plan.Start && c.Action.Member == b.member {
		return errors.New("the GPU is broken")
	}
	return b.Runtime.Apply(ctx, c)
}

// A decision and the statuses that follow from it become visible together. No worker
// records the previous life of an instance under its new revision.
func TestLongManyDeletionsSendEachEventOnce(t *testing.T) {
	t.Parallel()
	const n = 60
	w := newWorld(t)
	files := map[string]string{}
	var paths []string
	for i := range n {
		path, text := instance(fmt.Sprintf("i%03d", i), 0)
		files[path] = strings.Replace(text, "worker: {count: 0, gpus: {type: a100, count: 2}}", "worker: {count: 0}", 1)
		paths = append(paths, path)
	}
	w.put(files)
	w.start(func(o *loop.Options) {
		o.Settings.Interval, o.Settings.Poll, o.Forge = 20*time.Millisecond, time.Second, nil
	})
	units := func() plan.Memory {
		return w.tree().Units
	}
	w.eventually("all run", func() bool {
		running := 0
		for _, s := range units().All() {
			if s.Phase == plan.PhaseRunning {
				running++
			}
		}
		return running == n
	})
	w.put(nil, paths...)
	w.eventually("deletions above the limit held", func() bool { return len(w.revision().Held) == n })
	require.Equal(t, n, units().Len())
	why := w.revision().Held[0].Message
	w.git.MustCommit(t, "main", gittest.Commit{Message: "It is meant.\n\n" + why[strings.LastIndex(why, decide.AckTrailer):],
		Files: map[string]string{"NOTES.md": "x"}})
	w.eventually("every unit removed", func() bool { return units().Len() == 0 })
	w.noEventTwice()
	types := map[string]int{}
	for _, e := range w.eventTypes() {
		types[e]++
	}
	require.Equal(t, map[string]int{"requested": n, "running": n, "deleting": n, "deleted": n}, types)
}

// Events of an instance after its rollout do not change the report of the rollout.
func TestLongEndedRolloutDoesNotChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	one := w.pull(1, instanceNamed("train", 1))
	w.reviewed(one)
	c1 := w.merge(one)[0]
	w.eventually("rollout reported", func() bool { r, ok := w.forge.rollout(c1); return ok && len(r.Units) == 1 && r.Settled() })
	w.latest.does(reconciler.Item{Task: reconciler.TaskRollout, Commit: c1}) // the last update
	before, _ := w.forge.rollout(c1)
	require.NoError(t, w.world.SetState(trainKey, "worker-0", plan.Stopped))
	w.eventually("repaired", func() bool { return w.world.Calls("start") > 0 })
	two := w.pull(2, instanceNamed("train", 2))
	w.reviewed(two)
	c2 := w.merge(two)[0]
	w.eventually("second rollout reported", func() bool { r, ok := w.forge.rollout(c2); return ok && r.Settled() && len(r.Units) == 1 })
	after, _ := w.forge.rollout(c1)
	require.Equal(t, before.Units[0].Total, after.Units[0].Total)
	require.Equal(t, before.Units[0].Seconds, after.Units[0].Seconds)
	require.Len(t, after.Units, 1)
}

// A member that does not start for good keeps no other fault from being repaired.
func TestLongFaultIsRepairedDespiteAnotherThatRemains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(func(o *loop.Options) {
		o.Settings.MaxAttempts = 1
		o.Runtimes = map[string]runtimes.Runtime{"bare_metal": brittle{memory.New(w.world), "worker-0"}}
	})
	w.run(2)
	require.NoError(t, w.world.SetState(trainKey, "worker-0", plan.Stopped))
	w.eventually("given up", func() bool { s := w.status("train"); return s.Retry != nil && s.Retry.Terminal })
	attempt := w.status("train").Attempt
	w.latest.passes(3, train)
	w.latest.written()
	require.Equal(t, attempt, w.status("train").Attempt)

	require.NoError(t, w.world.SetState(trainKey, "controller-0", plan.Stopped))
	state := func(member string) plan.State {
		i := slices.IndexFunc(w.status("train").Members, func(m plan.MemberStatus) bool { return m.Name == member })
		return w.status("train").Members[i].State
	}
	w.eventually("the other fault is repaired", func() bool {
		s := w.status("train")
		return s.Attempt > attempt && state("controller-0") == plan.Running && s.Retry != nil && s.Retry.Terminal
	})
	require.Equal(t, plan.Stopped, state("worker-0"))
}

func TestLongLostStatusBranchKeepsEpochIncreasing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start()
	path := w.run(2)
	epoch := w.revision().Epoch
	require.NoError(t, d.stop())
	require.NoError(t, w.git.SetRef("refs/heads/"+reconciler.BranchStatus, ""))
	w.start()
	_, text := instance("train", 3)
	w.put(map[string]string{path: text})
	w.eventually("leadership renewed", func() bool {
		s := (*plan.Status)(nil)
		if w.git.Tip(reconciler.BranchStatus) != "" {
			s = w.status("train")
		}
		return converged(s, 4)
	})
	require.Greater(t, w.revision().Epoch, epoch, "hosts refuse an equal epoch of another leader")
	require.Equal(t, 1, w.world.Calls("create"), "the running unit is found, not created again")
}
