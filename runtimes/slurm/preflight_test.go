package slurm

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// occupied makes a host's preflight fail and records its operations.
func occupied(h *fakeHost, seen *[]runtimes.Op) {
	h.before = func(op runtimes.Op) error {
		*seen = append(*seen, op)
		if op.Preflight != nil {
			return &runtimes.OpError{Host: h.name, Op: "preflight", Code: "foreign", Message: "munge.service is running"}
		}
		return nil
	}
}

// Neither the worker nor the controller has been written.
func TestRefusedJoinWritesNothing(t *testing.T) {
	c := newCluster(t)
	delete(c.wk.files, workerRecordPath)
	var worker, controller []runtimes.Op
	occupied(c.wk, &worker)
	occupied(c.ctl, &controller)
	require.ErrorIs(t, c.apply(t, plan.Join, c.unit), runtimes.ErrForeign)
	require.False(t, works(worker), "%+v", worker)
	require.False(t, works(controller), "%+v", controller)
}

// works reports whether any operation has an effect.
func works(ops []runtimes.Op) bool {
	return slices.ContainsFunc(ops, func(op runtimes.Op) bool {
		return op.Read == nil && op.Stat == nil && op.List == nil && op.Info == nil && op.Preflight == nil &&
			(op.Run == nil || op.Run.Args[0] == "update")
	})
}

// A complete unit on record gets no preflight.
func TestRefusedCreateWritesNothing(t *testing.T) {
	c := newCluster(t)
	record := profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}.Record()
	saved := c.ctl.files[record]
	c.loseRecord()
	var seen []runtimes.Op
	occupied(c.ctl, &seen)
	p := plan.Plan{Key: c.unit.Effective.Key, After: &c.unit}
	a := plan.Action{ID: "action.1", Verb: plan.Create, Member: "controller-0", Node: "ctl"}
	create := func() error {
		return c.rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: a, Stamp: runtimes.Stamp{Epoch: 1, ActionID: a.ID}})
	}
	require.ErrorIs(t, create(), runtimes.ErrForeign)
	require.False(t, works(seen), "%+v", seen)
	c.ctl.files[record] = saved
	require.NoError(t, create())
}
