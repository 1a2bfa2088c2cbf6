//go:build long

package slurm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// The plan of a change says which jobs end, move and are cancelled, and that is what
// happens on a busy cluster.
func TestLongImpactOnABusyCluster(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStage(t)}
	c.rt = c.runtime(t)
	rule := &schema.OnJobs{CancelAfterSeconds: 1}
	u := c.unit(twoPartitions, []schema.UnixUser{alice, bob}, rule, 0, 1)
	c.carry(t, u, false)
	submit := func(user schema.UnixUser, want slurmtest.State, options ...string) string {
		id, err := c.trySubmit(t, u, user, "sleep 600\n", options...)
		require.NoError(t, err)
		c.await(t, u, id, want)
		return id
	}
	first, second := c.workers[0].Key.Name, c.workers[1].Key.Name
	all := "--mem=3500"
	stays := submit(alice, slurmtest.Running, "--partition=main,quick", "--nodelist="+first, "--mem=1000", "--gres=gpu:1")
	ofBob := submit(bob, slurmtest.Running, "--partition=main", "--nodelist="+first, "--mem=1000")
	ends := submit(alice, slurmtest.Running, "--partition=quick", "--nodelist="+second, all)
	moves := submit(alice, slurmtest.Pending, "--partition=quick,main", all)
	goes := submit(alice, slurmtest.Pending, "--partition=quick", all)
	goesToo := submit(bob, slurmtest.Pending, "--partition=main", all)
	// both nodes
	wide, err := c.trySubmit(t, u, alice, "#SBATCH --partition=main --gpus-per-node=2 --nodes=2 --constraint=a100&gpu\nsleep 600\n")
	require.NoError(t, err)
	c.await(t, u, wide, slurmtest.Pending)

	// The partition quick, the user bob and the second worker go.
	less := c.unit(onePartition, []schema.UnixUser{alice}, rule, 0)
	p := c.plan(t, less, false)
	require.False(t, p.Jobs.At.IsZero())
	require.Equal(t, plan.JobSet{Count: 2, IDs: p.Jobs.Ended.IDs,
		Users: []plan.UserJobs{{User: alice.Name, Count: 1}, {User: bob.Name, Count: 1}}}, p.Jobs.Ended)
	require.ElementsMatch(t, []string{ends, ofBob}, p.Jobs.Ended.IDs)
	require.ElementsMatch(t, []string{goes, goesToo}, p.Jobs.Cancelled.IDs)
	require.Equal(t, []string{moves}, p.Jobs.Moved.IDs)
	require.Equal(t, []string{wide}, p.Jobs.CannotStart.IDs)
	require.Equal(t, 1, p.Jobs.Continue.Count)
	require.Equal(t, 3, p.Jobs.Running())
	require.Equal(t, 4, p.Jobs.Queued())
	require.Equal(t, []int{1}, p.Jobs.EndAfter)

	eventually(t, "change", func() (bool, string) {
		if err := c.apply(t, c.plan(t, less, false)); err != nil {
			return false, err.Error()
		}
		again := c.plan(t, less, false)
		return again.Empty(), "more to do"
	})
	left := c.observe(t, less).Jobs
	require.Equal(t, 1, left.Running)
	require.Equal(t, 2, left.Pending)
	c.await(t, less, stays, slurmtest.Running)
	require.Equal(t, slurmtest.Pending, c.await(t, less, moves, slurmtest.Pending).State)
	for _, g := range left.Groups {
		require.Equal(t, []string{"main"}, g.Partitions)
		if slices.Equal(g.IDs, []string{wide}) {
			require.Equal(t, plan.NodeResources{CPUs: 1, MemoryMiB: 2000, GPUs: map[string]int{"": 2}, Features: []string{"a100", "gpu"}},
				g.Each)
		}
		if !g.Pending {
			require.Equal(t, []string{first}, g.Nodes)
			require.Equal(t, 1, g.GPUs)
		}
	}
}

// Each job that asks for a leaving node by name is cancelled, as the plan says: an array, a heterogeneous job, and one that names other
// nodes after it, which slurmctld 24.11 would start on nodes that nobody asked for. Others wait.
func TestLongJobsThatNameALeavingNodeAreCancelled(t *testing.T) {
	t.Parallel()
	c := &company{stage: bareStage(t)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0, 1, 2)
	c.carry(t, u, false)
	want := map[string]string{} // by the number of the job
	for options, state := range map[string]string{
		"-w gpu-2": "CANCELLED", "-N2 -w gpu-[1-2]": "CANCELLED", "-N2 -w gpu-[2-3]": "CANCELLED", "-N3 -w gpu-[1-3]": "CANCELLED",
		"-a 1-3 -w gpu-2": "CANCELLED", "-w gpu-1 : -w gpu-2": "CANCELLED",
		"-w gpu-1": "PENDING", "-w gpu-3": "PENDING", "-N2 -w gpu-[1,3]": "PENDING",
	} {
		out := c.onControl(t, u, fmt.Sprintf("printf '#!/bin/sh\ntrue\n' >/tmp/named.sh; setpriv --reuid=%d --regid=%[1]d --clear-groups "+
			"sbatch --parsable --hold --mem=10 %[2]s /tmp/named.sh; rm /tmp/named.sh", alice.UID, options))
		want[strings.TrimSpace(out)] = state + " " + options
	}
	less := u
	less.Members = slices.DeleteFunc(slices.Clone(u.Members), func(m plan.Member) bool { return m.Node == "gpu-2" })
	less.Effective.Roles = slices.Clone(u.Effective.Roles)
	less.Effective.Roles[1].Count--
	c.carry(t, less, false)
	for row := range strings.Lines(c.onControl(t, u, "squeue -h -t all -o '%i %T'")) {
		id, state, _ := strings.Cut(strings.TrimSpace(row), " ")
		require.True(t, strings.HasPrefix(want[wholeID(id)], state+" "), "job %s is %s, want %s", id, state, want[wholeID(id)])
	}
}
