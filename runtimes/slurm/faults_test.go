package slurm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/profile"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// onControl runs a line of shell on the control host. $etc, $run and $SLURM_CONF are those
// of the unit.
func (c *company) onControl(t testing.TB, u plan.Unit, script string) string {
	t.Helper()
	name := slurm.ClusterName(u.Effective.Key)
	out, err := c.lab.Run(t.Context(), c.control.Key.Name, "sh", "-c",
		"etc=/etc/slurm/"+name+"; run=/run/slurm-"+name+"; export SLURM_CONF=$etc/slurm.conf; "+script)
	require.NoError(t, err, out)
	return out
}

// verbs returns the verbs of a plan's actions.
func verbs(p plan.Plan) []plan.Verb {
	var list []plan.Verb
	for _, a := range p.Actions {
		list = append(list, a.Verb)
	}
	return list
}

// brokenFile is a fault in the files of a control stack: the file, the shell command, and
// the daemon that is also killed while the file is broken.
type brokenFile struct{ name, file, script, killed string }

// Files of the control stack that were broken are restored, whether their daemon runs
// or not, and no job ends. No daemon restarts that did not read them.
func TestBrokenFilesAreRestored(t *testing.T) {
	t.Parallel()
	brokenFilesAreRestored(t,
		brokenFile{"unknown key in slurm.conf", "slurm.conf", "echo NoSuchKey=1 >>$etc/slurm.conf", "slurmctld"},
		brokenFile{"directory removed", "slurm.conf", "rm -r $etc", ""},
		brokenFile{"slurmdbd.conf removed", "slurmdbd.conf", "rm $etc/slurmdbd.conf", "slurmdbd"},
	)
}

func brokenFilesAreRestored(t *testing.T, faults ...brokenFile) {
	c := &company{stage: bareStage(t)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0, 1)
	c.carry(t, u, false)
	id, err := c.trySubmit(t, u, alice, "sleep 600\n", "--gres=gpu:1", "--nodelist="+u.Members[1].Node)
	require.NoError(t, err)
	job := c.await(t, u, id, slurmtest.Running)
	c.saved(t, u, id) // a killed slurmctld loses newer jobs
	content := func() string { return c.onControl(t, u, "cd $etc && stat -c '%n %a %U' *.conf && cat *.conf") }
	good := content()
	pid := func(daemon string) string { return c.onControl(t, u, "cat $run/"+daemon+".pid") }
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			ctld := pid("slurmctld")
			c.onControl(t, u, fault.script)
			obs := c.observe(t, u)
			require.Equal(t, plan.Running, obs.Members[0].State, obs.Members[0].Detail)
			require.NotEmpty(t, obs.Drift)
			require.Contains(t, fmt.Sprint(obs.Drift), fault.file+" is not as Berth writes it")
			require.Equal(t, []plan.Verb{plan.Configure}, verbs(c.plan(t, u, false)))
			c.carry(t, u, false)
			require.Equal(t, good, content())
			if !c.version.Reexecutes() {
				require.Equal(t, ctld, pid("slurmctld"), "slurmctld was restarted")
			}
			require.Equal(t, job, c.await(t, u, job.ID, slurmtest.Running))

			if fault.killed == "" {
				return
			}
			c.onControl(t, u, fault.script)
			c.onControl(t, u, "p=$(cat $run/"+fault.killed+".pid); kill -9 $p; while test -d /proc/$p; do sleep 0.01; done")
			require.Equal(t, plan.Stopped, c.observe(t, u).Members[0].State)
			c.carry(t, u, false)
			require.Equal(t, good, content())
			require.Equal(t, job, c.await(t, u, job.ID, slurmtest.Running))
		})
	}

	// Every other verb restores them too.
	const breakIt = "echo NoSuchKey=1 >>$etc/slurm.conf"
	apply := func(verb plan.Verb, after *plan.Unit) {
		before := u
		p := plan.Plan{Key: u.Effective.Key, Before: &before, After: after, Actions: []plan.Action{{ID: "x", Verb: verb, Member: "worker-1", Node: u.Members[2].Node}}}
		require.NoError(t, c.apply(t, p), verb)
	}
	c.onControl(t, u, "scancel "+job.ID)
	c.await(t, u, job.ID, slurmtest.Failed)
	for _, verb := range []plan.Verb{plan.Start, plan.Leave, plan.Join, plan.Stop} {
		c.onControl(t, u, breakIt)
		apply(verb, &u)
		require.NotContains(t, content(), "NoSuchKey", verb)
	}
	c.carry(t, u, false)
	require.Equal(t, good, content())
	c.onControl(t, u, "rm $etc/slurm.conf")
	apply(plan.Delete, nil)
	require.Empty(t, c.remains(t, u))
}

