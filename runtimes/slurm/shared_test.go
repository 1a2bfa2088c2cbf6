package slurm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

var carol = schema.UnixUser{Name: "berthtest2", UID: 42003}

// The projects of the tests: alice belongs to two of them.
func lhc() schema.EffectiveAttachment {
	return schema.EffectiveAttachment{ProjectID: "physics.lhc", Name: "lhc", Users: []string{alice.Name}, Share: 3}
}

func ligo() schema.EffectiveAttachment {
	return schema.EffectiveAttachment{ProjectID: "physics.ligo", Name: "ligo", Users: []string{alice.Name, bob.Name}, Share: 1}
}

func genes() schema.EffectiveAttachment {
	return schema.EffectiveAttachment{ProjectID: "bio.genes", Name: "genes", Users: []string{carol.Name}, Share: 1}
}

// share returns a unit with attachments, sorted by project, and their users.
func (c *company) share(u plan.Unit, attachments ...schema.EffectiveAttachment) plan.Unit {
	u.Effective.Attachments, u.Effective.Users = attachments, nil
	for _, user := range []schema.UnixUser{alice, bob, carol} {
		for _, a := range attachments {
			if strings.Contains(strings.Join(a.Users, " "), user.Name) {
				u.Effective.Users = append(u.Effective.Users, user)
				break
			}
		}
	}
	return u
}

func newSharing(t testing.TB) *company {
	t.Helper()
	return sharingOn(bareStage(t), t)
}

func sharingOn(s *stage, t testing.TB) *company {
	t.Helper()
	c := &company{stage: s}
	c.rt = c.runtime(t)
	return c
}

// job submits a job of a project.
func (c *company) job(t testing.TB, u plan.Unit, user schema.UnixUser, project, script string, options ...string) string {
	t.Helper()
	id, err := c.trySubmit(t, u, user, script+"\n", append(options, "--account="+project)...)
	require.NoError(t, err)
	return id
}

// The plan of narrower terms names the queued jobs that then wait, and that of wider ones those that
// then start. All others start, and running jobs go on.
func TestSharedTermsNameTheQueuedJobsThatWait(t *testing.T) {
	t.Parallel()
	c := newSharing(t)
	base := c.unit(strings.Replace(twoPartitions, `"interval_seconds":30`, `"interval_seconds":5`, 1), nil, nil, 0, 1)
	wide := c.share(base, genes(), lhc())
	c.carry(t, wide, false)
	first, second := c.workers[0].Key.Name, c.workers[1].Key.Name
	running := c.job(t, wide, alice, "physics.lhc", "sleep 600", "--gres=gpu:1", "--nodelist="+first)
	blocking := []string{
		c.job(t, wide, carol, "bio.genes", "sleep 600", "--nodelist="+first), c.job(t, wide, carol, "bio.genes", "sleep 600", "--nodelist="+second, "--ntasks=2"),
	}
	for _, id := range append(blocking, running) {
		c.await(t, wide, id, slurmtest.Running)
	}
	submit := func(options ...string) string { return c.job(t, wide, alice, "physics.lhc", "true", options...) }
	never := []string{
		submit("--time=5", "--gres=gpu:2"), submit("--time=5", "--ntasks=2"), submit("--time=60"), submit("--time=5", "--partition=quick"),
	}
	later := submit("--time=5", "--gres=gpu:1")
	kept := []string{submit("--time=5"), submit("--time=5", "--partition=quick,main"), submit()}
	for _, id := range slices.Concat(never, kept, []string{later}) {
		c.await(t, wide, id, slurmtest.Pending)
	}

	a := lhc()
	a.MaxGPUs, a.MaxGPUsPerJob, a.MaxCPUsPerJob, a.MaxWalltimeMinutes, a.Queues = 1, 1, 1, 30, []string{"main"}
	narrow := c.share(base, genes(), a)
	p := c.plan(t, narrow, false)
	require.ElementsMatch(t, never, p.Jobs.CannotStart.IDs)
	require.Equal(t, []plan.UserJobs{{User: alice.Name, Account: "physics.lhc", Count: len(never)}}, p.Jobs.CannotStart.Users)
	require.Equal(t, []string{later}, p.Jobs.Delayed.IDs)
	require.Equal(t, len(kept), p.Jobs.Kept.Count)
	require.Equal(t, 3, p.Jobs.Continue.Count)
	require.NoError(t, c.apply(t, p))
	c.tool(t, wide, "scancel "+strings.Join(blocking, " "))
	for _, id := range kept {
		c.await(t, narrow, id, slurmtest.Completed)
	}
	c.scheduled(t, narrow, "Main", 2)
	c.scheduled(t, narrow, "Backfilling", 2)
	waiting := slices.Sorted(slices.Values(append(never, later)))
	require.Equal(t, strings.Join(waiting, "\n"), strings.TrimSpace(c.tool(t, narrow, "squeue -h -t PD -o %A | LC_ALL=C sort")))
	t.Logf("%s: %s", c.version, c.tool(t, narrow, "squeue -h -t PD -o '%A %r'"))
	c.await(t, narrow, running, slurmtest.Running)

	p = c.plan(t, wide, false)
	require.ElementsMatch(t, waiting, p.Jobs.MayStart.IDs)
	require.Zero(t, p.Jobs.Kept.Count)
	require.NoError(t, c.apply(t, p))
	for _, id := range waiting {
		c.await(t, wide, id, slurmtest.Completed)
	}
	c.await(t, wide, running, slurmtest.Running)
}

