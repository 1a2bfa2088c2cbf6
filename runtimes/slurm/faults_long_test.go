//go:build long

package slurm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/explore"
	"berth/reconciler/plan"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/profile"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// What becomes of a fault.
const (
	repaired  = "repaired"
	respected = "respected" // an administrator's doing, which is shown and stays
	reported  = "reported"  // Berth cannot repair it
)

// worldFault is a fault that a person, a crash or hardware causes on a cluster. None depends on
// another, as a run may draw a part of them.
type worldFault struct {
	name   string
	on     string // the host: "ctl", "gpu-1" with a job, or "gpu-2" without
	kill   []string
	script string // of shell; $SLURM_CONF is that of the cluster
	told   string // is part of what an observation shows
	fate   string
	holds  string // shell that succeeds while a respected or reported fault is there
	undo   string // shell that ends such a fault
}

var worldFaults = []worldFault{
	{name: "slurmctld killed", on: "ctl", kill: []string{profile.Slurmctld}, told: "slurmctld down", fate: repaired},
	{name: "slurmdbd killed", on: "ctl", kill: []string{profile.Slurmdbd}, told: "slurmdbd down", fate: repaired},
	{name: "mariadbd killed", on: "ctl", kill: []string{profile.MariaDB}, told: "down", fate: repaired},
	{name: "munged of the controller killed", on: "ctl", kill: []string{profile.Munged}, told: "munged down", fate: repaired},
	{name: "all four killed", on: "ctl", kill: []string{profile.Slurmctld, profile.Slurmdbd, profile.MariaDB, profile.Munged}, told: "down", fate: repaired},
	{name: "slurmd killed", on: "gpu-1", kill: []string{profile.Slurmd}, told: "slurmd down", fate: repaired},
	{name: "munged of a worker killed", on: "gpu-1", kill: []string{profile.MungedWorker}, told: "munged down", fate: repaired},
	{name: "partition added to slurm.conf", on: "ctl", script: "echo PartitionName=mine Nodes=ALL >>$SLURM_CONF", told: "slurm.conf is not as Berth writes it", fate: repaired},
	{name: "partition added to slurm.conf, with scontrol reconfigure", on: "ctl", script: "echo PartitionName=mine Nodes=ALL >>$SLURM_CONF; scontrol reconfigure", told: "slurm.conf is not as Berth writes it", fate: repaired},
	{name: "unknown key in slurm.conf", on: "ctl", script: "echo NoSuchKey=1 >>$SLURM_CONF", told: "slurm.conf is not as Berth writes it", fate: repaired},
	{name: "slurm.conf removed", on: "ctl", script: "rm $SLURM_CONF", told: "slurm.conf is not as Berth writes it", fate: repaired},
	{name: "GPU removed from gres.conf", on: "ctl", script: "sed -i s/0-1/0-0/ $(dirname $SLURM_CONF)/gres.conf", told: "gres.conf is not as Berth writes it", fate: repaired},
	{name: "node drained", on: "ctl", script: "scontrol update nodename=gpu-2 state=drain reason='fan replaced'", told: "drained: fan replaced", fate: respected,
		holds: "scontrol -o show node gpu-2 | grep -q DRAIN", undo: "scontrol update nodename=gpu-2 state=undrain"},
	{name: "node set DOWN", on: "ctl", script: "scontrol update nodename=gpu-2 state=down reason='bad DIMM'", told: "down: bad DIMM", fate: respected,
		holds: "scontrol -o show node gpu-2 | grep -q State=DOWN", undo: "scontrol update nodename=gpu-2 state=resume"},
	{name: "partition set DOWN", on: "ctl", script: "scontrol update partitionname=main state=down", told: "partition main is DOWN", fate: repaired},
	{name: "partition set DRAIN", on: "ctl", script: "scontrol update partitionname=main state=drain", told: "partition main is DRAIN", fate: repaired},
	{name: "Unix user removed from the controller", on: "ctl", script: "userdel berthtest1", told: "accounts on the control host differ", fate: repaired},
	{name: "Unix user removed from a worker", on: "gpu-2", script: "userdel berthtest1", told: "accounts on gpu-2 differ", fate: repaired},
	{name: "directories for jobs removed from a worker", on: "gpu-2", script: "rm -rf " + profile.JobsDir + "/*/*", told: "no directory for jobs of berthtest", fate: repaired},
	{name: "spool of slurmd removed", on: "gpu-2", script: "rm -rf " + profile.WorkerSpoolDir, told: "the directory " + profile.WorkerSpoolDir + " on gpu-2 is missing", fate: repaired},
	{name: "directory for jobs closed", on: "gpu-2", script: "chmod 700 " + profile.JobsDir, told: "the directory " + profile.JobsDir + " on gpu-2 has the mode 0700 and the uid 0; want 0711 and 0", fate: repaired},
	{name: "device file of a GPU gone", on: "gpu-2", script: "mv /dev/nvidia1 /dev/gone", told: "/dev/nvidia1 on gpu-2 is not a device file", fate: reported,
		holds: "test ! -e /dev/nvidia1", undo: "mv /dev/gone /dev/nvidia1"},
	{name: "munge key of a worker replaced", on: "gpu-2", script: "head -c 1024 /dev/urandom >" + profile.WorkerMungeKey, told: "is not the munge key of the cluster", fate: repaired},
	{name: "munge key of a worker replaced, and munged restarted", on: "gpu-2", kill: []string{profile.MungedWorker}, script: "head -c 1024 /dev/urandom >" + profile.WorkerMungeKey, told: "munged down", fate: repaired},
	{name: "sshd of a worker gone", on: "gpu-2", script: "for p in $(pidof sshd sshd-session sshd-auth); do kill -9 $p 2>/dev/null || true; done", told: "unreachable", fate: reported,
		holds: "! pidof sshd", undo: "/usr/sbin/sshd -f /etc/berth/sshd_config"},
}

