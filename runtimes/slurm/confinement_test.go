package slurm_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/slurmtest"
)

// output runs a job on the first worker to its end and returns the job with the text that
// it wrote.
func (c *company) output(t *testing.T, u plan.Unit, end slurmtest.State, script string, options ...string) (slurmtest.Job, string) {
	t.Helper()
	id, err := c.trySubmit(t, u, alice, "exec >/tmp/out.$SLURM_JOB_ID 2>&1\n"+script+"\n", options...)
	require.NoError(t, err)
	job := c.await(t, u, id, end)
	out, err := c.lab.Run(t.Context(), c.workers[0].Key.Name, "cat", "/tmp/out."+id)
	require.NoError(t, err)
	return job, strings.TrimSpace(out)
}

// A job has the GPUs, the memory and the CPUs that it asked for and no others, and leaves no
// process.
func TestJobsAreConfined(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition, 0)
	const open = `for g in 0 1; do if (: <>/dev/nvidia$g) 2>/dev/null; then echo "$g opened"; else echo "$g denied"; fi; done`

	_, out := c.output(t, u, slurmtest.Completed, open, "--gres=gpu:1", "--cpus-per-task=1")
	require.Equal(t, "0 opened\n1 denied", out)
	_, out = c.output(t, u, slurmtest.Completed, open, "--cpus-per-task=1")
	require.Equal(t, "0 denied\n1 denied", out)
	_, out = c.output(t, u, slurmtest.Completed, "/bin/srun /bin/sh -c '"+open+"'", "--gres=gpu:2")
	require.Equal(t, "0 opened\n1 opened", out)

	_, out = c.output(t, u, slurmtest.Completed, "nproc", "--cpus-per-task=1")
	require.Equal(t, "1", out)

	job, _ := c.output(t, u, slurmtest.Failed, "head -c 400M /dev/zero | tail -n 1 >/dev/null; sleep 1", "--mem=100")
	require.Contains(t, job.Detail, "OUT_OF_MEMORY")

	c.output(t, u, slurmtest.Completed, "setsid sleep 4711 &\nsleep 0.2")
	eventually(t, "no process of the job is left", func() (bool, string) {
		left, err := c.lab.Run(t.Context(), c.workers[0].Key.Name, "sh", "-c", "grep -alz '[4]711' /proc/[0-9]*/cmdline || true")
		require.NoError(t, err)
		return !strings.Contains(left, "proc"), left
	})
}