// A project gets its guaranteed share from the surplus of another one, whatever that has queued.
func TestSharedGuaranteePreemptsSurplus(t *testing.T) {
	t.Parallel()
	c := newSharing(t)
	base := c.unit(`{"partitions":[{"name":"main","default":true}],"scheduler":{"interval_seconds":5},"jobs":{"kill_wait_seconds":2,"unkillable_step_seconds":60},"identity":"managed"}`, nil, nil, 0, 1)
	a, b := lhc(), ligo()
	a.Guaranteed, b.Guaranteed = schema.Amount{GPUs: 2, CPUs: 64}, schema.Amount{GPUs: 2, CPUs: 64}
	b.Preemption = &schema.Preemption{Mode: schema.PreemptCancel, GraceSeconds: 2}
	u := c.share(base, genes(), a, b)
	c.carry(t, u, false)

	own := c.job(t, u, bob, "physics.ligo", "sleep 600", "--gres=gpu:2")
	surplus := c.job(t, u, bob, "physics.ligo", "sleep 600", "--gres=gpu:2", "--qos=physics.ligo")
	c.await(t, u, own, slurmtest.Running)
	c.await(t, u, surplus, slurmtest.Running)
	for range 20 {
		c.job(t, u, carol, "bio.genes", "sleep 600", "--gres=gpu:1")
	}
	id := c.job(t, u, alice, "physics.lhc", "sleep 600", "--gres=gpu:2")
	began := time.Now()
	c.await(t, u, id, slurmtest.Running)
	t.Logf("%s: the guaranteed share runs after %.1f s", c.version, time.Since(began).Seconds())
	c.await(t, u, surplus, slurmtest.Failed) // cancelled
	c.await(t, u, own, slurmtest.Running)

	// Without its guarantee, the job of the project goes on. The QoS is removed after it.
	without := c.share(base, genes(), lhc(), b)
	without.Effective.OnJobs = &schema.OnJobs{CancelAfterSeconds: 1}
	require.NoError(t, c.apply(t, c.plan(t, without, false)))
	c.rt = c.ahead(time.Hour) // more than the unit's on_jobs
	err := c.removal(t, without)
	require.ErrorIs(t, err, runtimes.ErrWaiting)
	require.ErrorContains(t, err, "QoS physics.lhc_guaranteed still has running jobs")
	c.await(t, without, id, slurmtest.Running)
	c.tool(t, u, "scancel -A physics.lhc")
	c.tool(t, u, "scancel -A bio.genes")
	c.removed(t, without)
	require.NotContains(t, c.tool(t, u, "sacctmgr -n -P list qos format=name"), "physics.lhc_guaranteed")
}

