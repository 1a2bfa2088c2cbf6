package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/reconciler/plan"
)

// limits returns the limits of an account by which one job has at most so many GPUs, and all running
// ones together.
func limits(perJob, together int) plan.JobLimits {
	return plan.JobLimits{PerJob: map[string]int{plan.ResourceGPUs: perJob}, Together: map[string]int{plan.ResourceGPUs: together}}
}

func withTerms(terms ...plan.JobTerms) []plan.Action {
	return []plan.Action{{Impact: plan.Impact{Terms: terms}}}
}

// queueOf returns a snapshot of the account a, of which used GPUs are in use, with one queued job for
// each number of GPUs.
func queueOf(used int, queued ...int) *plan.Jobs {
	running := plan.JobGroup{Count: 1, Account: "a", User: "ada", JobRequest: plan.JobRequest{GPUs: used}, IDs: []string{"1"}}
	j := &plan.Jobs{At: time.Unix(1, 0), Running: 1, Groups: []plan.JobGroup{running}}
	for _, n := range queued {
		j.Pending++
		j.Groups = append(j.Groups, plan.JobGroup{
			Count: 1, Pending: true, Account: "a", User: "ada", JobRequest: plan.JobRequest{GPUs: n, CPUs: 1},
			Partitions: []string{"main"}, IDs: []string{fmt.Sprint("gpus-", n)},
		})
	}
	return j
}

// Terms that become narrower name the queued jobs that ask for more than one job can have, and those
// that wait for others; terms that become wider those that can start again. Jobs that a change of
// terms does not concern are kept, and so are jobs of other accounts.
func TestTermsNameQueuedJobs(t *testing.T) {
	jobs := queueOf(3, 0, 1, 4, 9)
	other := plan.JobGroup{Count: 2, Pending: true, Account: "b", JobRequest: plan.JobRequest{GPUs: 9}, Partitions: []string{"main"}}
	jobs.Groups, jobs.Pending = append(jobs.Groups, other), jobs.Pending+2
	narrow := plan.ImpactOn(withTerms(plan.JobTerms{Account: "a", Before: limits(8, 8), After: limits(2, 3)}), jobs)
	require.Equal(t, []string{"gpus-4"}, narrow.CannotStart.IDs)
	require.Equal(t, []plan.UserJobs{{User: "ada", Account: "a", Count: 1}}, narrow.CannotStart.Users)
	require.Equal(t, []plan.AccountJobs{{Account: "a", Count: 1}}, narrow.CannotStart.Accounts)
	require.Equal(t, []string{"gpus-1"}, narrow.Delayed.IDs)
	require.Equal(t, 4, narrow.Kept.Count, "one without GPUs, one that could not start before either, and those of another account")
	require.Equal(t, 1, narrow.Continue.Count, "running jobs go on, whatever they have")

	wide := plan.ImpactOn(withTerms(plan.JobTerms{Account: "a", Before: limits(2, 3), After: limits(8, 8)}), jobs)
	require.ElementsMatch(t, []string{"gpus-1", "gpus-4"}, wide.MayStart.IDs)
	require.Equal(t, 4, wide.Kept.Count)
	require.Zero(t, wide.CannotStart.Count+wide.Delayed.Count)
}

// A limit of 0 is not the same as no limit.
func TestTermsOfNothing(t *testing.T) {
	none := plan.JobTerms{Account: "a", Before: plan.JobLimits{}, After: limits(0, 0)}
	i := plan.ImpactOn(withTerms(none), queueOf(0, 0, 1))
	require.Equal(t, []string{"gpus-1"}, i.CannotStart.IDs)
	require.Equal(t, 1, i.Kept.Count)
}

