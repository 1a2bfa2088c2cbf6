//go:build long

package slurm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/profile"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
	"berth/schema/queue"
)

// A job that slurmctld lost in a crash stays lost when Berth has ended it in accounting, which then has it as COMPLETED: the queue
// says so, and the same submission makes it again.
func TestLongLostJobStaysLost(t *testing.T) {
	t.Parallel()
	c := &company{stage: bareStage(t)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0)
	c.carry(t, u, false)
	at := c.queueOf(u, "physics.lattice", nil)
	state := profile.StateDir + "/$(basename $(dirname $SLURM_CONF))/state"
	submit := func(key string) queue.Job {
		job, err := c.rt.Submit(t.Context(), at, submission("physics.lattice", alice, key, "sleep 6000"))
		require.NoError(t, err)
		return job
	}
	submit("kept")
	eventually(t, "slurmctld has saved a job", func() (bool, string) {
		saved := c.onControl(t, u, "ls "+state+"/job_state || true")
		return strings.TrimSpace(saved) != "", saved
	})
	c.onControl(t, u, "cp -a "+state+" /root/saved")
	job := submit("lost")
	c.await(t, u, job.JobID, slurmtest.Running)
	accounted := func() string {
		return strings.TrimSpace(c.tool(t, u, "sacct -anPX -o State -j "+job.JobID))
	}
	eventually(t, "accounting has its start", func() (bool, string) { return accounted() == "RUNNING", accounted() })

	c.onControl(t, u, "kill -KILL $(cat $run/slurmctld.pid); rm "+state+"/job_state*; cp -a /root/saved/job_state* "+state)
	// A start of slurmctld ends lost jobs if slurmdbd has all messages by then.
	eventually(t, "Berth has ended it in accounting", func() (bool, string) {
		c.onControl(t, u, "kill -KILL $(cat $run/slurmctld.pid) || true")
		err := c.apply(t, c.plan(t, u, false))
		return accounted() == "COMPLETED", fmt.Sprint(accounted(), err)
	})
	was, err := c.rt.Job(t.Context(), at, queue.Ref{JobID: job.JobID, Submitted: job.Submitted})
	require.NoError(t, err)
	require.Equal(t, "LOST", was.State)
	require.Contains(t, was.Reason, "submit it again")
	require.NotEqual(t, job.JobID, submit("lost").JobID)
	c.tool(t, u, "scancel --user="+alice.Name)
}