// A munged that runs and answers nothing is restarted once, and not again within
// ten minutes. slurmctld, which needs it, goes on.
func TestHungDaemonBelowSlurmctldIsRestartedOnce(t *testing.T) {
	t.Parallel()
	belowSlurmctldIsRestartedOnce(t, "munged")
}

func belowSlurmctldIsRestartedOnce(t *testing.T, daemon string) {
	c := &company{stage: bareStage(t)}
	slurmctld := func() string { return c.pid(t, c.control.Key.Name, "slurmctld") }
	u := c.hangs(t)
	was := slurmctld()
	c.restartedOnce(t, u, c.control.Key.Name, daemon)
	require.Equal(t, was, slurmctld())
}

// short are the deadlines of tests that wait for their end. A busy daemon that answers meets one of them.
var short = slurm.Timeouts{Call: 5 * time.Second, Probe: 6 * time.Second, Ready: generous.Ready}

// hangs makes a cluster for daemons that hang.
func (c *company) hangs(t *testing.T) plan.Unit {
	t.Helper()
	c.rt = slurm.New(slurm.Options{Hosts: c.hosts, Timeouts: short})
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0)
	c.carry(t, u, false)
	return u
}

// pid returns the process of a daemon on a host.
func (c *company) pid(t *testing.T, host, daemon string) string {
	t.Helper()
	out, err := c.lab.Run(t.Context(), host, "pgrep", "-x", daemon)
	require.NoError(t, err, out)
	return strings.TrimSpace(out)
}

// restartedOnce stops a daemon twice by SIGSTOP.
func (c *company) restartedOnce(t *testing.T, u plan.Unit, host, daemon string) {
	t.Helper()
	signal := func(name string) (pid string) {
		pid = c.pid(t, host, daemon)
		out, err := c.lab.Run(t.Context(), host, "kill", "-"+name, pid)
		require.NoError(t, err, out)
		return pid
	}
	reported := func() (p plan.Plan) {
		eventually(t, daemon+" that hangs is reported", func() (bool, string) {
			p = c.plan(t, u, false)
			return len(p.Actions) > 0, fmt.Sprint(c.observe(t, u).Members)
		})
		return p
	}
	converged := func() (bool, string) { p := c.plan(t, u, false); return p.Empty(), fmt.Sprint(p.Actions) }

	was, began := signal("STOP"), time.Now()
	p := reported()
	seen := time.Since(began)
	require.Equal(t, []plan.Verb{plan.Start}, verbs(p), daemon)
	require.Contains(t, p.Actions[0].Reason, "runs and does not answer", daemon)
	require.NoError(t, c.apply(t, p), daemon)
	t.Logf("%s that hung reported after %.1f s, restarted after %.1f s", daemon, seen.Seconds(), time.Since(began).Seconds())
	require.NotEqual(t, was, c.pid(t, host, daemon))
	eventually(t, "nothing left to do after the restart of "+daemon, converged)
	require.Contains(t, string(c.observe(t, u).RuntimeState), `"`+daemon)

	was = signal("STOP")
	require.ErrorContains(t, c.apply(t, reported()), "was restarted for that at", daemon)
	require.Equal(t, was, c.pid(t, host, daemon))
	signal("CONT")
	// slurmctld does not ping a node that is DOWN; it asks it to register some minutes later.
	c.onControl(t, u, "scontrol update nodename="+u.Members[1].Node+" state=resume || true")
	eventually(t, "nothing left to do once "+daemon+" goes on", converged)
}

