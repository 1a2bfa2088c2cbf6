//go:build long

package slurm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/examples/explore"
	"berth/reconciler/plan"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/profile"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// The ends of a fault.
const (
	repaired  = "repaired"
	respected = "respected" // an administrator's doing, which is shown and stays
	reported  = "reported"  // Berth cannot repair it
)

// worldFault is a fault that a person, a crash or hardware causes on a cluster. Each file of testdata/faults has one, and
// README.md there says what its fields mean. None depends on another.
type worldFault struct {
	name  string
	About string   `json:"about"`
	Host  string   `json:"host"`
	Kill  []string `json:"kill"`
	Do    string   `json:"do"`
	Told  string   `json:"told"`
	Fate  string   `json:"fate"`
	Holds string   `json:"holds"`
	Undo  string   `json:"undo"`
	Drawn bool     `json:"drawn"`
}

// readFaults returns the faults, in the order of their names.
func readFaults(t testing.TB) (all []worldFault) {
	t.Helper()
	files, err := filepath.Glob("testdata/faults/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		f := worldFault{name: strings.TrimSuffix(filepath.Base(file), ".yaml")}
		require.NoError(t, yaml.UnmarshalStrict(data, &f), file)
		require.True(t, f.About != "" && f.Told != "" && slices.Contains([]string{"ctl", "gpu-1", "gpu-2"}, f.Host),
			"%s: about, told or host", file)
		require.True(t, f.Fate == repaired || (f.Fate == respected || f.Fate == reported) && f.Holds != "" && f.Undo != "", "%s: fate",
			file)
		f.Told = os.Expand(f.Told, func(name string) string { return faultPaths[name] })
		all = append(all, f)
	}
	return all
}

// faultPaths are variables for the shell of a fault.
var faultPaths = map[string]string{
	"spool": profile.WorkerSpoolDir, "jobs": profile.JobsDir, "key": profile.WorkerMungeKey, "berth": "/var/lib/berth",
}

// faultConfig is the cluster of the faults.
var faultConfig = strings.TrimSuffix(onePartition, "}") + `,"nodes":{"return_to_service":1,"timeout_seconds":300}}`

