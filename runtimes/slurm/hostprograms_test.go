package slurm_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// program puts a program on a worker, as its administrator does.
func (c *company) program(t *testing.T, worker, name, script string) {
	t.Helper()
	out, err := c.lab.Run(t.Context(), worker, "sh", "-ec",
		"mkdir -p -m 0755 /usr/local/libexec/berth-slurm; cd /usr/local/libexec/berth-slurm\n"+
			"cat >"+name+" <<'END'\n"+script+"END\nchmod 0755 "+name)
	require.NoError(t, err, out)
	t.Cleanup(func() {
		_, err := c.lab.Run(context.Background(), worker, "sh", "-c",
			"rm -rf /usr/local/libexec/berth-slurm /run/unsound /run/slow /run/job-programs")
		require.NoError(t, err)
	})
}

func digestOf(script string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(script))) }

// Each worker of a job runs the prolog as root before the job and the epilog after it. A change
// of them concerns later jobs only, and is refused while a worker lacks the program. A worker
// whose prolog fails drains, and its job is queued again.
func TestJobPrograms(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition, 0)
	worker := c.workers[0].Key.Name
	const prolog, epilog = `#!/bin/sh
echo "prolog of $SLURM_JOB_ID as $(id -u)" >>/run/job-programs
[ ! -e /run/slow ] || sleep 15
[ ! -e /run/unsound ]
`, `#!/bin/sh
echo "epilog of $SLURM_JOB_ID as $(id -u)" >>/run/job-programs
`
	run := func(script string) string {
		t.Helper()
		out, err := c.lab.Run(t.Context(), worker, "sh", "-ec", script)
		require.NoError(t, err, out)
		return out
	}
	early := c.submit(t, u, alice, "sleep 600", 0)
	running := c.await(t, u, early, slurmtest.Running)
	config := strings.Replace(onePartition, "{",
		fmt.Sprintf(`{"job_programs":{"prolog":{"program":"before","digest":%q},"epilog":{"program":"after","digest":%q},"timeout_seconds":60},`,
			digestOf(prolog), digestOf(epilog)), 1)
	u = c.unit(config, []schema.UnixUser{alice}, nil, 0)
	p := c.plan(t, u, false)
	require.Len(t, p.Actions, 1)
	require.Empty(t, p.Actions[0].Impact.Restarts)
	require.Contains(t, fmt.Sprint(p.Actions[0].Impact.Notes),
		"before a job that starts from then on, each of its workers runs /usr/local/libexec/berth-slurm/before as root")
	c.program(t, worker, "before", prolog)
	require.ErrorContains(t, c.apply(t, p), "/usr/local/libexec/berth-slurm/after on gpu-1 is not a file")
	require.NotContains(t, c.tool(t, u, "scontrol show config"), "berth-slurm/before", "nothing names a program that is missing")
	c.program(t, worker, "after", epilog)
	c.carry(t, u, false)
	require.Equal(t, running, c.await(t, u, early, slurmtest.Running))

	run("touch /run/slow")
	job := c.submit(t, u, alice, "true", 0)
	c.await(t, u, job, slurmtest.Completed)
	eventually(t, "prolog and epilog ran", func() (bool, string) {
		out := run("cat /run/job-programs")
		return out == "prolog of "+job+" as 0\nepilog of "+job+" as 0\n", out
	})
	c.tool(t, u, "scancel "+early)
	eventually(t, "the early job's end runs the epilog", func() (bool, string) {
		out := run("cat /run/job-programs")
		return strings.HasSuffix(out, "epilog of "+early+" as 0\n"), out
	})

	run("rm /run/slow; touch /run/unsound")
	job = c.submit(t, u, alice, "true", 0)
	shown := func() string { return c.tool(t, u, "scontrol -o show node "+worker) }
	eventually(t, "the worker drains", func() (bool, string) { return strings.Contains(shown(), "DRAIN"), shown() })
	require.Contains(t, shown(), "Reason=Prolog error")
	require.Empty(t, c.plan(t, u, false).Actions, "a drain that is not Berth's stays")
	run("rm /run/unsound")
	c.tool(t, u, "scontrol update nodename="+worker+" state=resume")
	c.await(t, u, job, slurmtest.Pending) // for some minutes more
	job = c.submit(t, u, alice, "true", 0)
	c.await(t, u, job, slurmtest.Completed)

	run("echo exit >>/usr/local/libexec/berth-slurm/before")
	require.Contains(t, c.observe(t, u).Members[1].Detail,
		"/usr/local/libexec/berth-slurm/before on gpu-1 is not the program of the version")
}
