//go:build long

package slurm_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// slurmd runs the health check of the version as root, and the node that it drains stays so. A
// worker whose check is missing, or can be changed by others, is reported and does not join.
func TestLongHealthCheck(t *testing.T) {
	t.Parallel()
	c := &company{stage: bareStage(t)}
	c.rt = c.runtime(t)
	worker := c.workers[0].Key.Name
	run := func(script string) string {
		t.Helper()
		out, err := c.lab.Run(t.Context(), worker, "sh", "-ec", script)
		require.NoError(t, err, out)
		return out
	}
	u := c.unit(strings.Replace(onePartition, "{",
		`{"health_check":{"program":"check","digest":"`+digestOf(healthCheck)+`","interval_seconds":10},`, 1), []schema.UnixUser{alice},
		nil, 0)
	const missing = "/usr/local/libexec/berth-slurm on gpu-1 is not a dir that only root can change and run"
	require.ErrorContains(t, c.apply(t, c.plan(t, u, false)), missing)
	c.program(t, worker, "check", "#!/bin/sh\n")
	const other = "/usr/local/libexec/berth-slurm/check on gpu-1 is not the program of the version"
	require.ErrorContains(t, c.apply(t, c.plan(t, u, false)), other)
	c.program(t, worker, "check", healthCheck)
	run("chmod 0777 /usr/local/libexec/berth-slurm/check")
	require.ErrorContains(t, c.apply(t, c.plan(t, u, false)),
		"/usr/local/libexec/berth-slurm/check on gpu-1 is not a file that only root can change and run")
	run("chmod 0755 /usr/local/libexec/berth-slurm/check; chown 1:1 /usr/local/libexec/berth-slurm/check")
	require.ErrorContains(t, c.apply(t, c.plan(t, u, false)), "is not a file that only root can change and run")
	run("chown 0:0 /usr/local/libexec/berth-slurm/check")
	c.carry(t, u, false)

	c.idle(t, u, 0)
	eventually(t, "the check ran as root", func() (bool, string) {
		out := run("cat /run/checked 2>/dev/null || true")
		return strings.TrimSpace(out) == "0", out
	})
	run("rm /run/checked")
	eventually(t, "the check ran again", func() (bool, string) {
		out := run("cat /run/checked 2>/dev/null || true")
		return strings.TrimSpace(out) == "0", out
	})
	run("touch /run/unsound")
	shown := func() string { return c.tool(t, u, "scontrol -o show node "+worker) }
	eventually(t, "the check drained the node", func() (bool, string) {
		return strings.Contains(shown(), "DRAIN") && strings.Contains(shown(), "Reason=disk is full"), shown()
	})
	require.Empty(t, c.plan(t, u, false).Actions, "a drain that is not Berth's stays")

	run("rm /run/unsound; mv /usr/local/libexec/berth-slurm/check /usr/local/libexec/berth-slurm/other")
	members := c.observe(t, u).Members
	require.Len(t, members, 2)
	require.Equal(t, plan.Partial, members[1].State)
	require.Contains(t, members[1].Detail, "/usr/local/libexec/berth-slurm/check on gpu-1 is not a file")
	run("mv /usr/local/libexec/berth-slurm/other /usr/local/libexec/berth-slurm/check; echo exit >>/usr/local/libexec/berth-slurm/check")
	require.Contains(t, c.observe(t, u).Members[1].Detail, other)
	c.program(t, worker, "check", healthCheck)

	// Without the field nothing runs, and the change of it needs no restart.
	u = c.unit(onePartition, []schema.UnixUser{alice}, nil, 0)
	p := c.plan(t, u, false)
	require.Len(t, p.Actions, 1)
	require.Empty(t, p.Actions[0].Impact.Restarts)
	c.carry(t, u, false)
	require.NotContains(t, c.tool(t, u, "scontrol show config"), "berth-slurm/check")
	c.carry(t, u, true)
	run("test -x /usr/local/libexec/berth-slurm/check")
}

// healthCheck drains its node once /run/unsound exists. It writes who runs it.
const healthCheck = `#!/bin/sh
id -u >/run/checked
[ ! -e /run/unsound ] || /usr/bin/scontrol update nodename=$(sed -n 's/.*"node": *"\([^"]*\)".*/\1/p' /var/lib/berth/instances/worker.json) state=drain reason="disk is full"
`
