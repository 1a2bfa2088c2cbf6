//go:build long

package slurm_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/cluster"
	"berth/schema"
)

// logrotate renames the logs of each daemon, which then writes to a new one. Nothing of
// them is left after a leave and a deletion.
func TestLongLogsAreRotated(t *testing.T) {
	t.Parallel()
	c, u := newCompanyOn(bareStage(t), t, onePartition, 0)
	cluster := cluster.Name(u.Effective.Key)
	worker := c.workers[0].Key.Name
	run := func(node, script string) string {
		out, err := c.lab.Run(t.Context(), node, "sh", "-ec", script)
		require.NoError(t, err, out)
		return strings.TrimSpace(out)
	}
	for _, l := range []struct{ node, rules, log string }{
		{c.control.Key.Name, "berth-" + cluster, "/var/log/slurm/" + cluster + "/slurmctld.log"},
		{c.control.Key.Name, "berth-" + cluster, "/var/log/slurm/" + cluster + "/slurmdbd.log"},
		{worker, "berth-slurmd", "/var/log/slurm/berth-slurmd.log"},
	} {
		run(l.node, "echo old >>"+l.log+"; rm -f /tmp/rotated; logrotate --force --state /tmp/rotated /etc/logrotate.d/"+l.rules)
		require.Contains(t, run(l.node, "cat "+l.log+".1 /var/log/slurm/berth-slurmd/berth-slurmd.log.1 2>/dev/null || true"), "old", l.log)
		eventually(t, l.log+" is written anew", func() (bool, string) {
			out := run(l.node, "ls -l /proc/[0-9]*/fd 2>/dev/null | sed -n 's/.* -> //p' | grep '^/var/log/slurm/' | sort -u")
			return slices.Contains(strings.Fields(out), l.log) && !strings.Contains(out, ".1"), out
		})
	}
	require.Empty(t, c.observe(t, u).Drift)

	c.carry(t, c.unit(onePartition, []schema.UnixUser{alice}, nil), false)
	require.Empty(t, run(worker, "find /var/log /etc/logrotate.d -name '*berth*'"))
	c.carry(t, u, true)
	require.Empty(t, run(c.control.Key.Name, "find /var/log /etc/logrotate.d -name '*"+cluster+"*'"))
	require.Empty(t, c.remains(t, u))
}
