package slurm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

func (c *fakeCluster) conf() string {
	return string(c.ctl.files[profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}.Conf()])
}

// A change whose files work and whose users wait keeps its files: jobs may be in a new
// partition already.
func TestFilesOfAWaitingChangeStay(t *testing.T) {
	c := newCluster(t)
	c.queue = []string{"7 R 2001 main"}
	after := c.unit
	after.Effective.Users = nil
	after.Effective.Config = []byte(`{"partitions":[{"name":"main","default":true},{"name":"quick"}]}`)
	require.NoError(t, c.apply(t, plan.Configure, after), "all but the removal of a user is done")
	require.ErrorIs(t, c.apply(t, plan.Configure, after), runtimes.ErrWaiting, "only the removal is left")
	require.Contains(t, c.conf(), "PartitionName=quick")
	require.NotContains(t, fmt.Sprint(c.observe(t).Drift), "as Berth writes it")

	c.ctl.services[profile.Slurmctld] = false
	require.NoError(t, c.on(t).start(t.Context(), &after, plan.Action{Verb: plan.Start, Member: "controller-0"}))
	require.Contains(t, c.conf(), "PartitionName=quick")

	// The change is undone.
	require.NotEmpty(t, c.observe(t).Drift)
	c.queue = nil
	require.NoError(t, c.apply(t, plan.Configure, c.unit))
	require.NotContains(t, c.conf(), "PartitionName=quick")
	require.Empty(t, c.observe(t).Drift)
}

// A repair that a crash interrupts anywhere is completed by the next attempt, with the
// restart of a slurmctld that read the changed file.
func TestRepairGoesOnAfterACrash(t *testing.T) {
	for n := 1; ; n++ {
		c := newCluster(t)
		good := c.conf()
		conf := profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}.Conf()
		c.ctl.files[conf] = []byte(good + "SelectType=select/linear\n")
		c.hash = "HASH_VAL = Different Ours=0x1 Slurmctld=0x2"
		restarted, left := false, n
		count := func(op runtimes.Op) error {
			if left--; left == 0 {
				return errCrash
			}
			if op.Service != nil && op.Service.Name == profile.Slurmctld && op.Service.Verb == "restart" {
				c.say(func() { c.hash, restarted = "HASH_VAL = Match", true })
			}
			return nil
		}
		c.ctl.before = count
		err := c.apply(t, plan.Configure, c.unit)
		if err == nil {
			require.Greater(t, n, 10)
			return
		}
		if !restarted || c.record(t).Owed != (cluster.Steps{}) {
			require.NotEmpty(t, c.observe(t).Drift, "crash at operation %d", n)
		}
		require.NoError(t, c.apply(t, plan.Configure, c.unit), "crash at operation %d", n)
		require.True(t, restarted, "crash at operation %d", n)
		require.Equal(t, good, c.conf())
		require.Equal(t, cluster.Steps{}, c.record(t).Owed)
		require.Empty(t, c.observe(t).Drift)
	}
}
