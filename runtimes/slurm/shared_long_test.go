//go:build long

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
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// removed applies a unit until nothing is left to do.
func (c *company) removed(t *testing.T, u plan.Unit) {
	t.Helper()
	eventually(t, "the removal ends", func() (bool, string) {
		err := c.removal(t, u)
		p := c.plan(t, u, false)
		return err == nil && p.Empty(), fmt.Sprint(err)
	})
}

// A job that alone exceeds a limit of its project is refused with the name of the limit.
func TestLongSharedLimitsRefuseJobsByName(t *testing.T) {
	t.Parallel()
	c := newSharing(t)
	a := lhc()
	b := ligo()
	b.Queues, b.Guaranteed = []string{"quick"}, schema.Amount{GPUs: 1, CPUs: 1}
	base := c.unit(strings.Replace(twoPartitions, `"default":true`, `"default":true,"default_time_minutes":60`, 1), nil, nil, 0, 1)
	u := c.share(base, genes(), a, b)
	c.carry(t, u, false)
	c.await(t, u, c.job(t, u, carol, "bio.genes", "true"), slurmtest.Completed)
	c.await(t, u, c.job(t, u, alice, "physics.lhc", "true", "--gres=gpu:2"), slurmtest.Completed)
	c.await(t, u, c.job(t, u, bob, "physics.ligo", "true", "--partition=quick"), slurmtest.Completed)
	c.await(t, u, c.job(t, u, bob, "physics.ligo", "true", "--partition=quick", "--qos=physics.ligo"), slurmtest.Completed)

	refused := func(user schema.UnixUser, project, field string, options ...string) {
		t.Helper()
		_, err := c.trySubmit(t, u, user, "true\n", append(options, "--account="+project)...)
		require.Error(t, err, field)
		var found []string
		for limit, of := range (slurm.Backend{}).Limits() {
			if strings.Contains(err.Error(), "error: "+limit) || strings.Contains(err.Error(), limit) && strings.Contains(limit, " ") {
				found = append(found, of)
			}
		}
		require.Equal(t, []string{field}, found, err)
		lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
		t.Logf("%s %s: %s", c.version, field, strings.TrimSpace(lines[0][strings.LastIndex(lines[0], "sbatch: "):]))
	}
	refused(bob, "physics.ligo", "queues", "--partition=main")
	refused(bob, "physics.ligo", "guaranteed.gpus", "--partition=quick", "--gres=gpu:2")
	refused(bob, "physics.ligo", "guaranteed.cpus", "--partition=quick", "--ntasks=2")

	for _, limit := range []struct {
		field  string
		set    func(*schema.EffectiveAttachment)
		option string
	}{
		{"max_gpus", func(a *schema.EffectiveAttachment) { a.MaxGPUs = 1 }, "--gres=gpu:2"},
		{"max_cpus", func(a *schema.EffectiveAttachment) { a.MaxCPUs = 1 }, "--ntasks=2"},
		{"max_gpus_per_job", func(a *schema.EffectiveAttachment) { a.MaxGPUs, a.MaxGPUsPerJob = 4, 1 }, "--gres=gpu:2"},
		{"max_cpus_per_job", func(a *schema.EffectiveAttachment) { a.MaxCPUs, a.MaxCPUsPerJob = 4, 1 }, "--ntasks=2"},
		{"max_walltime_minutes", func(a *schema.EffectiveAttachment) { a.MaxWalltimeMinutes = 5 }, "--time=6"},
		{"max_submitted_jobs", func(a *schema.EffectiveAttachment) { a.Closed = true }, "--time=1"},
	} {
		now := lhc()
		limit.set(&now)
		u = c.share(base, genes(), now, b)
		c.carry(t, u, false)
		refused(alice, "physics.lhc", limit.field, limit.option)
	}
	a.MaxWalltimeMinutes = 5
	u = c.share(base, genes(), a, b)
	c.carry(t, u, false)
	refused(alice, "physics.lhc", "max_walltime_minutes") // for the default time of the partition

}

