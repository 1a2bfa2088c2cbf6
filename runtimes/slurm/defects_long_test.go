//go:build long

package slurm_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// saved waits until slurmctld has written a job to its state, some seconds after
// each change of one. It loses unwritten jobs in a crash.
func (c *company) saved(t testing.TB, u plan.Unit, job string) {
	t.Helper()
	const state = "/var/lib/slurm/$(basename $etc)/state/job_state"
	c.onControl(t, u, "touch /run/before-save; scontrol update jobid="+job+" name=job")
	eventually(t, "slurmctld has saved job "+job, func() (bool, string) {
		out := c.onControl(t, u, "test "+state+" -nt /run/before-save && echo saved; ls -l --full-time "+state+" /run/before-save")
		return strings.HasPrefix(out, "saved"), out
	})
	c.onControl(t, u, "rm /run/before-save")
}

// step starts a step of a running job, as its owner does from a login host. It first
// waits until each node has registered with slurmctld: a step that is asked for before
// waits until srun asks again, which takes SlurmctldTimeout (2 min).
func (c *company) step(t *testing.T, u plan.Unit, job string) {
	t.Helper()
	as := fmt.Sprintf("setpriv --reuid=%d --regid=%d --clear-groups", alice.UID, alice.UID)
	eventually(t, "each node has registered", func() (bool, string) {
		out := c.tool(t, u, "scontrol -o show nodes")
		return !strings.Contains(out, " State=UNKNOWN"), out
	})
	c.tool(t, u, as+" srun --chdir=/ --overlap --jobid="+job+" /bin/true")
}

// A change of the configuration leaves no node allocated after its job (D1 of the
// review of 3573272).
func TestLongReconfigureLeavesNoNodeAllocated(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition, 0)
	job := c.submit(t, u, alice, "sleep 600", 1)
	running := c.await(t, u, job, slurmtest.Running)
	u = c.unit(twoPartitions, []schema.UnixUser{alice}, nil, 0)
	c.carry(t, u, false)
	require.Equal(t, running, c.await(t, u, job, slurmtest.Running))
	c.tool(t, u, "scancel "+job)
	c.await(t, u, job, slurmtest.Failed)
	c.idle(t, u, 0)
	id, err := c.trySubmit(t, u, alice, "true\n", "--nodes=1", fmt.Sprintf("--cpus-per-task=%d", c.workers[0].Spec.Capacity.CPUs))
	require.NoError(t, err)
	c.await(t, u, id, slurmtest.Completed)
}

// The removal of a partition ends no job that runs in another one or can wait there (D2
// of the review).
func TestLongPartitionRemovalKeepsJobsOfOtherPartitions(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, twoPartitions, 0)
	in := func(partitions, script string, options ...string) string {
		id, err := c.trySubmit(t, u, alice, script+"\n", append(options, "--partition="+partitions, "--time=20")...)
		require.NoError(t, err)
		return id
	}
	running := in("main,quick", "sleep 600", "--gres=gpu:2")
	was := c.await(t, u, running, slurmtest.Running)
	both, only := in("quick,main", "true", "--gres=gpu:1"), in("quick", "true", "--gres=gpu:1")
	require.Contains(t, c.tool(t, u, "scontrol -o show job "+running), " Partition=main ")

	u = c.unit(onePartition, []schema.UnixUser{alice}, nil, 0, 1)
	c.carry(t, u, false)
	require.Equal(t, was, c.await(t, u, running, slurmtest.Running))
	c.await(t, u, only, slurmtest.Failed) // it had no other partition
	require.Contains(t, c.tool(t, u, "scontrol -o show job "+both), " Partition=main ")
	c.tool(t, u, "scancel "+running)
	c.await(t, u, both, slurmtest.Completed)
}

