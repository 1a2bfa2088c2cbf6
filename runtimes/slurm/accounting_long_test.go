//go:build long

package slurm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// TestLongQoS runs jobs within the limits of a QoS, and takes it away while one runs.
func TestLongQoS(t *testing.T) {
	t.Parallel()
	const small = `{"name":"small","per_user":{"gpus":1},"flags":["deny_on_limit"],"default":true}`
	const high = `{"name":"high","priority":100,"max_time_minutes":60,"per_user":{"gpus":1,"jobs":5,"submits":9},"group":{"gpus":4,"cpus":64},"preempts":["normal"],"usage_percent":50,"users":["berthtest0"]}`
	c := &company{stage: newStage(t)}
	c.rt = c.runtime(t)
	both := []schema.UnixUser{alice, bob}
	fast := func(config, allow string) string {
		return strings.Replace(config, `"partitions":[`, `"partitions":[{"name":"fast","allow_qos":[`+allow+`]},`, 1)
	}
	u := c.unit(fast(qosConfig(small+","+high), `"high","small"`), both, nil, 0)
	c.carry(t, u, false)
	require.Equal(t, "high|100|gres/gpu=1|normal|01:00:00|0.500000\nnormal|0||||1.000000\nsmall|0|gres/gpu=1|||1.000000\n",
		c.tool(t, u, "sacctmgr -n -P list qos format=name,priority,maxtresperuser,preempt,maxwall,usagefactor | LC_ALL=C sort"))

	// The default QoS refuses a job that alone exceeds it, and lets no second job run.
	_, err := c.trySubmit(t, u, bob, "true\n", "--gres=gpu:2")
	require.ErrorContains(t, err, "Job violates accounting/QOS policy")
	_, err = c.trySubmit(t, u, bob, "true\n", "--qos=high")
	require.ErrorContains(t, err, "Invalid qos")
	gpu := []string{"--gres=gpu:1", "--qos=high"}
	running, err := c.trySubmit(t, u, alice, "sleep 600\n", gpu...)
	require.NoError(t, err)
	c.await(t, u, running, slurmtest.Running)
	second, err := c.trySubmit(t, u, alice, "sleep 600\n", gpu...)
	require.NoError(t, err)
	reason := func(id, want string) {
		eventually(t, "job "+id+" shows "+want, func() (bool, string) {
			out := strings.TrimSpace(c.tool(t, u, "squeue -h -j "+id+" -o '%q %T %r'"))
			return out == want, out
		})
	}
	reason(second, "high PENDING QOSMaxGRESPerUser")

	// Without the QoS nobody may use it any more. Its waiting job goes on with the
	// default one, and its running job is waited for.
	without := c.unit(fast(qosConfig(small), `"small"`), both, nil, 0)
	p := c.plan(t, without, false)
	require.Contains(t, fmt.Sprint(p.Actions[0].Impact.Differences), "QoS high")
	require.NoError(t, c.apply(t, p))
	require.Contains(t, c.tool(t, u, "scontrol show partition fast"), "AllowQos=small\n")
	c.tool(t, u, "scontrol update partitionname=main allowqos=high,small")
	err = c.removal(t, without)
	require.ErrorIs(t, err, runtimes.ErrWaiting)
	require.ErrorContains(t, err, "QoS high still has running jobs")
	require.Contains(t, c.tool(t, u, "scontrol show partition main"), "AllowQos=ALL\n", "Berth undoes the change by scontrol")
	_, err = c.trySubmit(t, u, alice, "true\n", "--qos=high")
	require.ErrorContains(t, err, "Invalid qos")
	err = c.removal(t, without)
	require.ErrorIs(t, err, runtimes.ErrWaiting)
	require.ErrorContains(t, err, "QoS high still has running jobs")
	reason(second, "small RUNNING None")
	reason(running, "high RUNNING None")
	c.tool(t, u, "scancel "+running)
	removed := func(u plan.Unit) {
		eventually(t, "a QoS is removed", func() (bool, string) {
			err := c.removal(t, u)
			p := c.plan(t, u, false)
			return err == nil && p.Empty(), fmt.Sprint(err)
		})
	}
	removed(without)
	require.Empty(t, details(c.observe(t, without)))
	require.Equal(t, "normal\nsmall\n", c.tool(t, u, "sacctmgr -n -P list qos format=name | LC_ALL=C sort"))
	reason(second, "small RUNNING None")

	// And back to no QoS at all, which the running job outlives.
	c.tool(t, u, "scancel "+second)
	removed(c.unit(qosConfig(""), both, nil, 0))
	id, err := c.trySubmit(t, u, bob, "true\n", "--gres=gpu:2")
	require.NoError(t, err)
	c.await(t, u, id, slurmtest.Completed)
}

// qosConfig adds qualities of service to onePartition.
func qosConfig(list string) string {
	return strings.Replace(onePartition, `"scheduler"`,
		`"qos":[`+list+`],"preemption":{"by":"qos","mode":"requeue","exempt_minutes":0},"scheduler"`, 1)
}