// Jobs that exceed a limit together wait with its name.
func TestLongSharedLimitsLetJobsWaitByName(t *testing.T) {
	t.Parallel()
	c := newSharing(t)
	base := c.unit(twoPartitions, nil, nil, 0, 1)
	u := c.share(base, genes(), lhc())
	c.carry(t, u, false)
	waits := func(field string, set func(*schema.EffectiveAttachment)) {
		t.Helper()
		now := lhc()
		set(&now)
		u = c.share(base, genes(), now)
		c.carry(t, u, false)
		first := c.job(t, u, alice, "physics.lhc", "sleep 300", "--gres=gpu:1")
		c.await(t, u, first, slurmtest.Running)
		second := c.job(t, u, alice, "physics.lhc", "sleep 300", "--gres=gpu:1")
		eventually(t, "the second job waits for "+field, func() (bool, string) {
			out := strings.TrimSpace(c.tool(t, u, "squeue -h -j "+second+" -o %r"))
			return slurm.Backend{}.Limits()[out] == field, out
		})
		t.Logf("%s %s: pending reason %s", c.version, field, strings.TrimSpace(c.tool(t, u, "squeue -h -j "+second+" -o %r")))
		c.tool(t, u, "scancel "+first+" "+second)
	}
	waits("max_gpus", func(a *schema.EffectiveAttachment) { a.MaxGPUs = 1 })
	waits("max_cpus", func(a *schema.EffectiveAttachment) { a.MaxCPUs = 1 })
	waits("max_running_jobs", func(a *schema.EffectiveAttachment) { a.MaxRunningJobs = 1 })

	u = c.share(base, genes(), lhc())
	c.carry(t, u, false)
	first := c.job(t, u, alice, "physics.lhc", "sleep 300", "--gres=gpu:2", "--nodes=2", "--ntasks=2")
	c.await(t, u, first, slurmtest.Running)
	second := c.job(t, u, alice, "physics.lhc", "sleep 300", "--gres=gpu:2")
	now := lhc()
	now.Queues = []string{"quick"}
	u = c.share(base, genes(), now)
	c.carry(t, u, false)
	c.scheduled(t, u, "Main", 2)
	c.await(t, u, first, slurmtest.Running)
	t.Logf("%s a job in a queue that is taken away: %s", c.version, c.tool(t, u, "squeue -h -j "+second+" -o '%T %r'"))
}

// slurmctld uses a limit of a QoS in place of the same limit of the account. A project whose limit
// a QoS of the config would replace cannot use that QoS, and those it can use are limited too.
func TestLongSharedLimitsHoldInEveryQoS(t *testing.T) {
	t.Parallel()
	c := newSharing(t)
	config := strings.Replace(onePartition, `"scheduler"`,
		`"qos":[{"name":"team","group":{"gpus":4}},{"name":"long","max_time_minutes":600},{"name":"fast","priority":5}],"scheduler"`, 1)
	a := lhc()
	a.Guaranteed = schema.Amount{GPUs: 2, CPUs: 64}
	u := c.share(c.unit(config, nil, nil, 0), a)
	c.carry(t, u, false)
	for _, qos := range []string{"team", "long", "fast"} {
		c.await(t, u, c.job(t, u, alice, "physics.lhc", "true", "--gres=gpu:2", "--qos="+qos), slurmtest.Completed)
	}
	a.MaxGPUs, a.MaxWalltimeMinutes = 1, 5
	u = c.share(c.unit(config, nil, nil, 0), a)
	c.carry(t, u, false)
	for _, qos := range []string{"team", "long"} {
		_, err := c.trySubmit(t, u, alice, "true\n", "--account=physics.lhc", "--time=1", "--qos="+qos)
		require.ErrorContains(t, err, "Invalid qos")
	}
	_, err := c.trySubmit(t, u, alice, "true\n", "--account=physics.lhc", "--time=1", "--gres=gpu:2") // within the guaranteed share
	require.ErrorContains(t, err, "AssocGrpGRES")
	id := c.job(t, u, alice, "physics.lhc", "true", "--time=1", "--gres=gpu:2", "--qos=fast")
	eventually(t, "the job waits", func() (bool, string) {
		out := strings.TrimSpace(c.tool(t, u, "squeue -h -j "+id+" -o '%T %r'"))
		return out == "PENDING AssocGrpGRES", out
	})
}

