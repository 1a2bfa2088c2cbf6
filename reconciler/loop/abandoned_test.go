package loop_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/loop"
	"berth/reconciler/nodes"
	"berth/reconciler/plan"
)

// A deletion goes on without a worker on a lost node. What is left on its host is removed when the host comes back, also by another
// daemon, and only then is the node used again.
func TestDeletionGoesOnWithoutALostWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var hours atomic.Int64
	late := func(o *loop.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(hours.Load()) * time.Hour) }
	}
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	d := w.start(w.observed, late)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	worker := w.status("train").Members[1].Node
	w.eventually("ready", w.nodeIs(worker, nodes.Ready))
	w.world.SetReachable(worker, false)
	w.world.SetResponds(worker, false)
	w.eventually("lost", w.nodeIs(worker, nodes.Lost))
	w.put(nil, path)
	w.eventually("the deletion waits", w.phase("train", plan.PhaseDeleting))
	require.Empty(t, w.status("train").Abandoned)

	hours.Store(2)
	w.eventually("deleted without it", w.phase("train", plan.PhaseDeleted))
	left := w.status("train").Abandoned
	require.Len(t, left, 1)
	require.Equal(t, worker, left[0].Node)
	require.Equal(t, "worker-0", left[0].Name)
	require.NotEmpty(t, w.world.Left(worker))
	require.Zero(t, w.world.Calls("clean"))
	require.NoError(t, d.stop())

	other, more := instance("other", 4) // needs each worker node
	w.put(map[string]string{other: more})
	w.start(w.observed, late)
	w.eventually("placed elsewhere", func() bool { s := w.status("other"); return s != nil && len(s.Members) == 4 })
	for _, m := range w.status("other").Members {
		require.NotEqual(t, worker, m.Node)
	}
	w.world.SetReachable(worker, true)
	w.world.SetResponds(worker, true)
	w.eventually("the node is used again", w.phase("other", plan.PhaseRunning))
	require.Empty(t, w.world.Left(worker))
	require.Equal(t, 1, w.world.Calls("clean"))
	w.eventually("nothing is left to remember", func() bool { return w.status("train") == nil })
	w.noEventTwice()
}

// A change that takes a member away from a lost node goes on without it. A node with jobs, or that is silent for a shorter time, keeps
// its member.
func TestChangeGoesOnWithoutALostWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var hours atomic.Int64
	path, text := instance("train", 2)
	w.put(map[string]string{path: text})
	w.start(w.observed, func(o *loop.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(hours.Load()) * time.Hour) }
	})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	worker := w.status("train").Members[2].Node
	w.eventually("ready", w.nodeIs(worker, nodes.Ready))
	w.world.SetReachable(worker, false)
	w.world.SetResponds(worker, false)
	w.eventually("lost", w.nodeIs(worker, nodes.Lost))
	_, text = instance("train", 1)
	commit := w.put(map[string]string{path: text})
	w.eventually("in force", func() bool { return w.revision().Commit == commit })
	require.Empty(t, w.status("train").Abandoned)
	hours.Store(2)
	w.eventually("goes on", func() bool {
		s := w.status("train")
		return s.Phase == plan.PhaseRunning && len(s.Members) == 2 && len(s.Abandoned) == 1
	})
	require.Equal(t, worker, w.status("train").Abandoned[0].Node)
	w.world.SetReachable(worker, true)
	w.world.SetResponds(worker, true)
	w.eventually("clean", func() bool { return len(w.status("train").Abandoned) == 0 })
	require.Empty(t, w.world.Left(worker))
}

// A worker gets another node after the time that its role declares, and its first node is used again once it is clean.
func TestWorkerOfALostNodeIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var hours atomic.Int64
	path, text := instance("train", 1)
	w.put(map[string]string{path: strings.Replace(text, "count: 1, gpus", "count: 1, on_node_lost: {replace_after_seconds: 3600}, gpus", 1)})
	w.start(w.observed, func(o *loop.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(hours.Load()) * time.Hour) }
	})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	lost := w.status("train").Members[1].Node
	w.eventually("ready", w.nodeIs(lost, nodes.Ready))
	w.world.SetReachable(lost, false)
	w.world.SetResponds(lost, false)
	w.eventually("lost", w.nodeIs(lost, nodes.Lost))
	require.Equal(t, lost, w.status("train").Members[1].Node)
	hours.Store(2)
	w.eventually("it runs on another node", func() bool {
		s := w.status("train")
		return s.Phase == plan.PhaseRunning && len(s.Members) == 2 && s.Members[1].Node != lost && s.Members[1].State == plan.Running
	})
	require.Equal(t, lost, w.status("train").Abandoned[0].Node)
	w.world.SetReachable(lost, true)
	w.world.SetResponds(lost, true)
	w.eventually("clean", func() bool { return len(w.status("train").Abandoned) == 0 })
	require.Empty(t, w.world.Left(lost))
	w.noEventTwice()
}

// An operation has a worker leave a lost node at once.
func TestOperationReplacesAWorkerOfALostNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(w.observed, func(o *loop.Options) { o.Forge = nil })
	w.trains(1)
	lost := w.status("train").Members[1].Node
	w.eventually("ready", w.nodeIs(lost, nodes.Ready))
	w.world.SetReachable(lost, false)
	w.world.SetResponds(lost, false)
	w.eventually("lost", w.nodeIs(lost, nodes.Lost))
	w.ask([3]string{"move", "replace", "worker-0"})
	w.operated("move", plan.OperationDone)
	w.eventually("train runs", w.running("train", 1))
	require.NotEqual(t, lost, w.status("train").Members[1].Node)
	require.Equal(t, lost, w.status("train").Abandoned[0].Node)
}