// A queued job cannot start once no partition of its has as many nodes as it asks for, each with what it asks of each node.
func TestTermsOfNodes(t *testing.T) {
	node := func(count, cpus, memory int, gpus map[string]int, features ...string) plan.SameNodes {
		return plan.SameNodes{Count: count, Has: plan.NodeResources{CPUs: cpus, MemoryMiB: memory, GPUs: gpus, Features: features}}
	}
	sizes := func(nodes ...plan.SameNodes) plan.JobLimits {
		return plan.JobLimits{Sizes: map[string]plan.PartitionSize{"main": nodes}}
	}
	large := node(2, 64, 512000, map[string]int{"a100": 8}, "worker", "gpu", "a100")
	small := node(4, 16, 64000, map[string]int{"v100": 2, "t4": 1}, "worker", "gpu", "v100", "t4")
	for name, c := range map[string]struct {
		job  plan.JobGroup
		fits bool // on the small nodes alone
	}{
		"nothing in particular": {plan.JobGroup{}, true},
		"many CPUs together":    {plan.JobGroup{JobRequest: plan.JobRequest{CPUs: 64}}, true},
		"too many CPUs":         {plan.JobGroup{JobRequest: plan.JobRequest{CPUs: 65}}, false},
		"CPUs of a node":        {plan.JobGroup{JobRequest: plan.JobRequest{CPUs: 17, Each: plan.NodeResources{CPUs: 17}}}, false},
		"memory of a node":      {plan.JobGroup{JobRequest: plan.JobRequest{Each: plan.NodeResources{MemoryMiB: 64001}}}, false},
		"GPUs of any type": {plan.JobGroup{JobRequest: plan.JobRequest{GPUs: 3,
			Each: plan.NodeResources{GPUs: map[string]int{"": 3}}}}, true},
		"GPUs of a node": {plan.JobGroup{JobRequest: plan.JobRequest{GPUs: 4, Each: plan.NodeResources{GPUs: map[string]int{"": 4}}}},
			false},
		"a type of GPU": {plan.JobGroup{JobRequest: plan.JobRequest{GPUs: 1,
			Each: plan.NodeResources{GPUs: map[string]int{"a100": 1}}}}, false},
		"another type": {plan.JobGroup{JobRequest: plan.JobRequest{GPUs: 2,
			Each: plan.NodeResources{GPUs: map[string]int{"v100": 2}}}}, true},
		"a feature": {plan.JobGroup{JobRequest: plan.JobRequest{Each: plan.NodeResources{Features: []string{"gpu", "a100"}}}},
			false},
		"another feature": {plan.JobGroup{JobRequest: plan.JobRequest{Each: plan.NodeResources{Features: []string{"t4", "v100"}}}},
			true},
		"nodes": {plan.JobGroup{JobRequest: plan.JobRequest{NodeCount: 5}}, false},
		"nodes of a feature": {plan.JobGroup{JobRequest: plan.JobRequest{NodeCount: 3,
			Each: plan.NodeResources{Features: []string{"v100"}}}}, true},
		"a part": {plan.JobGroup{Parts: []plan.JobGroup{{Partitions: []string{"main"},
			JobRequest: plan.JobRequest{Each: plan.NodeResources{Features: []string{"a100"}}}}}}, false},
	} {
		c.job.Count, c.job.Pending, c.job.Partitions = 1, true, []string{"main"}
		jobs := &plan.Jobs{At: time.Unix(1, 0), Pending: 1, Groups: []plan.JobGroup{c.job}}
		i := plan.ImpactOn(withTerms(plan.JobTerms{Before: sizes(large, small), After: sizes(small)}), jobs)
		require.Equal(t, c.fits, i.Kept.Count == 1, name)
		require.Equal(t, !c.fits, i.CannotStart.Count == 1, name)
	}
}

// A queued job cannot start if none of its partitions takes it.
func TestTermsOfPartitions(t *testing.T) {
	jobs := &plan.Jobs{At: time.Unix(1, 0), Pending: 2, Running: 1, Groups: []plan.JobGroup{
		{Count: 1, Pending: true, Account: "a", Partitions: []string{"quick"}, IDs: []string{"1"}},
		{Count: 1, Pending: true, Account: "a", Partitions: []string{"main", "quick"}, IDs: []string{"2"}},
		{Count: 1, Account: "a", Partitions: []string{"quick"}, Nodes: []string{"n1"}, IDs: []string{"3"}},
	}}
	i := plan.ImpactOn(withTerms(plan.JobTerms{Account: "a", After: plan.JobLimits{Without: []string{"quick"}}}), jobs)
	require.Equal(t, []string{"1"}, i.CannotStart.IDs)
	require.Equal(t, 1, i.Kept.Count)
	require.Equal(t, 1, i.Continue.Count)

	// A job that an action cancels is not counted again.
	actions := withTerms(plan.JobTerms{Account: "a", After: plan.JobLimits{Without: []string{"quick"}}})
	actions = append(actions, plan.Action{Impact: plan.Impact{Jobs: []plan.JobRule{{Accounts: []string{"a"}, CancelsQueued: true}}}})
	i = plan.ImpactOn(actions, jobs)
	require.Equal(t, 2, i.Cancelled.Count)
	require.Zero(t, i.CannotStart.Count)
}