// A leave needs the list of the nodes: Slurm 23.02 and later list groups of equal nodes
// under another key, which was read as a cluster without nodes (D6 of the review).
func TestLongLeaveWithAnswersOfAnotherRelease(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition, 0)
	job := c.submit(t, u, alice, "sleep 600", 1)
	running := c.await(t, u, job, slurmtest.Running)
	control, worker := c.control.Key.Name, workersOf(u)
	before := c.fingerprint(t, worker)
	host := func(script string) {
		out, err := c.lab.Run(t.Context(), control, "sh", "-ec", script)
		require.NoError(t, err, out)
	}
	for _, tool := range []string{"sinfo", "scontrol"} { // whichever lists the nodes of this release
		host(fmt.Sprintf(`mv /usr/bin/%[1]s /usr/bin/%[1]s.own
printf '#!/bin/sh\n/usr/bin/%[1]s.own "$@" >/tmp/%[1]s.out; rc=$?; sed "s/\"nodes\": \\[/\"sinfo\": [/" /tmp/%[1]s.out; exit $rc\n' >/usr/bin/%[1]s
chmod 755 /usr/bin/%[1]s`, tool))
	}
	left := c.unit(onePartition, []schema.UnixUser{alice}, nil)
	leave := func() error {
		p := plan.Plan{Key: u.Effective.Key, Before: &u, After: &left}
		a := plan.Action{ID: "leave.1", Verb: plan.Leave, Member: worker.Members[0].Name, Node: worker.Members[0].Node}
		return c.rt.Apply(t.Context(),
			runtimes.Change{Plan: &p, Action: a, Stamp: runtimes.Stamp{Epoch: 1, ActionID: a.ID, Verb: string(a.Verb)}})
	}
	err := leave()
	t.Logf("leave: %v", err)
	require.ErrorContains(t, err, `the answer has no list "nodes"`)
	for _, tool := range []string{"sinfo", "scontrol"} {
		host(fmt.Sprintf("mv /usr/bin/%[1]s.own /usr/bin/%[1]s", tool))
	}
	require.Equal(t, before, c.fingerprint(t, worker), "slurmd went on")
	require.Equal(t, running, c.await(t, u, job, slurmtest.Running))
	require.ErrorIs(t, leave(), runtimes.ErrWaiting)
	require.Equal(t, before, c.fingerprint(t, worker), "slurmd runs under its job")
}

// idle waits until no job is on a worker and Slurm says so.
func (c *company) idle(t *testing.T, u plan.Unit, worker int) {
	t.Helper()
	name := c.workers[worker].Key.Name
	eventually(t, "node "+name+" is idle", func() (bool, string) {
		out := c.tool(t, u, "scontrol -o show node "+name)
		return strings.Contains(out, " State=IDLE "), out
	})
}

// scheduled waits until a scheduler of slurmctld ("Main", "Backfilling") has run n more times.
func (c *company) scheduled(t testing.TB, u plan.Unit, scheduler string, n int) {
	t.Helper()
	runs := func() int {
		_, of, _ := strings.Cut(c.tool(t, u, "sdiag"), "\n"+scheduler+" ")
		_, count, _ := strings.Cut(of, "Total cycles:")
		runs, err := strconv.Atoi(strings.Fields(count)[0])
		require.NoError(t, err)
		return runs
	}
	began := runs()
	eventually(t, fmt.Sprintf("%d more runs of the scheduler %s", n, scheduler), func() (bool, string) {
		now := runs()
		return now >= began+n, fmt.Sprintf("%d runs, %d before", now, began)
	})
}

// ahead returns a runtime whose clock is ahead.
func (s *stage) ahead(d time.Duration) *slurm.Runtime {
	return slurm.New(slurm.Options{Hosts: s.hosts, Timeouts: generous, Now: func() time.Time { return time.Now().Add(d) }})
}

// A job goes on with new steps after each change that restarts slurmctld or adds a
// node (D7 of the measurements of Slurm's versions).
func TestLongStepsGoOnAfterChangesOfTheCluster(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition, 0, 1)
	for _, n := range append([]*schema.Node{c.control}, c.workers...) { // Slurm alone knows the addresses
		c.changeFile(t, n.Key.Name, "/etc/hosts", "sed -i /gpu-/d /etc/hosts")
	}
	id, err := c.trySubmit(t, u, alice, "sleep 600\n", "--nodes=2", "--gres=gpu:1")
	require.NoError(t, err)
	job := c.await(t, u, id, slurmtest.Running)
	c.step(t, u, id)

	more := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0, 1, 2)
	c.carry(t, more, false)
	c.step(t, u, id)
	c.saved(t, u, id)
	c.kill(t, more, "controller-0")
	c.carry(t, more, false)
	c.step(t, u, id)
	c.carry(t, u, false)
	c.step(t, u, id)
	require.Equal(t, job, c.await(t, u, id, slurmtest.Running))
}
