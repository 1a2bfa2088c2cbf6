package slurm_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/profile"
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
