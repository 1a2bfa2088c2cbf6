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
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
	"berth/schema/usage"
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

// A database server that lost its tables keeps a unit from a stop until a person gives up the usage. Then the unit stops, ends its jobs,
// and can be deleted.
func TestLongUnitWithADestroyedDatabaseIsStoppedAndDeleted(t *testing.T) {
	t.Parallel()
	c := newSharing(t)
	u := c.unit(onePartition, []schema.UnixUser{alice}, &schema.OnJobs{CancelAfterSeconds: 1}, 0, 1)
	c.carry(t, u, false)
	id, err := c.trySubmit(t, u, alice, "sleep 600")
	require.NoError(t, err)
	c.await(t, u, id, slurmtest.Running)
	c.onControl(t, u, "kill $(cat /run/slurm-*/slurmctld.pid); while pgrep -x slurmctld >/dev/null; do sleep 0.1; done; "+
		"kill -9 $(cat /run/slurm-*/slurmdbd.pid); pkill -9 -x mariadbd; "+
		"for f in "+profile.DatabaseData+"/ibdata1 "+profile.DatabaseData+"/ib_logfile0; do echo gone >$f; done")

	stopped := u
	stopped.Effective.DesiredState = schema.DesiredStopped
	p := c.plan(t, stopped, false)
	require.Equal(t, plan.Stop, p.Actions[len(p.Actions)-1].Verb)
	require.ErrorContains(t, c.apply(t, p), "mariadbd ended")
	o := plan.Operation{ID: "dead", Name: "dead", Spec: schema.MemberOperationSpec{Operation: schema.OpAbandonUsage, Reason: "a test"}}
	given := plan.Make(plan.Input{Key: u.Effective.Key, After: &stopped.Effective, Members: u.Members, Observed: c.observe(t, u),
		Operations: []plan.Operation{o}, Rules: c.rt})
	given.Actions = slices.DeleteFunc(given.Actions, func(a plan.Action) bool { return a.Verb != plan.AbandonUsage })
	require.Len(t, given.Actions, 1)
	require.NoError(t, c.apply(t, given))
	eventually(t, "it stops", func() (bool, string) {
		err := c.apply(t, c.plan(t, stopped, false))
		return err == nil, fmt.Sprint(err)
	})
	require.Empty(t, strings.TrimSpace(c.onWorker(t, 0, fmt.Sprintf("pgrep -U %d || true", alice.UID))), "no job is left")
	c.carry(t, stopped, true)
}

// The usage of a project's jobs is recorded before its account is removed, and that of all jobs
// before the database is. Until the record is kept, nothing is removed.
func TestLongUsageIsRecordedBeforeRemoval(t *testing.T) {
	t.Parallel()
	c := newSharing(t)
	base := c.unit(onePartition, nil, &schema.OnJobs{CancelAfterSeconds: 1}, 0, 1)
	u := c.share(base, lhc(), ligo())
	c.carry(t, u, false)
	bobs := c.job(t, u, bob, "physics.ligo", "sleep 600", "--gres=gpu:1", "--cpus-per-task=2", "--mem=64M")
	alices := c.job(t, u, alice, "physics.lhc", "true")
	c.await(t, u, bobs, slurmtest.Running)
	c.await(t, u, alices, slurmtest.Completed)
	eventually(t, "the job has used a second", func() (bool, string) {
		out := strings.TrimSpace(c.tool(t, u, "squeue -h -o %M -j "+bobs))
		return out != "0:00", out
	})

	short := c.job(t, u, bob, "physics.ligo", "true")
	c.await(t, u, short, slurmtest.Completed) // its start is in accounting up to 5 s later
	less := c.share(base, lhc())
	c.remote = fmt.Errorf("the remote is down: %w", runtimes.ErrWaiting)
	eventually(t, "only the record is missing", func() (bool, string) {
		err := c.removal(t, less)
		return err != nil && strings.Contains(err.Error(), "the remote is down"), fmt.Sprint(err)
	})
	require.Contains(t, c.tool(t, u, "sacctmgr -n -P list account format=account"), "physics.ligo")
	c.remote = nil
	c.removed(t, less)
	require.NotContains(t, c.tool(t, u, "sacctmgr -n -P list account format=account"), "physics.ligo")
	require.Len(t, c.used, 2)
	recorded := map[string]usage.Job{}
	for run, j := range c.used {
		recorded[fmt.Sprint(run.JobID)] = j
	}
	require.Contains(t, recorded, short)
	j := recorded[bobs]
	require.True(t, j.Started.After(j.Submitted.Add(-1)) && j.Ended.After(j.Started), "%+v", j)
	require.NotEmpty(t, j.Cluster)
	want := usage.Job{Cluster: j.Cluster, JobID: j.JobID, Submitted: j.Submitted, Started: j.Started, Ended: j.Ended,
		State: "CANCELLED", User: bob.Name, ProjectID: "physics.ligo",
		Place:     usage.Place{Partition: "main", QoS: j.QoS},
		Resources: usage.Resources{CPUs: 2, MemoryMiB: 64, GPUs: 1, GPUType: "a100", Billing: 2}}
	require.Equal(t, want, j)

	c.remote = fmt.Errorf("the remote is down: %w", runtimes.ErrWaiting)
	require.ErrorIs(t, c.apply(t, c.plan(t, less, true)), runtimes.ErrWaiting)
	require.NotEmpty(t, c.tool(t, u, "sacct -n -X --allusers -S now-1hour"), "the database is there")
	c.remote = nil
	c.carry(t, less, true)
	require.Len(t, c.used, 3)
}
