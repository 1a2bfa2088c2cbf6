//go:build long

package slurm_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// Three workers that get fewer GPUs leave one after the other: the second stays in service
// while the first waits for its job, and no job ends.
func TestLongMaxUnavailableOnABusyCluster(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStage(t)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0, 1, 2)
	c.carry(t, u, false)
	job, err := c.trySubmit(t, u, alice, untilDone+"\n", "--nodelist="+c.workers[0].Key.Name)
	require.NoError(t, err)
	c.await(t, u, job, slurmtest.Running)

	less := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0, 1, 2)
	for i := range less.Members[1:] {
		m := &less.Members[i+1]
		m.GPUs = []schema.GPU{{Type: "a100", Count: 1, Devices: "/dev/nvidia0"}}
	}
	leaves := func(p plan.Plan) (out []string) {
		for _, a := range p.Actions {
			if a.Verb == plan.Leave {
				out = append(out, a.Member)
			}
		}
		return out
	}
	step := func() plan.Plan {
		p := c.plan(t, less, false)
		require.LessOrEqual(t, len(leaves(p)), 1, "%+v", p.Actions)
		blocked := p.Blocked
		p.Blocked = nil
		if err := c.apply(t, p); err != nil {
			require.ErrorIs(t, err, runtimes.ErrWaiting)
		}
		p.Blocked = blocked
		return p
	}
	for range 3 { // the first worker waits for its job, and so do the others for it
		p := step()
		require.Equal(t, []string{"worker-0"}, leaves(p))
		require.Equal(t, plan.CodeUnavailable, p.Blocked[0].Code)
		require.Equal(t, 1, p.Jobs.Waited.Count)
	}
	o := c.observe(t, less)
	require.Equal(t, []plan.State{plan.Running, plan.Draining, plan.Running, plan.Running}, statesOf(o))
	other, err := c.trySubmit(t, less, alice, "true\n", "--nodelist="+c.workers[1].Key.Name)
	require.NoError(t, err)
	c.await(t, less, other, slurmtest.Completed)

	c.done(t, 0)
	c.await(t, less, job, slurmtest.Completed)
	var order []string
	eventually(t, "all workers have one GPU", func() (bool, string) {
		p := step()
		for _, name := range leaves(p) {
			if !slices.Contains(order, name) {
				order = append(order, name)
			}
		}
		again := c.plan(t, less, false)
		return again.Empty(), "more to do"
	})
	require.Equal(t, []string{"worker-0", "worker-1", "worker-2"}, order)
	require.Equal(t, []plan.State{plan.Running, plan.Running, plan.Running, plan.Running}, statesOf(c.observe(t, less)))
}

func statesOf(o plan.Observed) (out []plan.State) {
	for _, m := range o.Members {
		out = append(out, m.State)
	}
	return out
}
