package slurm_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cluster"
	"berth/schema"
)

const twoPartitions = `{"partitions":[{"name":"main","default":true},{"name":"quick","max_time_minutes":30}],"scheduler":{"interval_seconds":30},"identity":"managed"}`

// newCompany returns a lent stage with a running unit of alice.
func newCompany(t *testing.T, config string, workers ...int) (*company, plan.Unit) {
	t.Helper()
	return newCompanyOn(newStage(t), t, config, workers...)
}

func newCompanyOn(s *stage, t *testing.T, config string, workers ...int) (*company, plan.Unit) {
	t.Helper()
	c := &company{stage: s}
	c.rt = c.runtime(t)
	u := c.unit(config, []schema.UnixUser{alice}, nil, workers...)
	c.carry(t, u, false)
	// slurmdbd sends slurmctld what changed, an association and its user one after the other.
	eventually(t, "slurmctld has the association and the default account of "+alice.Name, func() (bool, string) {
		out := c.tool(t, u, "scontrol show assoc_mgr users="+alice.Name+" flags=assoc,users")
		return strings.Contains(out, " UserName="+alice.Name+"(") && knowsUser(out), out
	})
	return c, u
}

// knowsUser reports whether an answer of scontrol show assoc_mgr has the default account of alice,
// without which slurmctld refuses her jobs.
func knowsUser(answer string) bool {
	return regexp.MustCompile(`(?m)^UserName=` + alice.Name + `(\([0-9]+\))? DefAccount=[^ \n]+`).MatchString(answer)
}

// tool runs one of Slurm's tools on the control host.
func (c *company) tool(t testing.TB, u plan.Unit, line string) string {
	t.Helper()
	out, err := c.lab.Run(t.Context(), c.control.Key.Name, "sh", "-c",
		"SLURM_CONF=/etc/slurm/"+cluster.Name(u.Effective.Key)+"/slurm.conf "+line)
	require.NoError(t, err, out)
	return out
}
