//go:build long

package slurm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth/reconciler/plan"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// TestLongFigures measures a cluster from nothing beside the same commands by hand, and what
// a reconcile without a change writes.
func TestLongFigures(t *testing.T) {
	c := &company{stage: newStageOf(t, 3)}
	rec := &recorder{inner: c.hosts}
	rec.reset()
	c.rt = slurm.New(slurm.Options{Hosts: rec})
	u := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0, 1)

	// By hand first, so that Berth does not profit from what was read before.
	files := c.handFiles(t, u)
	began := time.Now()
	c.makeByHand(t, u, files)
	byHand := time.Since(began)
	c.removeByHand(t, u)
	began = time.Now()
	c.side(t, c.plan(t, u, false))
	byBerth := time.Since(began)
	eventually(t, "both nodes are idle", func() (bool, string) {
		out := c.tool(t, u, "sinfo -h -N -o %T")
		return out == "idle\nidle\n", out
	})
	t.Logf("Slurm %s: a confined cluster with 2 workers from nothing: %.1f s, the same commands by hand %.1f s", c.version, byBerth.Seconds(), byHand.Seconds())

	rec.reset()
	for range 3 {
		p := c.plan(t, u, false)
		require.True(t, p.Empty(), "%+v", p.Actions)
	}
	require.Zero(t, rec.effects(), "writes of a reconcile without a change")
	require.LessOrEqual(t, byBerth, 2*byHand, "a cluster from nothing, and by hand")
}

// TestLongThousandNodes measures the observation of a slurmctld with 1,000 nodes.
func TestLongThousandNodes(t *testing.T) {
	c := &company{stage: newStageOf(t, 3)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0, 1)
	c.carry(t, u, false)
	// All others have a line and no host.
	many := c.unit(onePartition, u.Effective.Users, nil, 0, 1)
	for i := range 998 {
		m := many.Members[2]
		m.Name, m.Node, m.Address = fmt.Sprintf("worker-%d", i+2), fmt.Sprintf("far-%d", i), fmt.Sprintf("127.1.%d.%d", i/250, 1+i%250)
		many.Members = append(many.Members, m)
	}
	p := c.plan(t, many, false)
	require.Equal(t, plan.Configure, p.Actions[0].Verb)
	p.Actions = p.Actions[:1]
	require.NoError(t, c.apply(t, p))
	measured := func(what string, f func()) time.Duration {
		var all []time.Duration
		for range 7 {
			began := time.Now()
			f()
			all = append(all, time.Since(began))
		}
		slices.Sort(all)
		t.Logf("Slurm %s: %s: median %.2f s, %.2f to %.2f s", c.version, what, all[3].Seconds(), all[0].Seconds(), all[6].Seconds())
		return all[0]
	}
	measured("scontrol show nodes, of 1,000", func() { c.tool(t, many, "scontrol -o show nodes >/dev/null") })
	measured("the list of 1,000 nodes as JSON", func() { c.tool(t, many, nodesAsJSON(c)+" >/dev/null") })
	fastest := measured("1,000 nodes observed", func() {
		obs := c.observe(t, many)
		require.Equal(t, plan.Present, obs.Presence, obs.Reason)
		require.Contains(t, string(obs.RuntimeState), `"far-997"`)
	})
	// Where other tests run at the same time, Slurm's list alone may take longer than a second.
	require.LessOrEqual(t, fastest, 3*time.Second, "three times the figure to reach")
}

// nodesAsJSON returns the call with which Berth lists the nodes.
func nodesAsJSON(c *company) string {
	tools, err := c.version.Tools()
	if err != nil {
		panic(err)
	}
	return tools.Nodes.Program + " " + strings.Join(tools.Nodes.Args, " ")
}

// TestLongFiftyWorkers joins 50 workers with one change.
func TestLongFiftyWorkers(t *testing.T) {
	c := &company{stage: newStageOf(t, 50)}
	c.rt = c.runtime(t)
	c.carry(t, c.unit(onePartition, []schema.UnixUser{alice, bob}, nil), false)
	var all []int
	for i := range 50 {
		all = append(all, i)
	}
	u := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, all...)
	p := c.plan(t, u, false)
	began := time.Now()
	c.side(t, p)
	eventually(t, "50 nodes are idle", func() (bool, string) {
		out := c.tool(t, u, "sinfo -h -N -o %T")
		return strings.Count(out, "idle\n") == 50, out
	})
	took := time.Since(began)
	t.Logf("Slurm %s: 50 workers joined in %.1f s from the first action to idle", c.version, took.Seconds())
	require.LessOrEqual(t, took, 40*time.Second, "twice the figure to reach, as other tests run at the same time")
}

