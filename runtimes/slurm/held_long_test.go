//go:build long

package slurm_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// A worker whose spool became read-only cannot start a job: Slurm holds the job, and Berth says which and where. The worker is
// drained before it gets more, and takes jobs again once the disk can be written.
func TestLongWorkerThatCannotStartJobs(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStageOf(t, 2)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0, 1)
	c.carry(t, u, false)
	bad := c.workers[0].Key.Name
	const spool = "/var/lib/slurm/berth-slurmd"
	c.onWorker(t, 0, "mount --bind "+spool+" "+spool+" && mount -o remount,bind,ro "+spool)
	held, err := c.trySubmit(t, u, alice, "sleep 600", "--nodelist="+bad)
	require.NoError(t, err)
	eventually(t, "the job is held", func() (bool, string) {
		text := c.tool(t, u, "squeue -h -o %r -j "+held)
		return strings.Contains(text, "launch failed requeued held") || strings.Contains(text, "JobHeldAdmin"), text
	})
	eventually(t, "the worker says so", func() (bool, string) {
		m := c.member(t, u, "worker-0")
		return m.State == plan.Partial && strings.Contains(m.Detail, spool+" on "+bad+" is read-only") &&
			strings.Contains(m.Note, "could not start the jobs "+held+", which Slurm holds"), m.Detail + "; " + m.Note
	})
	require.ErrorContains(t, c.apply(t, c.plan(t, u, false)), "the node is drained, as jobs may fail to start")
	require.Regexp(t, "(?i)drain", c.tool(t, u, "sinfo -h -N -n "+bad+" -o %T"))
	next, err := c.trySubmit(t, u, alice, "true")
	require.NoError(t, err)
	require.Contains(t, c.await(t, u, next, slurmtest.Completed).Nodes, c.workers[1].Key.Name)

	c.onWorker(t, 0, "umount "+spool)
	c.carry(t, u, false)
	c.tool(t, u, "scontrol release "+held)
	eventually(t, "no job is held", func() (bool, string) { // it is eligible two minutes after its requeue
		note := c.member(t, u, "worker-0").Note
		return note == "", note
	})
	c.tool(t, u, "scancel "+held)
}
