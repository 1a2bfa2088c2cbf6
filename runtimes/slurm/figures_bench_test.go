package slurm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// BenchmarkClusterFromNothing measures a confined cluster with 2 workers from nothing. The peer is
// the same commands by hand.
func BenchmarkClusterFromNothing(b *testing.B) {
	for b.Loop() {
		c := &company{stage: newStageOf(b, 3)}
		c.rt = c.runtime(b)
		u := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0, 1)

		// By hand first, so that Berth does not profit from files that are cached by then.
		files := c.handFiles(b, u)
		b.ReportMetric(milliseconds(1, func(int) { c.makeByHand(b, u, files) }), "by-hand-ms")
		c.removeByHand(b, u)
		b.ReportMetric(milliseconds(1, func(int) {
			c.side(b, c.plan(b, u, false))
			eventually(b, "both nodes are idle", func() (bool, string) {
				out := c.tool(b, u, "sinfo -h -N -o %T")
				return out == "idle\nidle\n", out
			})
		}), "berth-ms")
	}
}

// BenchmarkThousandNodes measures the observation of a slurmctld with 1,000 nodes. The peer is
// Slurm's list of them.
func BenchmarkThousandNodes(b *testing.B) {
	for b.Loop() {
		c := &company{stage: newStageOf(b, 2)}
		c.rt = c.runtime(b)
		u := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0, 1)
		c.carry(b, u, false)
		// All others have a line and no host.
		many := c.unit(onePartition, u.Effective.Users, nil, 0, 1)
		for i := range 998 {
			m := many.Members[2]
			m.Name, m.Node, m.Address = fmt.Sprintf("worker-%d", i+2), fmt.Sprintf("far-%d", i), fmt.Sprintf("127.1.%d.%d", i/250, 1+i%250)
			many.Members = append(many.Members, m)
		}
		p := c.plan(b, many, false)
		require.Equal(b, plan.Configure, p.Actions[0].Verb)
		p.Actions = p.Actions[:1]
		require.NoError(b, c.apply(b, p))
		b.ReportMetric(milliseconds(7, func(int) { c.tool(b, many, nodesAsJSON(c)+" >/dev/null") }), "list-ms")
		b.ReportMetric(milliseconds(7, func(int) {
			obs := c.observe(b, many)
			require.Equal(b, plan.Present, obs.Presence, obs.Reason)
			require.Contains(b, string(obs.RuntimeState), `"far-997"`)
		}), "observe-ms")
	}
}

// nodesAsJSON returns the call with which Berth lists the nodes.
func nodesAsJSON(c *company) string {
	tools, err := c.version.Tools()
	if err != nil {
		panic(err)
	}
	return tools.Nodes.Program + " " + strings.Join(tools.Nodes.Args, " ")
}

// BenchmarkFiftyWorkers measures the join of 50 workers with one change, from the first action
// until they are idle.
func BenchmarkFiftyWorkers(b *testing.B) {
	for b.Loop() {
		c := &company{stage: newStageOf(b, 50)}
		c.rt = c.runtime(b)
		c.carry(b, c.unit(onePartition, []schema.UnixUser{alice, bob}, nil), false)
		var all []int
		for i := range 50 {
			all = append(all, i)
		}
		u := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, all...)
		p := c.plan(b, u, false)
		b.ReportMetric(milliseconds(1, func(int) {
			c.side(b, p)
			eventually(b, "50 nodes are idle", func() (bool, string) {
				out := c.tool(b, u, "sinfo -h -N -o %T")
				return strings.Count(out, "idle\n") == 50, out
			})
		}), "join-ms")
	}
}

// handFiles returns the files of a cluster as Berth writes them, for makeByHand: a shell
// script. The cluster is gone afterwards.
func (c *company) handFiles(t testing.TB, u plan.Unit) string {
	t.Helper()
	c.carry(t, u, false)
	files := c.onControl(t, u, "tar -cz --absolute-names $etc/*.conf /var/lib/slurm/$(basename $etc)/accounts.cfg | base64 -w0")
	c.carry(t, u, true)
	return files
}

// command returns shell that makes the directories of a service and starts it.
func command(t testing.TB, name, unit string, params map[string]string) string {
	t.Helper()
	spec, err := profile.Profile().Services[name](unit, params)
	require.NoError(t, err)
	var b strings.Builder
	for _, d := range spec.RunDirs {
		fmt.Fprintf(&b, "mkdir -p %s; ", d.Path)
		if d.Owner != "" {
			fmt.Fprintf(&b, "chown %s:%s %s; ", d.Owner, d.Group, d.Path)
		}
	}
	for _, l := range spec.Links {
		fmt.Fprintf(&b, "ln -sfn %s %s; ", l.Target, l.Path)
	}
	run := strings.Join(append(append(append([]string{"env"}, spec.Env...), spec.Path), spec.Args...), " ")
	if spec.User != "" {
		run = fmt.Sprintf("setpriv --reuid=%s --regid=%[1]s --init-groups %s", spec.User, run)
	}
	if !spec.Forks {
		run = "setsid " + run + " </dev/null >/dev/null 2>&1 &"
	}
	return b.String() + run + "\n"
}