// handFiles returns the files of a cluster as Berth writes them, for makeByHand: a shell
// script. The cluster is gone afterwards.
func (c *company) handFiles(t *testing.T, u plan.Unit) string {
	t.Helper()
	c.carry(t, u, false)
	files := c.onControl(t, u, "tar -cz --absolute-names $etc/*.conf /var/lib/slurm/$(basename $etc)/accounts.cfg | base64 -w0")
	c.carry(t, u, true)
	return files
}

// command returns shell that makes the directories of a service and starts it.
func command(t *testing.T, name, unit string, params map[string]string) string {
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
func (c *company) makeByHand(t *testing.T, u plan.Unit, files string) {
	t.Helper()
	stack := profile.Stack{Cluster: slurm.ClusterName(u.Effective.Key)}
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
`, stack.Lib(), stack.State(), stack.Log(), stack.Etc(), profile.DatabaseDir, files, stack.DBDConf(), stack.MungeKey()) +
		command(t, profile.Munged, stack.Cluster, nil) +
		"mariadb-install-db " + strings.Join(profile.InstallDBArgs(), " ") + " >/dev/null 2>&1\n" +
		command(t, profile.MariaDB, "", nil) +
		"until echo 'SELECT 1;' | " + sql + " >/dev/null 2>&1; do sleep 0.1; done\n" +
		sql + " <<'END'\n" + stack.CreateDatabaseSQL() + "END\n" +
		command(t, profile.Slurmdbd, stack.Cluster, nil) +
		"until sacctmgr -i -n list cluster >/dev/null 2>&1; do sleep 0.1; done\n" +
		"sacctmgr -i load file=" + stack.Accounts() + " >/dev/null\n" +
		command(t, profile.Slurmctld, stack.Cluster, nil) +
		"until scontrol ping | grep -q UP; do sleep 0.1; done\n"
	c.onControl(t, u, script)
	key := strings.TrimSpace(c.onControl(t, u, "base64 -w0 "+stack.MungeKey()))
	control, _ := u.Control()
	port := strings.TrimSpace(c.onControl(t, u, "sed -n s/^SlurmctldPort=//p $SLURM_CONF"))
	var g errgroup.Group
	for _, m := range workersOf(u).Members {
		g.Go(func() error {
			script := "set -e\n" + users + fmt.Sprintf("mkdir -p %s %s\necho %s | base64 -d >%[4]s; chown munge %[4]s; chmod 400 %[4]s\n",
				profile.WorkerSpoolDir, profile.LogDir, key, profile.WorkerMungeKey) +
				command(t, profile.MungedWorker, stack.Cluster, nil) +
				command(t, profile.Slurmd, stack.Cluster, map[string]string{profile.ParamNode: m.Node, profile.ParamServer: control.Address + ":" + port})
			_, err := c.lab.Run(t.Context(), m.Node, "bash", "-c", script)
			return err
		})
	}
	require.NoError(t, g.Wait())
	c.onControl(t, u, `until [ "$(sinfo -h -N -o %T)" = "idle
idle" ]; do sleep 0.1; done`)
}

// removeByHand ends and removes what makeByHand made.
func (c *company) removeByHand(t *testing.T, u plan.Unit) {
	t.Helper()
	stack := profile.Stack{Cluster: slurm.ClusterName(u.Effective.Key)}
	for _, m := range u.Members {
		script := "for p in $(pidof slurmctld slurmd slurmdbd munged mariadbd slurmd-wlm slurmctld-wlm slurmdbd-wlm); do kill -9 $p; done; sleep 0.5\n" +
			"userdel -r berthtest0; userdel -r berthtest1\n" +
			"rm -rf " + strings.Join([]string{stack.Etc(), stack.Lib(), stack.Log(), stack.MungeKey(), stack.MungeRun(), stack.MungeLog(), stack.MungeSeed(), stack.Run(), profile.DatabaseDir,
			profile.DatabaseRunDir, profile.DatabaseFiles, profile.WorkerMungeKey, profile.WorkerMungeRun, profile.WorkerMungeLog, profile.WorkerMungeSeed, profile.WorkerSpoolDir, profile.WorkerRunDir, profile.WorkerLog}, " ")
		_, err := c.lab.Run(t.Context(), m.Node, "sh", "-c", script)
		require.NoError(t, err)
	}
}
