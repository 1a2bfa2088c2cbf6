package slurm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cluster"
)

// onControl runs a line of shell on the control host. $etc, $run and $SLURM_CONF are those
// of the unit.
func (c *company) onControl(t testing.TB, u plan.Unit, script string) string {
	t.Helper()
	name := cluster.Name(u.Effective.Key)
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