// removed applies a unit until nothing is left to do.
func (c *company) removed(t *testing.T, u plan.Unit) {
	t.Helper()
	eventually(t, "the removal ends", func() (bool, string) {
		err := c.removal(t, u)
		p := c.plan(t, u, false)
		return err == nil && p.Empty(), fmt.Sprint(err)
	})
}

// A detached project leaves nothing behind, its running jobs end as its terms say, and nobody
// else's jobs do. Until then the detachment can be taken back.
func TestSharedDetachEndsTheJobsOfOneProject(t *testing.T) {
	t.Parallel()
	c := newSharing(t)
	base := c.unit(onePartition, nil, &schema.OnJobs{CancelAfterSeconds: 1}, 0, 1)
	b := ligo()
	b.OnJobs = &schema.OnJobs{Wait: true}
	u := c.share(base, genes(), lhc(), b)
	c.carry(t, u, false)
	elsewhere := c.job(t, u, alice, "physics.lhc", "sleep 600", "--gres=gpu:1")
	running := c.job(t, u, alice, "physics.ligo", "sleep 600", "--gres=gpu:1")
	bobs := c.job(t, u, bob, "physics.ligo", "sleep 600", "--gres=gpu:1")
	for _, id := range []string{elsewhere, running, bobs} {
		c.await(t, u, id, slurmtest.Running)
	}
	queued := c.job(t, u, bob, "physics.ligo", "sleep 600", "--gres=gpu:2", "--nodes=2-2", "--ntasks=2")
	c.await(t, u, queued, slurmtest.Pending)

	less := c.share(base, genes(), lhc())
	p := c.plan(t, less, false)
	require.Equal(t, []plan.JobRule{{Accounts: []string{"physics.ligo"}, CancelsQueued: true}}, p.Actions[0].Impact.Jobs)
	require.Equal(t, 2, p.Jobs.Waited.Count)
	require.Equal(t, 1, p.Jobs.Cancelled.Count)

	c.hosts.failStep(12, runtimes.ErrUnreachable) // a crash, and the same action again
	_ = c.apply(t, p)
	c.hosts.failStep(0, nil)
	require.ErrorIs(t, c.removal(t, less), runtimes.ErrWaiting)
	c.await(t, less, queued, slurmtest.Failed)
	_, err := c.trySubmit(t, u, bob, "true\n", "--account=physics.ligo")
	require.ErrorContains(t, err, "AssocGrpSubmitJobsLimit")
	c.rt = c.ahead(time.Hour) // more than the unit's on_jobs
	require.ErrorContains(t, c.removal(t, less), "account physics.ligo still has running jobs, and on_jobs says wait")
	c.rt = c.runtime(t)
	c.await(t, less, running, slurmtest.Running)
	c.await(t, less, c.job(t, less, alice, "physics.lhc", "true"), slurmtest.Completed)

	c.carry(t, u, false) // taken back
	c.await(t, u, c.job(t, u, bob, "physics.ligo", "true"), slurmtest.Completed)
	c.await(t, u, bobs, slurmtest.Running)

	b.OnJobs = &schema.OnJobs{CancelAfterSeconds: 1}
	c.carry(t, c.share(base, genes(), lhc(), b), false)
	c.removed(t, less)
	c.await(t, less, running, slurmtest.Failed)
	c.await(t, less, bobs, slurmtest.Failed)
	c.await(t, less, elsewhere, slurmtest.Running)
	require.Equal(t, "bio.genes\nmembers\nphysics.lhc\nroot\n", c.tool(t, u, "sacctmgr -n -P list account format=account | LC_ALL=C sort"))
	require.NotContains(t, c.tool(t, u, "sacctmgr -n -P list qos format=name"), "ligo")
	require.NotContains(t, c.tool(t, u, "scontrol show partitions"), "ligo")
	require.NotContains(t, c.onControl(t, u, "cut -d: -f1 /etc/passwd"), bob.Name)
	require.Contains(t, c.onControl(t, u, "cut -d: -f1 /etc/passwd"), alice.Name)

	// The last project leaves too, and another one comes.
	c.tool(t, u, "scancel "+elsewhere)
	c.removed(t, c.share(base))
	c.removed(t, c.share(base, ligo()))
	c.await(t, u, c.job(t, u, bob, "physics.ligo", "true"), slurmtest.Completed)
}