// makeByHand makes the cluster as an administrator does who has the files.
func (c *company) makeByHand(t testing.TB, u plan.Unit, files string) {
	t.Helper()
	stack := profile.Stack{Cluster: cluster.Name(u.Effective.Key)}
	users := ""
	for _, user := range u.Effective.Users {
		users += fmt.Sprintf("groupadd -g %d %s; useradd -m -u %[1]d -g %[1]d %[2]s\n", user.UID, user.Name)
	}
	sql := "mariadb " + strings.Join(profile.SQLArgs(), " ")
	script := "set -e\n" + users + fmt.Sprintf(`mkdir -p %[1]s %[2]s %[3]s %[4]s %[5]s
chown slurm %[1]s %[2]s %[3]s
chmod 700 %[2]s
echo %[6]s | base64 -d | tar -xz --absolute-names
chown slurm %[7]s; chmod 600 %[7]s
dd if=/dev/urandom of=%[8]s bs=128 count=1 status=none; chown munge %[8]s; chmod 400 %[8]s
chown mysql %[5]s
`, stack.Lib(), stack.State(), stack.Log(), stack.Etc(), profile.DatabaseDir, files, stack.DBDConf(), stack.Munge().Key()) +
		command(t, profile.Munged, stack.Cluster, nil) +
		"mariadb-install-db " + strings.Join(profile.InstallDBArgs(), " ") + " >/dev/null 2>&1\n" +
		command(t, profile.MariaDB, "", nil) +
		"until echo 'SELECT 1;' | " + sql + " >/dev/null 2>&1; do sleep 0.1; done\n" +
		sql + " <<'END'\n" + stack.Database().CreateSQL() + "END\n" +
		command(t, profile.Slurmdbd, stack.Cluster, nil) +
		"until sacctmgr -i -n list cluster >/dev/null 2>&1; do sleep 0.1; done\n" +
		"sacctmgr -i load file=" + stack.Accounts() + " >/dev/null\n" +
		command(t, profile.Slurmctld, stack.Cluster, nil) +
		"until scontrol ping | grep -q UP; do sleep 0.1; done\n"
	c.onControl(t, u, script)
	key := strings.TrimSpace(c.onControl(t, u, "base64 -w0 "+stack.Munge().Key()))
	control, _ := u.Control()
	port := strings.TrimSpace(c.onControl(t, u, "sed -n s/^SlurmctldPort=//p $SLURM_CONF"))
	var g errgroup.Group
	for _, m := range workersOf(u).Members {
		g.Go(func() error {
			script := "set -e\n" + users + fmt.Sprintf("mkdir -p %s %s\necho %s | base64 -d >%[4]s; chown munge %[4]s; chmod 400 %[4]s\n",
				profile.WorkerSpoolDir, profile.LogDir, key, profile.WorkerMungeKey) +
				command(t, profile.MungedWorker, stack.Cluster, nil) +
				command(t, profile.Slurmd, stack.Cluster,
					map[string]string{profile.ParamNode: m.Node, profile.ParamServer: control.Address + ":" + port})
			_, err := c.lab.Run(t.Context(), m.Node, "bash", "-c", script)
			return err
		})
	}
	require.NoError(t, g.Wait())
	c.onControl(t, u, `until [ "$(sinfo -h -N -o %T)" = "idle
idle" ]; do sleep 0.1; done`)
}

// removeByHand ends and removes what makeByHand made.
func (c *company) removeByHand(t testing.TB, u plan.Unit) {
	t.Helper()
	stack := profile.Stack{Cluster: cluster.Name(u.Effective.Key)}
	for _, m := range u.Members {
		script := "for p in $(pidof slurmctld slurmd slurmdbd munged mariadbd slurmd-wlm slurmctld-wlm slurmdbd-wlm); do kill -9 $p; " +
			"done; sleep 0.5\n" +
			"userdel -r berthtest0; userdel -r berthtest1\n" +
			"rm -rf " + strings.Join([]string{stack.Etc(), stack.Lib(), stack.Log(), stack.Munge().Key(), stack.Munge().Run(),
			stack.Munge().Log(), stack.Munge().Seed(),
			stack.Run(), profile.DatabaseDir,
			profile.DatabaseRunDir, profile.DatabaseFiles, profile.WorkerMungeKey, profile.WorkerMungeRun, profile.WorkerMungeLog,
			profile.WorkerMungeSeed, profile.WorkerSpoolDir, profile.WorkerRunDir, profile.WorkerLog}, " ")
		_, err := c.lab.Run(t.Context(), m.Node, "sh", "-c", script)
		require.NoError(t, err)
	}
}
