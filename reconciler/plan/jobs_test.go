package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/reconciler/plan"
)

var (
	jobNodes      = []string{"n1", "n2", "n3"}
	jobPartitions = []string{"main", "quick", "long"}
	jobUsers      = []string{"ada", "bob", "eve"}
)

// drawJobs draws a snapshot with a group a job, and a bit of unknown ones.
func drawJobs(t *rapid.T) plan.Jobs {
	j := plan.Jobs{At: time.Unix(1, 0)}
	some := func(from []string, least int) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(from), least, 2, rapid.ID).Draw(t, "some")
	}
	for i := range rapid.IntRange(0, 12).Draw(t, "jobs") {
		g := plan.JobGroup{Count: 1, User: rapid.SampledFrom(jobUsers).Draw(t, "user"), Account: "members", QoS: "normal",
			IDs: []string{fmt.Sprint(100 + i)}}
		if g.Pending = rapid.Bool().Draw(t, "pending"); g.Pending {
			g.Partitions = some(jobPartitions, 1)
			j.Pending++
		} else {
			g.Partitions, g.Nodes = some(jobPartitions, 1)[:1], some(jobNodes, 1)
			j.Running++
		}
		j.Groups = append(j.Groups, g)
	}
	j.Running += rapid.IntRange(0, 2).Draw(t, "more running")
	j.Pending += rapid.IntRange(0, 2).Draw(t, "more pending")
	return j
}

func drawRules(t *rapid.T) []plan.Action {
	var out []plan.Action
	some := func(from []string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, 3, rapid.ID).Draw(t, "of")
	}
	for range rapid.IntRange(0, 3).Draw(t, "actions") {
		var rules []plan.JobRule
		for range rapid.IntRange(0, 2).Draw(t, "rules") {
			r := plan.JobRule{CancelAfter: rapid.SampledFrom([]int{0, 60, 600}).Draw(t, "after"),
				CancelsQueued: rapid.Bool().Draw(t, "queued")}
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				r.Nodes = some(jobNodes)
			case 1:
				r.Partitions = some(jobPartitions)
			case 2:
				r.Users = some(jobUsers)
			case 3:
				r.All = true
			}
			rules = append(rules, r)
		}
		out = append(out, plan.Action{Impact: plan.Impact{Jobs: rules}})
	}
	return out
}

// runsOn reports whether a running job is met by a rule, in the words of the rule.
func runsOn(r plan.JobRule, g plan.JobGroup) bool {
	on := func(a, b []string) bool {
		return slices.ContainsFunc(a, func(x string) bool { return slices.Contains(b, x) })
	}
	return r.All || on(r.Nodes, g.Nodes) || on(r.Partitions, g.Partitions) || slices.Contains(r.Users, g.User)
}

// The sets add up to the totals, each job is in one set, and it is the set that a person
// would put it in who follows the job through every action.
func TestJobImpactAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs, actions := drawJobs(t), drawRules(t)
		got := plan.ImpactOn(actions, &jobs)
		require.Equal(t, jobs.Running, got.Running())
		require.Equal(t, jobs.Pending, got.Queued())
		for i := range actions { // no action alone does more than all of them
			one := plan.ImpactOn(actions[i:i+1], &jobs)
			require.Equal(t, jobs.Running, one.Running())
			require.Equal(t, jobs.Pending, one.Queued())
			require.LessOrEqual(t, one.Ended.Count, got.Ended.Count)
			require.LessOrEqual(t, one.Cancelled.Count, got.Cancelled.Count)
			require.GreaterOrEqual(t, one.Continue.Count, got.Continue.Count)
			require.GreaterOrEqual(t, one.Kept.Count, got.Kept.Count)
		}
		want := map[string]int{}
		named := map[string]string{}
		known := plan.Jobs{}
		for _, g := range jobs.Groups {
			fate := jobFate(g, actions)
			want[fate]++
			named[g.IDs[0]] = fate
			if g.Pending {
				known.Pending++
			} else {
				known.Running++
			}
		}
		for range jobs.Running - known.Running {
			want[jobFate(plan.JobGroup{}, actions)]++
		}
		for range jobs.Pending - known.Pending {
			want[jobFate(plan.JobGroup{Pending: true}, actions)]++
		}
		for fate, set := range map[string]plan.JobSet{"ended": got.Ended, "waited": got.Waited, "continue": got.Continue,
			"cancelled": got.Cancelled, "moved": got.Moved, "kept": got.Kept} {
			require.Equal(t, want[fate], set.Count, fate)
			require.LessOrEqual(t, len(set.IDs), plan.MaxJobIDs)
			sum := 0
			for _, u := range set.Users {
				sum += u.Count
			}
			require.LessOrEqual(t, sum, set.Count)
			for _, id := range set.IDs {
				require.Equal(t, fate, named[id])
			}
		}
	})
}

