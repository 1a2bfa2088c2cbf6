package slurm_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// operate does one operation once, as the daemon does.
func (c *company) operate(t *testing.T, u plan.Unit, id, operation, member string, onJobs *schema.OnJobs, labels map[string]string) error {
	t.Helper()
	o := plan.Operation{ID: id, Name: id,
		Spec: schema.MemberOperationSpec{Operation: operation, Member: member, OnJobs: onJobs, Labels: labels, Reason: "a test"}}
	p := plan.Make(plan.Input{Key: u.Effective.Key, After: &u.Effective, Members: u.Members, Observed: c.observe(t, u),
		Operations: []plan.Operation{o}, Rules: c.rt})
	require.Len(t, p.Actions, 1)
	return c.apply(t, p)
}

// Requirements A7, D5: a drain of an operation meets jobs by its own on_jobs, survives repairs, a
// restart and a kill of slurmctld and slurmd, and ends with a resume; the drain of a person stays.
func TestOperationsOnABusyCluster(t *testing.T) {
	t.Parallel()
	c := &company{stage: bareStage(t)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0, 1)
	u.Members[2].CPUs, u.Members[2].Shape = c.machine.Threads(), schema.Shape{}
	c.carry(t, u, false)
	first, second := c.workers[0].Key.Name, c.workers[1].Key.Name
	node := func(name string) string { return c.tool(t, u, "scontrol -o show node "+name) }
	for name, want := range map[string]schema.Shape{first: twoCores, second: c.machine} {
		for _, word := range []string{
			fmt.Sprintf(" CPUTot=%d ", want.Threads()), fmt.Sprintf(" Sockets=%d ", want.Sockets),
			fmt.Sprintf(" CoresPerSocket=%d ", want.CoresPerSocket), fmt.Sprintf(" ThreadsPerCore=%d ", want.ThreadsPerCore),
		} {
			require.Contains(t, node(name), word, "the declared shape of %s, and the one of slurmd -C on %s", first, second)
		}
	}
	job, err := c.trySubmit(t, u, alice, "sleep 600\n", "--nodelist="+first, "--mem=1000")
	require.NoError(t, err)
	c.await(t, u, job, slurmtest.Running)

	// A cordon leaves the job alone, and so does a restart of slurmd. The drain waits by the unit's
	// rule, and cancels by its own.
	require.NoError(t, c.operate(t, u, "quiet", schema.OpCordon, "worker-0", nil, nil))
	require.NoError(t, c.operate(t, u, "restart-w", schema.OpRestart, "worker-0", nil, nil))
	require.NoError(t, c.operate(t, u, "restart-c", schema.OpRestart, "controller-0", nil, nil))
	require.Equal(t, slurmtest.Running, c.await(t, u, job, slurmtest.Running).State)
	require.Contains(t, node(first), "Reason=berth:operation-quiet")
	next, err := c.trySubmit(t, u, alice, "sleep 600\n", "--nodelist="+first, "--mem=1000")
	require.NoError(t, err)
	require.ErrorIs(t, c.operate(t, u, "fan", schema.OpDrain, "worker-0", nil, nil), runtimes.ErrWaiting)
	require.NoError(t, c.operate(t, u, "label", schema.OpLabel, "worker-0", nil, map[string]string{"rack": "r1"}))
	rule := &schema.OnJobs{CancelAfterSeconds: 1}
	eventually(t, "drain", func() (bool, string) {
		err := c.operate(t, u, "fan-2", schema.OpDrain, "worker-0", rule, nil)
		return err == nil, fmt.Sprint(err)
	})
	c.await(t, u, job, slurmtest.Failed)
	require.Equal(t, slurmtest.Pending, c.await(t, u, next, slurmtest.Pending).State)

	// The drain and the label survive repairs.
	for _, member := range []string{"worker-0", "controller-0"} {
		c.kill(t, u, member)
		eventually(t, "repair", func() (bool, string) {
			err := c.apply(t, c.plan(t, u, false))
			again := c.plan(t, u, false)
			return err == nil && again.Empty(), fmt.Sprint(err, again.Actions)
		})
		require.Contains(t, node(first), "DRAIN", "after a kill of %s", member)
		require.Contains(t, node(first), "Reason=berth:operation-quiet")
		require.Contains(t, node(first), "Comment=berth:rack=r1")
	}
	require.NoError(t, c.operate(t, u, "label-2", schema.OpLabel, "worker-0", nil, map[string]string{"row": "2"}))
	require.Contains(t, node(first), "Comment=berth:rack=r1,row=2")
	require.NoError(t, c.operate(t, u, "back", schema.OpResume, "worker-0", nil, nil))
	require.NotContains(t, node(first), "DRAIN")
	c.await(t, u, next, slurmtest.Running)

	// The change of a person stays.
	c.tool(t, u, "scontrol update nodename="+second+" state=drain reason=DIMM comment=mine")
	require.NoError(t, c.operate(t, u, "also", schema.OpDrain, "worker-1", nil, nil), "it takes no new jobs already")
	for _, verb := range []string{schema.OpResume, schema.OpUncordon} {
		err = c.operate(t, u, "no-"+verb, verb, "worker-1", nil, nil)
		require.ErrorContains(t, err, "drained by a person")
	}
	require.ErrorContains(t, c.operate(t, u, "no-label", schema.OpLabel, "worker-1", nil, map[string]string{"a": "b"}), "is not of Berth")
	require.Contains(t, node(second), "Reason=DIMM")
	require.Contains(t, node(second), "Comment=mine")

	// Done operations are done no more, whatever the status branch says.
	require.NoError(t, c.operate(t, u, "fan-2", schema.OpDrain, "worker-0", rule, nil))
	require.NotContains(t, node(first), "DRAIN")
	c.await(t, u, next, slurmtest.Running)
}
