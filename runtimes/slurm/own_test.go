package slurm_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// ownFiles are files that hosts have before Berth: the munge key of the package,
// leftovers of munge and Slurm, and directories with other modes than Berth's.
const ownFiles = `set -e
install -o munge -g munge -m 0600 /dev/null /etc/munge/munge.key
echo "the host's own key, which is long enough" >/etc/munge/munge.key
chmod 0755 /var/log/munge
for f in /var/log/munge/munged.log /var/lib/munge/munged.seed /var/log/slurm/slurmd.log; do echo old >$f; done
chown munge:munge /var/log/munge/munged.log /var/lib/munge/munged.seed
echo ClusterName=other >/etc/slurm/slurm.conf
mkdir -p /etc/slurm/scripts /var/lib/slurm/slurmd
echo '#!/bin/sh' >/etc/slurm/scripts/prolog
`

// haveOwnFiles writes ownFiles on each host. The last worker has no files of Slurm,
// and the one before no directories of munge.
func (s *stage) haveOwnFiles(t *testing.T) {
	t.Helper()
	run := func(node, script string) {
		_, err := s.lab.Run(t.Context(), node, "sh", "-c", script)
		require.NoError(t, err)
	}
	run(s.control.Key.Name, ownFiles)
	for _, w := range s.workers {
		run(w.Key.Name, ownFiles)
	}
	run(s.workers[1].Key.Name, "rm -r /var/log/munge /var/log/slurm")
	run(s.workers[2].Key.Name, "rm -r /etc/slurm /var/lib/slurm /var/log/slurm /var/lib/munge /var/log/munge /etc/munge")
}

// look describes the paths of a host. In /var it has only what Berth, munge, Slurm
// and MariaDB could change, as the rest belongs to this machine. The helper's files,
// sudo's record of logins, the lab's images, which this machine may build meanwhile, and
// processes that have ended and wait for their parent are left out. Of the many or large files in /usr/local and
// /var/lib/mysql it has the time of the last change instead of the content.
const look = `set -e
cd /
{
	find etc run tmp usr/local home var/lib/munge var/lib/slurm var/lib/berth/instances var/lib/mysql var/log/munge var/log/slurm var/spool -printf '/%p\t%y %m %U:%G %l\n' 2>/dev/null || true
	find var var/lib var/log var/cache var/tmp -maxdepth 1 -printf '/%p\t%y %m %U:%G %l\n'
	find usr/local home var/lib/mysql -type f -printf 'content of /%p\t%s bytes changed at %C@\n' 2>/dev/null || true
	find etc run var/lib/munge var/lib/slurm var/lib/berth/instances var/log/munge var/log/slurm var/spool -type f -exec sha256sum {} + 2>/dev/null | sed -E 's|^(.{64})  (.*)|content of /\2\t\1|' || true
	ps -e -o comm= | grep -v '<defunct>' | grep -E 'slurm|munge|maria|mysql' | sort | uniq -c | sed 's/^/processes\t/' || true
} | grep -vE '^(content of )?/(run/sudo(/.*)?|var/lib/berth|var/cache/berth-lab)[[:space:]]' || true
`

func (s *stage) snapshot(t *testing.T, node string) map[string]string {
	t.Helper()
	out, err := s.lab.Run(t.Context(), node, "bash", "-c", look)
	require.NoError(t, err)
	found := map[string]string{}
	for line := range strings.Lines(out) {
		name, what, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		found[name] += what + "\n"
	}
	return found
}

// occupy starts the distribution's munge on a host as its package does.
func (s *stage) occupy(t *testing.T, node string) func() {
	t.Helper()
	_, err := s.lab.Run(t.Context(), node, "sh", "-c", `set -e
mkdir -p /run/occupied
echo "a key that is nobody's, and long enough" >/run/occupied/key
chmod 0600 /run/occupied/key
cd /run/occupied
munged --key-file=$PWD/key --socket=$PWD/socket --pid-file=$PWD/pid --log-file=$PWD/log --seed-file=$PWD/seed`)
	require.NoError(t, err)
	return func() {
		_, err := s.lab.Run(t.Context(), node, "sh", "-c",
			"p=$(cat /run/occupied/pid); kill $p; while test -d /proc/$p; do sleep 0.01; done; rm -r /run/occupied")
		require.NoError(t, err)
	}
}

// A cluster whose hosts lost the helper's record of paths goes on, and leaves nothing when it is deleted.
func TestClusterWithoutTheRecordOfPathsIsRemoved(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStageOf(t, 1)} // the deletion leaves paths that only the record of paths names
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0)
	c.carry(t, u, false)
	for _, n := range []string{c.control.Key.Name, c.workers[0].Key.Name} {
		_, err := c.lab.Run(t.Context(), n, "rm", "/var/lib/berth/paths.json")
		require.NoError(t, err)
	}
	require.Empty(t, c.plan(t, u, false).Actions)
	id := c.submit(t, u, alice, "exit 0", 1)
	c.await(t, u, id, slurmtest.Completed)
	c.carry(t, u, true)
	require.Empty(t, c.remains(t, u))
}