// TestLongFaults causes faults on a cluster with a running job and prints when an observation
// shows each, and when it is repaired: a fault is shown within 5 s, with an observation each
// second. No job ends.
func TestLongFaults(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStageOf(t, 3)}
	c.rt = c.runtime(t)
	config := strings.TrimSuffix(onePartition, "}") + `,"nodes":{"return_to_service":1,"timeout_seconds":300}}`
	u := c.unit(config, []schema.UnixUser{alice, bob}, nil, 0, 1)
	c.carry(t, u, false)
	id, err := c.trySubmit(t, u, alice, "sleep 3000\n", "--gres=gpu:1", "--nodelist=gpu-1")
	require.NoError(t, err)
	job := c.await(t, u, id, slurmtest.Running)
	c.saved(t, u, job.ID) // a killed slurmctld loses newer jobs
	table := fmt.Sprintf("Slurm %s\n%-42s %8s  %-10s %8s\n", c.version, "fault", "told s", "", "s")
	for _, f := range explore.Draw(t, 4, worldFaults) {
		told, done := c.suffer(t, u, f)
		t.Logf("%s: told after %.1f s, %s after %.1f s", f.name, told.Seconds(), f.fate, done.Seconds())
		table += fmt.Sprintf("%-42s %8.1f  %-10s %8.1f\n", f.name, told.Seconds(), f.fate, done.Seconds())
		require.Equal(t, job, c.await(t, u, job.ID, slurmtest.Running), f.name)
	}
	t.Log(table)
}