// The time of a job that asks for none is that of the limit, and becomes shorter with it. Other jobs
// keep theirs.
func TestTermsOfTime(t *testing.T) {
	minutes := func(n int) plan.JobLimits { return plan.JobLimits{PerJob: map[string]int{plan.ResourceMinutes: n}} }
	jobs := &plan.Jobs{At: time.Unix(1, 0), Pending: 4}
	for _, n := range []int{0, 20, 45, 60} {
		jobs.Groups = append(jobs.Groups, plan.JobGroup{Count: 1, Pending: true, Account: "a", Minutes: n, IDs: []string{fmt.Sprint(n)}})
	}
	i := plan.ImpactOn(withTerms(plan.JobTerms{Account: "a", Before: minutes(60), After: minutes(30)}), jobs)
	require.Equal(t, []string{"45"}, i.CannotStart.IDs)
	require.Equal(t, 3, i.Kept.Count)
	i = plan.ImpactOn(withTerms(plan.JobTerms{Account: "a", After: minutes(30)}), jobs)
	require.Equal(t, []string{"45", "60"}, i.CannotStart.IDs)
}

// Of several limits on a job, the narrowest counts: those of its account and of its QoS.
func TestTermsOfAccountAndQoS(t *testing.T) {
	jobs := queueOf(0, 2)
	for i := range jobs.Groups {
		jobs.Groups[i].QoS = "a_guaranteed"
	}
	account := plan.JobTerms{Account: "a", Before: limits(1, 1), After: limits(1, 1)}
	qos := plan.JobTerms{QoS: "a_guaranteed", Before: limits(1, 1), After: limits(4, 4)}
	require.Equal(t, 1, plan.ImpactOn(withTerms(account, qos), jobs).Kept.Count, "the account still allows 1 GPU")
	require.Equal(t, 1, plan.ImpactOn(withTerms(qos), jobs).MayStart.Count)
}

// Jobs of a QoS that may be preempted go on, and are named.
func TestPreemptibleJobsAreNamed(t *testing.T) {
	jobs := queueOf(1, 1)
	for i := range jobs.Groups {
		jobs.Groups[i].QoS = "a"
	}
	i := plan.ImpactOn([]plan.Action{{Impact: plan.Impact{Preempts: []plan.JobPreemption{{QoS: []string{"a"}, Mode: "requeue",
		For: []string{"b"}}}}}}, jobs)
	require.Equal(t, []string{"1"}, i.Preemptible.IDs)
	require.Equal(t, 1, i.Kept.Count, "a queued job is not preempted")
	require.Equal(t, 1, i.Running())
}

// Whatever the terms are, each job is in one set, and what narrower terms take, wider ones give back.
func TestTermsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := drawJobs(t)
		for i := range jobs.Groups {
			g := &jobs.Groups[i]
			g.Account = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "account")
			g.GPUs, g.CPUs = rapid.IntRange(0, 3).Draw(t, "gpus"), rapid.IntRange(1, 3).Draw(t, "cpus")
		}
		draw := func(name string) (l plan.JobLimits) {
			l.Without = rapid.SliceOfDistinct(rapid.SampledFrom(jobPartitions), rapid.ID).Draw(t, name+" without")
			resources := rapid.SampledFrom([]string{plan.ResourceGPUs, plan.ResourceCPUs, plan.ResourceJobs})
			l.PerJob = rapid.MapOf(resources, rapid.IntRange(0, 4)).Draw(t, name+" per job")
			l.Together = rapid.MapOf(resources, rapid.IntRange(0, 6)).Draw(t, name+" together")
			return l
		}
		terms := plan.JobTerms{Account: "a", Before: draw("before"), After: draw("after")}
		there := plan.ImpactOn(withTerms(terms), &jobs)
		terms.Before, terms.After = terms.After, terms.Before
		back := plan.ImpactOn(withTerms(terms), &jobs)
		require.Equal(t, jobs.Running, there.Continue.Count)
		require.Equal(t, jobs.Pending, there.Queued())
		require.Equal(t, there.Kept.Count, back.Kept.Count)
		require.Equal(t, there.MayStart.Count, back.CannotStart.Count+back.Delayed.Count)
	})
}
