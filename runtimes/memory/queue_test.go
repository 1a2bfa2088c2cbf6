package memory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
	"berth/schema"
	"berth/schema/queue"
)

var ada = schema.UnixUser{Name: "ada", UID: 2001}

// queueOfUnit returns a deployed unit with one worker and its queue.
func queueOfUnit(t *testing.T) (*memory.World, *memory.Runtime, runtimes.QueueScope) {
	t.Helper()
	w := memory.NewWorld()
	rt := memory.New(w)
	u := plan.Unit{
		Effective: schema.EffectiveUnit{Key: schema.InstanceKey("physics", "lattice", "train"), DesiredState: schema.DesiredRunning,
			Users: []schema.UnixUser{ada},
			Roles: []schema.EffectiveRole{{Name: "controller", ControlPlane: true, Count: 1}, {Name: "worker", Count: 1}}},
		Members: []plan.Member{{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "head"},
			{Name: "worker-0", Role: "worker", Node: "gpu-1", CPUs: 4}},
	}
	p := plan.Make(plan.Input{Key: u.Effective.Key, After: &u.Effective, Members: u.Members,
		Observed: plan.Observed{Key: u.Effective.Key, Presence: plan.Absent}, Rules: rt})
	for _, a := range p.Actions {
		require.NoError(t, rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: a, Stamp: runtimes.Stamp{Epoch: 1, Leader: "me"}}))
	}
	return w, rt, runtimes.QueueScope{Unit: &u, ProjectID: "physics.lattice", Stamp: runtimes.Stamp{Epoch: 1, Leader: "me"}}
}

func TestQueueKeepsTheContract(t *testing.T) {
	w, rt, at := queueOfUnit(t)
	s := queue.Submission{ProjectID: "physics.lattice", User: ada, IdempotencyKey: "k1",
		Request: queue.Request{Script: "#!/bin/sh\ntrue\n", Queue: "gpu"}}
	first, err := rt.Submit(t.Context(), at, s)
	require.NoError(t, err)
	again, err := rt.Submit(t.Context(), at, s)
	require.NoError(t, err)
	require.Equal(t, first, again)
	other := s
	other.Script += "false\n"
	_, err = rt.Submit(t.Context(), at, other)
	require.ErrorIs(t, err, queue.ErrConflict)
	stranger := s
	stranger.User.Name, stranger.IdempotencyKey = "eve", "k2"
	_, err = rt.Submit(t.Context(), at, stranger)
	require.ErrorIs(t, err, queue.ErrDenied)

	elsewhere := at
	elsewhere.ProjectID = "bio.genes"
	ref := queue.Ref{JobID: first.JobID}
	_, err = rt.Job(t.Context(), elsewhere, ref)
	require.ErrorIs(t, err, queue.ErrNotFound)
	_, err = rt.Cancel(t.Context(), elsewhere, ref)
	require.ErrorIs(t, err, queue.ErrNotFound)
	theirs := s
	theirs.ProjectID = elsewhere.ProjectID
	second, err := rt.Submit(t.Context(), elsewhere, theirs)
	require.NoError(t, err)
	jobs, err := rt.Jobs(t.Context(), at.Unit, at.Stamp)
	require.NoError(t, err)
	require.Equal(t, [][2]string{{first.JobID, "physics.lattice"}, {second.JobID, "bio.genes"}},
		[][2]string{{jobs[0].JobID, jobs[0].ProjectID}, {jobs[1].JobID, jobs[1].ProjectID}}, "of all projects")

	require.NoError(t, w.EndJob(at.Unit.Effective.Key, first.JobID, []byte("hello\n")))
	out, err := rt.Output(t.Context(), at, ref, 3)
	require.NoError(t, err)
	require.Equal(t, queue.Output{Text: []byte("lo\n"), Truncated: true}, out)
	ended, err := rt.Cancel(t.Context(), at, ref)
	require.NoError(t, err)
	require.Equal(t, "COMPLETED", ended.State, "an ended job stays as it ended")

	nodes, err := rt.Nodes(t.Context(), at.Unit, at.Stamp)
	require.NoError(t, err)
	require.Equal(t, []queue.Node{{Member: "worker-0", Node: "gpu-1", State: []string{"running"}, CPUs: 4}}, nodes)

	ready, err := rt.Readiness(t.Context(), at)
	require.NoError(t, err)
	require.True(t, ready.Serves)
	w.SetReachable("head", false)
	ready, err = rt.Readiness(t.Context(), at)
	require.NoError(t, err)
	require.False(t, ready.Serves || ready.Preconditions[0].Holds)
	_, err = rt.Submit(t.Context(), at, s)
	require.ErrorIs(t, err, queue.ErrUnavailable)
	w.SetReachable("head", true)
	late := at
	late.Stamp.Epoch = 0
	_, err = rt.Submit(t.Context(), late, s)
	require.ErrorIs(t, err, runtimes.ErrStaleEpoch)
}
