//go:build long

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
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// A slurmd that hangs is restarted once, and not again within ten minutes. slurmctld waits
// 60 s for a node before it takes it for down.
func TestLongHungSlurmdIsRestartedOnce(t *testing.T) {
	t.Parallel()
	c := &company{stage: bareStage(t)}
	u := c.hangs(t)
	c.restartedOnce(t, u, u.Members[1].Node, "slurmd")
}

// A mariadbd that hangs, below slurmdbd, is restarted as a munged is.
func TestLongHungDatabaseIsRestartedOnce(t *testing.T) {
	t.Parallel()
	belowSlurmctldIsRestartedOnce(t, "mariadbd")
}

// A munged that runs and answers nothing is restarted once, and not again within
// ten minutes. slurmctld, which needs it, goes on.
func TestLongHungDaemonBelowSlurmctldIsRestartedOnce(t *testing.T) {
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
func TestLongHungDaemonIsRestartedOnce(t *testing.T) {
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

// onRun makes run be called before each program; nil: nothing is.
func (f *faulty) onRun(run func(*runtimes.Run)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run = run
}
