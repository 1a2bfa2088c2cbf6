package slurm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// onControl runs a line of shell on the control host. $etc, $run and $SLURM_CONF are those
// of the unit.
func (c *company) onControl(t *testing.T, u plan.Unit, script string) string {
	t.Helper()
	name := slurm.ClusterName(u.Instance.Key)
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

// brokenFiles are faults in the files of a control stack: the file and the shell command.
var brokenFiles = []struct{ name, file, script string }{
	{"unknown key in slurm.conf", "slurm.conf", "echo NoSuchKey=1 >>$etc/slurm.conf"},
	{"slurm.conf removed", "slurm.conf", "rm $etc/slurm.conf"},
	{"slurm.conf truncated within a line", "slurm.conf", "truncate -s 500 $etc/slurm.conf"},
	{"slurm.conf truncated to its first lines", "slurm.conf", "head -n 3 $etc/slurm.conf >$etc/new && mv $etc/new $etc/slurm.conf"},
	{"slurm.conf unreadable", "slurm.conf", "chmod 0 $etc/slurm.conf"},
	{"directory removed", "slurm.conf", "rm -r $etc"},
	{"unknown key in gres.conf", "gres.conf", "echo NoSuchKey=1 >>$etc/gres.conf"},
	{"unknown key in cgroup.conf", "cgroup.conf", "echo NoSuchKey=1 >>$etc/cgroup.conf"},
	{"missing plugin in plugstack.conf", "plugstack.conf", "echo required /nonexistent.so >>$etc/plugstack.conf"},
	{"unknown key in slurmdbd.conf", "slurmdbd.conf", "echo NoSuchKey=1 >>$etc/slurmdbd.conf"},
	{"slurmdbd.conf removed", "slurmdbd.conf", "rm $etc/slurmdbd.conf"},
}

// Files of the control stack that somebody breaks are restored, whether their daemon runs
// or not, and no job ends. No daemon restarts that did not read them.
func TestBrokenFilesAreRestored(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStage(t)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0, 1)
	c.carry(t, u, false)
	id, err := c.trySubmit(t, u, alice, "sleep 600\n", "--gres=gpu:1", "--nodelist="+u.Members[1].Node)
	require.NoError(t, err)
	job := c.await(t, u, id, slurmtest.Running)
	time.Sleep(6 * time.Second) // a killed slurmctld loses newer jobs
	content := func() string { return c.onControl(t, u, "cd $etc && stat -c '%n %a %U' *.conf && cat *.conf") }
	good := content()
	pid := func(daemon string) string { return c.onControl(t, u, "cat $run/"+daemon+".pid") }
	for _, fault := range brokenFiles {
		t.Run(fault.name, func(t *testing.T) {
			ctld := pid("slurmctld")
			c.onControl(t, u, fault.script)
			obs := c.observe(t, u)
			require.Equal(t, plan.Running, obs.Members[0].State, obs.Members[0].Detail)
			require.NotEmpty(t, obs.Drift)
			require.Contains(t, fmt.Sprint(obs.Drift), fault.file+" was changed or removed")
			require.Equal(t, []plan.Verb{plan.Configure}, verbs(c.plan(t, u, false)))
			c.carry(t, u, false)
			require.Equal(t, good, content())
			require.Equal(t, ctld, pid("slurmctld"), "slurmctld was restarted")
			require.Equal(t, job, c.await(t, u, job.ID, slurmtest.Running))

			c.onControl(t, u, fault.script)
			daemon := "slurmctld"
			if fault.file == "slurmdbd.conf" {
				daemon = "slurmdbd"
			}
			c.onControl(t, u, "p=$(cat $run/"+daemon+".pid); kill -9 $p; while test -d /proc/$p; do sleep 0.01; done")
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
		p := plan.Plan{Key: u.Instance.Key, Before: &before, After: after, Actions: []plan.Action{{ID: "x", Verb: verb, Member: "worker-1", Node: u.Members[2].Node}}}
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
