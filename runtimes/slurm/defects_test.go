package slurm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/slurmtest"
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
	// slurmdbd sends slurmctld what changed, and a lent lab had another user's associations before.
	eventually(t, "slurmctld has the association of "+alice.Name, func() (bool, string) {
		out := c.tool(t, u, "scontrol show assoc_mgr users="+alice.Name+" flags=assoc")
		return strings.Contains(out, "UserName="+alice.Name), out
	})
	return c, u
}

// tool runs one of Slurm's tools on the control host.
func (c *company) tool(t testing.TB, u plan.Unit, line string) string {
	t.Helper()
	out, err := c.lab.Run(t.Context(), c.control.Key.Name, "sh", "-c", "SLURM_CONF=/etc/slurm/"+slurm.ClusterName(u.Effective.Key)+"/slurm.conf "+line)
	require.NoError(t, err, out)
	return out
}

// saved waits until slurmctld has written a job to its state, which it does some seconds after
// each change of one. What it has not written, it loses in a crash.
func (c *company) saved(t testing.TB, u plan.Unit, job string) {
	t.Helper()
	const state = "/var/lib/slurm/$(basename $etc)/state/job_state"
	c.onControl(t, u, "touch /run/before-save; scontrol update jobid="+job+" name=job")
	eventually(t, "slurmctld has saved job "+job, func() (bool, string) {
		out := c.onControl(t, u, "test "+state+" -nt /run/before-save && echo saved; ls -l --full-time "+state+" /run/before-save")
		return strings.HasPrefix(out, "saved"), out
	})
	c.onControl(t, u, "rm /run/before-save")
}

// step starts a step of a running job, as its owner does from a login host.
func (c *company) step(t *testing.T, u plan.Unit, job string) {
	t.Helper()
	as := fmt.Sprintf("setpriv --reuid=%d --regid=%d --clear-groups", alice.UID, alice.UID)
	c.tool(t, u, as+" timeout 20 srun --chdir=/ --overlap --jobid="+job+" /bin/true")
}

// A job goes on with new steps after each change that restarts slurmctld or adds a
// node (D7 of the measurements of Slurm's versions).
func TestStepsGoOnAfterChangesOfTheCluster(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition, 0, 1)
	for _, n := range append([]*schema.Node{c.control}, c.workers...) { // Slurm alone knows the addresses
		c.changeFile(t, n.Key.Name, "/etc/hosts", "sed -i /gpu-/d /etc/hosts")
	}
	id, err := c.trySubmit(t, u, alice, "sleep 600\n", "--nodes=2", "--gres=gpu:1")
	require.NoError(t, err)
	job := c.await(t, u, id, slurmtest.Running)
	c.step(t, u, id)

	more := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0, 1, 2)
	c.carry(t, more, false)
	c.step(t, u, id)
	c.saved(t, u, id)
	c.kill(t, more, "controller-0")
	c.carry(t, more, false)
	c.step(t, u, id)
	c.carry(t, u, false)
	c.step(t, u, id)
	require.Equal(t, job, c.await(t, u, id, slurmtest.Running))
}