// Terms that become narrower or wider restart nothing, write no file and touch no job.
func TestLongSharedTermsChangeWithoutTouchingJobs(t *testing.T) {
	t.Parallel()
	c := newSharing(t)
	base := c.unit(onePartition, nil, nil, 0, 1)
	u := c.share(base, genes(), lhc(), ligo())
	c.carry(t, u, false)
	jobs := []string{
		c.job(t, u, carol, "bio.genes", "sleep 600", "--gres=gpu:1"), c.job(t, u, alice, "physics.lhc", "sleep 600", "--gres=gpu:1"),
		c.job(t, u, bob, "physics.ligo", "sleep 600", "--gres=gpu:1"),
	}
	for _, id := range jobs {
		c.await(t, u, id, slurmtest.Running)
	}
	before, files := c.fingerprint(t, u), c.onControl(t, u, "cd /etc/slurm/*/ && stat -c '%n %i %Y' *.conf")
	pids := fmt.Sprint(c.services(t, u))
	for _, set := range []func(*schema.EffectiveAttachment){
		func(a *schema.EffectiveAttachment) {
			a.MaxGPUs, a.MaxCPUsPerJob, a.MaxRunningJobs, a.MaxSubmittedJobs, a.MaxWalltimeMinutes, a.Priority, a.Share = 1, 1, 1, 2, 30, 7,
				9
		},
		func(a *schema.EffectiveAttachment) { a.MaxGPUs, a.Share = 9, 2 },
		func(a *schema.EffectiveAttachment) { a.Closed = true },
		func(a *schema.EffectiveAttachment) {},
	} {
		a := lhc()
		set(&a)
		u = c.share(base, genes(), a, ligo())
		p := c.plan(t, u, false)
		require.Len(t, p.Actions, 1)
		i := p.Actions[0].Impact
		require.Empty(t, i.Restarts)
		require.False(t, i.Reconfigure)
		require.Empty(t, i.Jobs)
		require.NotEmpty(t, i.Differences)
		began := time.Now()
		require.NoError(t, c.apply(t, p))
		t.Logf("terms changed in %.2f s", time.Since(began).Seconds())
		again := c.plan(t, u, false)
		require.True(t, again.Empty())
	}
	require.Equal(t, before, c.fingerprint(t, u))
	require.Equal(t, pids, fmt.Sprint(c.services(t, u)), "nothing was executed anew")
	require.Equal(t, files, c.onControl(t, u, "cd /etc/slurm/*/ && stat -c '%n %i %Y' *.conf"))
	require.Equal(t, "RUNNING\nRUNNING\nRUNNING\n", c.tool(t, u, "squeue -h -o %T"))
	require.Contains(t, c.tool(t, u, "sacctmgr -n -P list assoc account=physics.lhc user= format=account,share"), "physics.lhc|3\n")
}

// The queue of a project ends only as many jobs of others as its guaranteed share takes.
func TestLongSharedGuaranteeEndsNoMoreJobsThanItTakes(t *testing.T) {
	t.Parallel()
	c := newSharing(t)
	base := c.unit(`{"partitions":[{"name":"main","default":true}],"scheduler":{"interval_seconds":5,"cycle_seconds":60,"batch_delay_seconds":3},"identity":"managed"}`, nil, nil, 0, 1, 2)
	a, b := lhc(), ligo()
	a.Guaranteed, b.Preemption = schema.Amount{GPUs: 1, CPUs: 1}, &schema.Preemption{Mode: schema.PreemptCancel, GraceSeconds: 600}
	u := c.share(base, a, b)
	c.carry(t, u, false)
	for range 6 {
		c.job(t, u, bob, "physics.ligo", "sleep 600", "--gres=gpu:1")
	}
	eventually(t, "one project has all nodes", func() (bool, string) {
		out := c.tool(t, u, "squeue -h -t R -A physics.ligo -o %i")
		return strings.Count(out, "\n") == 6, out
	})
	for range 20 {
		c.job(t, u, alice, "physics.lhc", "sleep 600", "--gres=gpu:1")
	}
	ends := func() int { // jobs that have only their grace left
		return 6 - strings.Count(c.tool(t, u, "scontrol -o show job | grep Account=physics.ligo"), " PreemptTime=None")
	}
	eventually(t, "a job of others ends", func() (bool, string) { return ends() > 0, "" })
	c.scheduled(t, u, "Backfilling", 2)
	require.Equal(t, 1, ends())
}