// jobFate follows one job through all actions.
func jobFate(g plan.JobGroup, actions []plan.Action) string {
	left := slices.Clone(g.Partitions)
	fate := map[bool]string{true: "kept", false: "continue"}[g.Pending]
	for _, a := range actions {
		for _, r := range a.Impact.Jobs {
			switch {
			case !g.Pending && runsOn(r, g) && r.CancelAfter > 0:
				fate = "ended"
			case !g.Pending && runsOn(r, g) && fate != "ended":
				fate = "waited"
			case g.Pending && r.CancelsQueued && (r.All || slices.Contains(r.Users, g.User)):
				fate = "cancelled"
			case g.Pending && r.CancelsQueued:
				left = slices.DeleteFunc(left, func(p string) bool { return slices.Contains(r.Partitions, p) })
			}
		}
	}
	switch {
	case fate != "kept" || len(left) == len(g.Partitions):
		return fate
	case len(left) == 0:
		return "cancelled"
	}
	return "moved"
}

// Named jobs are few, and a job that two actions end is named and counted once.
func TestJobImpactNamesFew(t *testing.T) {
	jobs := plan.Jobs{At: time.Unix(1, 0), Running: 70}
	for i := range 35 {
		g := plan.JobGroup{Count: 2, User: fmt.Sprintf("user%d", i), Partitions: []string{"quick"}, Nodes: []string{"n1"}}
		for k := range 2 {
			g.IDs = append(g.IDs, fmt.Sprint(1000+2*i+k))
		}
		jobs.Groups = append(jobs.Groups, g)
	}
	actions := []plan.Action{
		{Impact: plan.Impact{Jobs: []plan.JobRule{{Nodes: []string{"n1"}, CancelAfter: 600}}}},
		{Impact: plan.Impact{Jobs: []plan.JobRule{{Partitions: []string{"quick"}, CancelAfter: 60}}}},
	}
	got := plan.ImpactOn(actions, &jobs)
	require.Equal(t, 70, got.Ended.Count)
	require.Len(t, got.Ended.IDs, plan.MaxJobIDs)
	require.Len(t, got.Ended.Users, plan.MaxJobIDs)
	require.Equal(t, []int{60}, got.EndAfter, "the first deadline ends the job")

	require.Nil(t, plan.ImpactOn(actions, nil))
	require.False(t, plan.ImpactOn(actions, nil).Known())
	silent := plan.ImpactOn(actions, &plan.Jobs{Unknown: "lab-1 did not answer"})
	require.False(t, silent.Known())
	require.Equal(t, "lab-1 did not answer", silent.Unknown)
}

// A running job of which a part is not known is on each node that a plan takes, and is named for it.
func TestUnreadJobIsOnEachNode(t *testing.T) {
	jobs := plan.Jobs{At: time.Unix(1, 0), Running: 2, Pending: 1, Groups: []plan.JobGroup{
		{Count: 1, User: "ada", Nodes: []string{"n2"}, IDs: []string{"204"}},
		{Count: 1, User: "bob", Unread: true, IDs: []string{"205"}},
		{Count: 1, User: "bob", Unread: true, Pending: true, IDs: []string{"206"}},
	}}
	got := plan.ImpactOn([]plan.Action{{Impact: plan.Impact{Jobs: []plan.JobRule{{Nodes: []string{"n1"}}}}}}, &jobs)
	require.Equal(t, []string{"205"}, got.Waited.IDs)
	require.Equal(t, []string{"205"}, got.Unread)
	require.Equal(t, 1, got.Continue.Count)
	require.Equal(t, 1, got.Kept.Count)
	none := plan.ImpactOn([]plan.Action{{Impact: plan.Impact{Jobs: []plan.JobRule{{Users: []string{"eve"}}}}}}, &jobs)
	require.Empty(t, none.Unread, "nothing happens to it")
}