// TestLongFaults causes faults on a cluster with a running job and prints when an observation
// shows each, and when it is repaired: a fault is shown within 5 s, with an observation each
// second. No job ends.
func TestLongFaults(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStageOf(t, 3)}
	c.rt = c.runtime(t)
	u := c.unit(faultConfig, []schema.UnixUser{alice, bob}, nil, 0, 1)
	c.carry(t, u, false)
	id, err := c.trySubmit(t, u, alice, "sleep 3000\n", "--gres=gpu:1", "--nodelist=gpu-1")
	require.NoError(t, err)
	job := c.await(t, u, id, slurmtest.Running)
	c.saved(t, u, job.ID) // a killed slurmctld loses newer jobs
	table := fmt.Sprintf("Slurm %s\n%-42s %8s  %-10s %8s\n", c.version, "fault", "told s", "", "s")
	all := slices.DeleteFunc(readFaults(t), func(f worldFault) bool { return !f.Drawn })
	for _, f := range explore.Draw(t, 4, all) {
		told, done := c.suffer(t, u, f)
		t.Logf("%s: told after %.1f s, %s after %.1f s", f.About, told.Seconds(), f.Fate, done.Seconds())
		table += fmt.Sprintf("%-42s %8.1f  %-10s %8.1f\n", f.About, told.Seconds(), f.Fate, done.Seconds())
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

// suffer causes a fault, and reconciles until it is repaired or completely undone. It returns the time from the fault to
// its report, and from the fault, or from its undoing, to the repaired state.
func (c *company) suffer(t *testing.T, u plan.Unit, f worldFault) (told, done time.Duration) {
	t.Helper()
	c.cause(t, u, f)
	began, undone, acted := time.Now(), false, 0
	eventually(t, f.name+" is told and done with", func() (bool, string) {
		obs := c.observe(t, u)
		p := plan.Make(plan.Input{Key: u.Effective.Key, After: &u.Effective, Members: u.Members, Observed: obs, Rules: c.rt})
		last := fmt.Sprint(obs.Reason, obs.Members, obs.Drift)
		if told == 0 && strings.Contains(last, f.Told) {
			told = max(time.Since(began), time.Millisecond)
		}
		c.try(t, p)
		switch {
		case told == 0:
		case f.Fate == repaired || undone:
			return p.Empty() && !strings.Contains(last, f.Told), last
		case acted < 4: // Berth has had time to act
			acted++
		default:
			c.shell(t, u, f.Host, f.Holds)
			c.shell(t, u, f.Host, f.Undo)
			undone, began = true, time.Now()
		}
		return false, last
	})
	return told, time.Since(began)
}

// cause causes a fault.
func (c *company) cause(t *testing.T, u plan.Unit, f worldFault) {
	t.Helper()
	if f.Do != "" {
		c.shell(t, u, f.Host, f.Do)
	}
	if len(f.Kill) == 0 { // the services of a host without sshd cannot be asked for
		return
	}
	for name, pid := range c.services(t, u) {
		words := strings.Fields(name)
		if words[0] == f.Host && slices.Contains(f.Kill, words[1]) {
			c.shell(t, u, f.Host, fmt.Sprintf("kill -9 %d; while test -d /proc/%[1]d; do sleep 0.01; done", pid))
		}
	}
}

// shell runs shell on a host.
func (c *company) shell(t *testing.T, u plan.Unit, node, script string) {
	t.Helper()
	for name, path := range faultPaths {
		script = name + "=" + path + "; " + script
	}
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
	c.saved(t, u, id)          // a killed slurmctld loses newer jobs
	content := func() string { // without FirstJobId, which a crash raises
		return c.onControl(t, u, "cd $etc && stat -c '%n %a %U' *.conf && cat *.conf | grep -v ^FirstJobId=")
	}
	good := content()
	carry := func() { // the starts of workers do the steps that a start of slurmctld left to them
		t.Helper()
		require.NoError(t, c.apply(t, c.plan(t, u, false)))
		c.carry(t, u, false)
	}
	pid := func(daemon string) string { return c.onControl(t, u, "cat $run/"+daemon+".pid") }
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			ctld := pid("slurmctld")
			c.onControl(t, u, fault.script)
			obs := c.observe(t, u)
			require.Equal(t, plan.Running, obs.Members[0].State, obs.Members[0].Detail)
			require.NotEmpty(t, obs.Drift)
			require.Contains(t, fmt.Sprint(obs.Drift), fault.file+" on ctl ")
			require.Equal(t, []plan.Verb{plan.Configure}, verbs(c.plan(t, u, false)))
			carry()
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
			carry()
			require.Equal(t, good, content())
			require.Equal(t, job, c.await(t, u, job.ID, slurmtest.Running))
		})
	}

	// Every other verb restores them too.
	const breakIt = "echo NoSuchKey=1 >>$etc/slurm.conf"
	apply := func(verb plan.Verb, after *plan.Unit) {
		before := u
		p := plan.Plan{Key: u.Effective.Key, Before: &before, After: after,
			Actions: []plan.Action{{ID: "x", Verb: verb, Member: "worker-1", Node: u.Members[2].Node}}}
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
	c.onControl(t, u, "p=$(cat $run/slurmctld.pid); kill -9 $p; while test -d /proc/$p; do sleep 0.01; done; rm -r "+
		"/var/lib/slurm/$(basename $etc)/state/*; cp -a /tmp/state/* /var/lib/slurm/$(basename $etc)/state/")
	c.carry(t, u, false)
	require.NotContains(t, c.onControl(t, u, "squeue -h -o %A"), lost.ID)
	accounted(lost.ID, "COMPLETED")
	accounted(real.ID, "RUNNING")

	u = c.unit(onePartition, []schema.UnixUser{bob}, nil, 0)
	c.carry(t, u, false)
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