// A slurmctld or slurmdbd that runs and answers nothing is restarted once, and not again
// within ten minutes. One that answers slowly is left alone.
func TestHungDaemonIsRestartedOnce(t *testing.T) {
	t.Parallel()
	c := &company{stage: bareStage(t)}
	var late time.Duration
	restartBerth := func() {
		c.rt = slurm.New(slurm.Options{
			Hosts: c.hosts, Timeouts: short,
			Now: func() time.Time { return time.Now().Add(late) },
		})
	}
	restartBerth()
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0)
	c.carry(t, u, false)
	job := c.await(t, u, c.submit(t, u, alice, "sleep 600", 1), slurmtest.Running)
	pid := func(daemon string) string { return c.onControl(t, u, "cat $run/"+daemon+".pid") }
	signal := func(sig, daemon string) { c.onControl(t, u, "kill -"+sig+" $(cat $run/"+daemon+".pid)") }

	for _, daemon := range []string{"slurmctld", "slurmdbd"} {
		was := pid(daemon)
		signal("STOP", daemon)
		obs := c.observe(t, u)
		require.Equal(t, plan.Hung, obs.Members[0].State)
		require.Contains(t, obs.Members[0].Detail, daemon+" runs and does not answer")
		p := c.plan(t, u, false)
		require.Equal(t, []plan.Verb{plan.Start}, verbs(p))
		require.Contains(t, p.Actions[0].Reason, "runs and does not answer")
		require.Equal(t, []string{"control plane"}, p.Actions[0].Impact.Restarts)
		began := time.Now()
		require.NoError(t, c.apply(t, p))
		t.Logf("%s that hung restarted after %.1f s", daemon, time.Since(began).Seconds())
		require.NotEqual(t, was, pid(daemon))
		require.True(t, func() bool { p := c.plan(t, u, false); return p.Empty() }())
		require.Contains(t, string(c.observe(t, u).RuntimeState), `"hung"`)
		require.Equal(t, job, c.await(t, u, job.ID, slurmtest.Running))
	}

	// It hangs again within ten minutes.
	restartBerth()
	was := pid("slurmctld")
	signal("STOP", "slurmctld")
	late = 8 * time.Minute
	err := c.apply(t, c.plan(t, u, false))
	require.ErrorContains(t, err, "was restarted for that at")
	require.Equal(t, was, pid("slurmctld"))
	signal("CONT", "slurmctld")
	require.True(t, func() bool { p := c.plan(t, u, false); return p.Empty() }())

	// Slow: it answers a probe, and no call of an observation.
	late = time.Hour
	c.hosts.onRun(func(run *runtimes.Run) {
		probes := run.Program == "scontrol" && run.Args[0] == "ping" && run.TimeoutMS >= int(short.Probe.Milliseconds())
		if probes || run.TimeoutMS == int(generous.Call.Milliseconds()) {
			signal("CONT", "slurmctld")
		}
	})
	signal("STOP", "slurmctld")
	p := c.plan(t, u, false)
	require.Equal(t, []plan.Verb{plan.Start}, verbs(p))
	require.NoError(t, c.apply(t, p))
	require.Equal(t, was, pid("slurmctld"), "a slow slurmctld was restarted")
	signal("STOP", "slurmctld")
	patient := &company{stage: c.stage, rt: c.runtime(t)}
	require.True(t, func() bool { p := patient.plan(t, u, false); return p.Empty() }(), "a longer limit of a call does not help")
	c.hosts.onRun(nil)
	require.Equal(t, was, pid("slurmctld"))
	require.Equal(t, job, c.await(t, u, job.ID, slurmtest.Running))
}

