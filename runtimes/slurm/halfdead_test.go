package slurm_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// onWorker runs a script on the host of a worker.
func (c *company) onWorker(t *testing.T, worker int, script string) string {
	t.Helper()
	out, err := c.lab.Run(t.Context(), c.workers[worker].Key.Name, "sh", "-c", script)
	require.NoError(t, err, out)
	return out
}

// member returns the state of a member.
func (c *company) member(t *testing.T, u plan.Unit, name string) plan.MemberState {
	t.Helper()
	for _, m := range c.observe(t, u).Members {
		if m.Name == name {
			return m
		}
	}
	require.Fail(t, "no member "+name)
	return plan.MemberState{}
}

// untilDone is the script of a job that ends when the test says so.
const untilDone = "while test ! -e /tmp/berthtest-done; do sleep 0.2; done"

// done ends the jobs of that script on a worker.
func (c *company) done(t *testing.T, worker int) {
	t.Helper()
	c.onWorker(t, worker, "touch /tmp/berthtest-done")
	t.Cleanup(func() {
		_, err := c.lab.Run(context.Background(), c.workers[worker].Key.Name, "rm", "/tmp/berthtest-done")
		require.NoError(t, err)
	})
}

// A worker that lost its record while jobs run joins again, and its jobs go on.
func TestLostWorkerRecordKeepsJobs(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition, 0)
	long := c.submit(t, u, alice, untilDone, 1)
	c.await(t, u, long, slurmtest.Running)
	c.onWorker(t, 0, "rm /var/lib/berth/instances/worker.json")
	require.Equal(t, plan.Partial, c.member(t, u, "worker-0").State)
	c.carry(t, u, false)
	c.done(t, 0)
	c.await(t, u, long, slurmtest.Completed)
}

// A cluster whose recorded configuration this Berth cannot read can be configured and deleted.
func TestUnreadableConfigurationIsReplaced(t *testing.T) {
	t.Parallel()
	c, u := newCompanyOn(bareStage(t), t, onePartition, 0)
	c.onControl(t, u, `sed -i 's/"partitions"/"partition_list"/' /var/lib/berth/instances/`+slurm.ClusterName(u.Effective.Key)+`.json`)
	require.Contains(t, fmt.Sprint(c.observe(t, u).Drift), "partition_list")
	more := c.unit(twoPartitions, []schema.UnixUser{alice}, nil, 0)
	require.NoError(t, c.apply(t, c.plan(t, more, false)), "a valid configuration replaces it")
	require.Contains(t, c.tool(t, more, "sinfo -h -o %R"), "quick")

	c.onControl(t, u, `sed -i 's/"partitions"/"partition_list"/' /var/lib/berth/instances/`+slurm.ClusterName(u.Effective.Key)+`.json`)
	require.NoError(t, c.apply(t, c.plan(t, more, true)))
	require.Empty(t, c.remains(t, more))
}