// A lent node has the project that lends it as a feature, and leaves by the rule of its loan.
func TestLongSharedLentNodeLeavesByItsLoan(t *testing.T) {
	t.Parallel()
	c := newSharing(t)
	base := c.share(c.unit(onePartition, nil, nil, 0), genes(), lhc())
	u := base
	n := c.workers[2]
	u.Members = append(u.Members[:len(u.Members):len(u.Members)], plan.Member{
		Name: "worker." + n.Key.Name, Role: "worker", Node: n.Key.Name, Address: n.Spec.Address, SSHPort: 22,
		CPUs: n.Spec.Capacity.CPUs, MemoryMiB: n.Spec.Capacity.MemoryMiB, GPUs: n.Spec.Capacity.GPUs,
		Loan: &schema.Loan{ProjectID: "physics.lhc", Until: "2027-03-31", OnJobs: &schema.OnJobs{CancelAfterSeconds: 1}},
	})
	u.Effective.Lent = []schema.LentNode{{Node: n.Key.Name, Role: "worker", Loan: *u.Members[2].Loan}}
	c.carry(t, u, false)
	id := c.job(t, u, carol, "bio.genes", "sleep 600", "--gres=gpu:2", "--constraint=from_physics.lhc")
	require.Equal(t, []string{n.Key.Name}, c.await(t, u, id, slurmtest.Running).Nodes)
	own := c.job(t, u, alice, "physics.lhc", "sleep 600", "--gres=gpu:1", "--nodelist="+c.workers[0].Key.Name)
	c.await(t, u, own, slurmtest.Running)

	p := c.plan(t, base, false)
	var left bool
	for _, a := range p.Actions {
		if a.Verb == plan.Leave {
			left = true
			require.Equal(t, []plan.JobRule{{Nodes: []string{n.Key.Name}, CancelAfter: 1, Leave: true}}, a.Impact.Jobs)
		}
	}
	require.True(t, left, p.Actions)
	c.removed(t, base)
	c.await(t, base, id, slurmtest.Failed)
	c.await(t, base, own, slurmtest.Running)
	require.NotContains(t, c.tool(t, u, "sinfo -h -N -o %N"), n.Key.Name)
}

// The plan of narrower terms names the queued jobs that then wait, and that of wider ones those that
// then start. All others start, and running jobs go on.
func TestLongSharedTermsNameTheQueuedJobsThatWait(t *testing.T) {
	t.Parallel()
	c := newSharing(t)
	base := c.unit(strings.Replace(twoPartitions, `"interval_seconds":30`, `"interval_seconds":5`, 1), nil, nil, 0, 1)
	wide := c.share(base, genes(), lhc())
	c.carry(t, wide, false)
	first, second := c.workers[0].Key.Name, c.workers[1].Key.Name
	running := c.job(t, wide, alice, "physics.lhc", "sleep 600", "--gres=gpu:1", "--nodelist="+first)
	blocking := []string{
		c.job(t, wide, carol, "bio.genes", "sleep 600", "--nodelist="+first),
		c.job(t, wide, carol, "bio.genes", "sleep 600", "--nodelist="+second, "--ntasks=2"),
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

// A project gets its guaranteed share from the surplus of another one, however many jobs that has queued.
func TestLongSharedGuaranteePreemptsSurplus(t *testing.T) {
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

// A detached project leaves nothing behind, its running jobs end as its terms say, and nobody
// else's jobs do. Until then the detachment can be taken back.
func TestLongSharedDetachEndsTheJobsOfOneProject(t *testing.T) {
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
	require.ErrorContains(t, c.removal(t, less), "account physics.ligo still has running jobs, and Berth waits for their end")
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