// A change of the accounting database may take longer than other commands (S6 of the
// trial on machines with systemd).
func TestSlowDatabaseIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStage(t)}
	c.rt = slurm.New(slurm.Options{Hosts: c.hosts, Timeouts: slurm.Timeouts{Call: 5 * time.Second}})
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0)
	c.carry(t, u, false)
	u = c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0)
	p := c.plan(t, u, false)
	c.onControl(t, u, "p=$(cat $run/slurmdbd.pid); kill -STOP $p; (sleep 8; kill -CONT $p) >/dev/null 2>&1 &")
	require.NoError(t, c.apply(t, p))
	c.carry(t, u, false)
}

// A slurmd that hangs is restarted once slurmctld has given its node up, and not twice.
func TestHungWorkerIsRestarted(t *testing.T) {
	t.Parallel()
	c := &company{stage: bareStage(t)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0)
	c.carry(t, u, false)
	_, err := c.lab.Run(t.Context(), u.Members[1].Node, "sh", "-c", "kill -STOP $(cat "+profile.WorkerPID+")")
	require.NoError(t, err)
	c.onControl(t, u, "scontrol update nodename="+u.Members[1].Node+" state=down reason=hangs")
	eventually(t, "the node is down", func() (bool, string) {
		s := c.observe(t, u).Members[1]
		return s.State == plan.Stopped, fmt.Sprint(s)
	})
	c.carry(t, u, false)
}

// A job that slurmctld lost in a crash does not keep its user: it is ended in accounting,
// and no other job is, also none with an id of its time.
func TestLostJobDoesNotKeepItsUser(t *testing.T) {
	t.Parallel()
	c := &company{stage: bareStage(t)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0)
	c.carry(t, u, false)
	real := c.await(t, u, c.submit(t, u, bob, "sleep 600", 1), slurmtest.Running)
	accounted := func(id, state string) {
		eventually(t, "job "+id+" in accounting", func() (bool, string) {
			out := c.onControl(t, u, "sacct -a -D -X -n -P -o State -j "+id)
			return strings.TrimSpace(out) == state, out
		})
	}
	accounted(real.ID, "RUNNING")
	c.saved(t, u, real.ID)
	c.onControl(t, u, "cp -a /var/lib/slurm/$(basename $etc)/state /tmp/state")
	lost := c.await(t, u, c.submit(t, u, alice, "sleep 600", 1), slurmtest.Running)
	accounted(lost.ID, "RUNNING")
	// It is killed before it writes its state again.
	c.onControl(t, u, "p=$(cat $run/slurmctld.pid); kill -9 $p; while test -d /proc/$p; do sleep 0.01; done; rm -r /var/lib/slurm/$(basename $etc)/state/*; cp -a /tmp/state/* /var/lib/slurm/$(basename $etc)/state/")
	c.carry(t, u, false)
	require.NotContains(t, c.onControl(t, u, "squeue -h -o %A"), lost.ID)
	accounted(lost.ID, "RUNNING")

	u = c.unit(onePartition, []schema.UnixUser{bob}, nil, 0)
	began := time.Now()
	require.NoError(t, c.apply(t, c.plan(t, u, false)))
	require.NotEmpty(t, c.observe(t, u).Drift, "the removal waits, as the id may be given away")
	accounted(lost.ID, "RUNNING")
	c.carry(t, u, false)
	t.Logf("user removed after %.1f s", time.Since(began).Seconds())
	accounted(lost.ID, "COMPLETED")
	accounted(real.ID, "RUNNING")
	require.Equal(t, real, c.await(t, u, real.ID, slurmtest.Running))
	require.NotContains(t, c.onControl(t, u, "sacctmgr -n -P list user format=user"), alice.Name)
	next := c.submit(t, u, bob, "true", 0)
	require.NotEqual(t, lost.ID, next)
	accounted(next, "COMPLETED")
}