// Files of the control stack that were broken are restored, whether their daemon runs
// or not, and no job ends. No daemon restarts that did not read them.
func TestLongBrokenFilesAreRestored(t *testing.T) {
	t.Parallel()
	brokenFilesAreRestored(t, explore.Draw(t, 2, []brokenFile{
		{"unknown key in slurm.conf", "slurm.conf", "echo NoSuchKey=1 >>$etc/slurm.conf", "slurmctld"},
		{"directory removed", "slurm.conf", "rm -r $etc", ""},
		{"slurmdbd.conf removed", "slurmdbd.conf", "rm $etc/slurmdbd.conf", "slurmdbd"},
		{"slurm.conf removed", "slurm.conf", "rm $etc/slurm.conf", "slurmctld"},
		{"slurm.conf truncated within a line", "slurm.conf", "truncate -s 500 $etc/slurm.conf", ""},
		{"slurm.conf truncated to its first lines", "slurm.conf", "head -n 3 $etc/slurm.conf >$etc/new && mv $etc/new $etc/slurm.conf", ""},
		{"slurm.conf unreadable", "slurm.conf", "chmod 0 $etc/slurm.conf", ""},
		{"unknown key in gres.conf", "gres.conf", "echo NoSuchKey=1 >>$etc/gres.conf", "slurmctld"},
		{"unknown key in cgroup.conf", "cgroup.conf", "echo NoSuchKey=1 >>$etc/cgroup.conf", ""},
		{"missing plugin in plugstack.conf", "plugstack.conf", "echo required /nonexistent.so >>$etc/plugstack.conf", ""},
		{"unknown key in slurmdbd.conf", "slurmdbd.conf", "echo NoSuchKey=1 >>$etc/slurmdbd.conf", "slurmdbd"},
	})...)
}

// suffer causes a fault, reconciles until it is repaired or its undoing complete, and returns when
// it was told and when that was.
func (c *company) suffer(t *testing.T, u plan.Unit, f worldFault) (told, done time.Duration) {
	t.Helper()
	c.cause(t, u, f)
	began, undone, acted := time.Now(), false, 0
	eventually(t, f.name+" is told and done with", func() (bool, string) {
		obs := c.observe(t, u)
		p := plan.Make(plan.Input{Key: u.Effective.Key, After: &u.Effective, Members: u.Members, Observed: obs, Rules: c.rt})
		last := fmt.Sprint(obs.Reason, obs.Members, obs.Drift)
		if told == 0 && strings.Contains(last, f.told) {
			told = max(time.Since(began), time.Millisecond)
		}
		c.try(t, p)
		switch {
		case told == 0:
		case f.fate == repaired || undone:
			return p.Empty() && !strings.Contains(last, f.told), last
		case acted < 4: // Berth has had time to act
			acted++
		default:
			c.shell(t, u, f.on, f.holds)
			c.shell(t, u, f.on, f.undo)
			undone, began = true, time.Now()
		}
		return false, last
	})
	return told, time.Since(began)
}

// cause causes a fault.
func (c *company) cause(t *testing.T, u plan.Unit, f worldFault) {
	t.Helper()
	if f.script != "" {
		c.shell(t, u, f.on, f.script)
	}
	if len(f.kill) == 0 { // the services of a host without sshd cannot be asked for
		return
	}
	for name, pid := range c.services(t, u) {
		words := strings.Fields(name)
		if words[0] == f.on && slices.Contains(f.kill, words[1]) {
			c.shell(t, u, f.on, fmt.Sprintf("kill -9 %d; while test -d /proc/%[1]d; do sleep 0.01; done", pid))
		}
	}
}

// shell runs shell on a host.
func (c *company) shell(t *testing.T, u plan.Unit, node, script string) {
	t.Helper()
	if node == c.control.Key.Name {
		c.onControl(t, u, script)
		return
	}
	out, err := c.lab.Run(t.Context(), node, "sh", "-c", script)
	require.NoError(t, err, out)
}

// try applies the actions of a plan whose needs are done. An error is for the next attempt.
func (c *company) try(t *testing.T, p plan.Plan) {
	t.Helper()
	r := truth{company: c}
	failed, _ := r.run(t, p)
	for _, f := range failed {
		t.Log(f)
	}
}

// brokenFile is a fault in the files of a control stack: the file, the shell command, and
// the daemon that is also killed while the file is broken.
type brokenFile struct{ name, file, script, killed string }

// brokenFilesAreRestored breaks one file after another.
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

// A change of the accounting database may take longer than other commands (S6 of the
// trial on machines with systemd).
func TestLongSlowDatabaseIsWaitedFor(t *testing.T) {
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

// A job that slurmctld lost in a crash does not keep its user: it is ended in accounting,
// and no other job is, also none with an id of its time.
func TestLongLostJobDoesNotKeepItsUser(t *testing.T) {
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

// A slurmd that hangs is restarted once slurmctld has given its node up, and not twice.
func TestLongHungWorkerIsRestarted(t *testing.T) {
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
