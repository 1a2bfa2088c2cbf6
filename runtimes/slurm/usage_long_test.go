//go:build long

package slurm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// Accounting that is down is started for the last usage: a unit that is to stop or to go is not repaired
// before. Jobs that ended meanwhile are recorded too.
func TestLongUsageIsRecordedWhereAccountingIsDown(t *testing.T) {
	t.Parallel()
	c := newSharing(t)
	u := c.share(c.unit(onePartition, nil, &schema.OnJobs{CancelAfterSeconds: 1}, 0, 1), lhc(), ligo())
	c.carry(t, u, false)
	accountingDown := func() string {
		c.killServices(t, u, u.Members[0], profile.Slurmdbd, profile.MariaDB)
		id := c.job(t, u, bob, "physics.ligo", "true", "--ntasks=1")
		eventually(t, "the job has ended", func() (bool, string) {
			left := c.tool(t, u, "squeue --noheader --states=PENDING,RUNNING,COMPLETING")
			return strings.TrimSpace(left) == "", left
		})
		return id
	}
	recorded := func() (ids []string) {
		for run := range c.used {
			ids = append(ids, fmt.Sprint(run.JobID))
		}
		slices.Sort(ids)
		return ids
	}
	// slurmctld connects to slurmdbd again after some seconds, and the action waits for it.
	ends := func(u plan.Unit, deleted bool) {
		eventually(t, "the last usage is recorded", func() (bool, string) {
			err := c.apply(t, c.plan(t, u, deleted))
			if err != nil {
				require.ErrorIs(t, err, runtimes.ErrWaiting)
			}
			return err == nil, fmt.Sprint(err)
		})
	}
	first := accountingDown()
	stopped := u
	stopped.Effective.DesiredState = schema.DesiredStopped
	ends(stopped, false)
	require.Equal(t, []string{first}, recorded())

	c.carry(t, u, false)
	second := accountingDown()
	ends(u, true)
	require.Equal(t, []string{first, second}, recorded())
}
