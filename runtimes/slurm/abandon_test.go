package slurm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/profile"
)

// A worker on a lost host is taken out without its host, unless its node responds again or has jobs. When the host is back, a clean
// needs the host alone, and can be repeated.
func TestLostWorkerIsTakenOutAndCleanedLater(t *testing.T) {
	c := newCluster(t)
	left := c.unit.Members[1]
	require.ErrorIs(t, c.apply(t, plan.Abandon, c.unit), runtimes.ErrWaiting, "the node responds")

	silent := strings.NewReplacer(`"idle"`, `"down"`, `[]`, `["NOT_RESPONDING"]`).Replace(idleNode)
	c.wk.request = func([]runtimes.Op) error { return runtimes.ErrUnreachable }
	c.node, c.queue = silent, []string{"7 R 2001 main"}
	require.ErrorIs(t, c.apply(t, plan.Abandon, c.unit), runtimes.ErrWaiting, "a job runs")
	require.Len(t, c.record(t).Joined, 1)
	c.node, c.queue = silent, nil
	require.NoError(t, c.apply(t, plan.Abandon, c.unit))
	require.Empty(t, c.record(t).Joined)
	require.True(t, c.ctl.ran("scontrol", "state=drain"))
	require.NoError(t, c.apply(t, plan.Abandon, c.unit), "again")
	require.Contains(t, c.wk.files, workerRecordPath)

	clean := func() error {
		p := plan.Plan{Key: c.unit.Effective.Key} // the unit is gone
		a := plan.Action{ID: "clean.1", Verb: plan.Clean, Member: left.Name, Node: left.Node, Left: &left}
		return c.rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: a, Stamp: runtimes.Stamp{Epoch: 1, ActionID: a.ID}})
	}
	c.ctl.request = func([]runtimes.Op) error { return runtimes.ErrUnreachable }
	require.ErrorIs(t, clean(), runtimes.ErrUnreachable)
	c.wk.request = nil
	require.NoError(t, clean())
	require.NotContains(t, c.wk.files, workerRecordPath)
	require.False(t, c.wk.services[profile.Slurmd])
	require.NoError(t, clean(), "again")
}
