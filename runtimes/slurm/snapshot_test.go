package slurm

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// smaller returns the plan that takes workers and partitions from a cluster of three workers.
func smaller(t *testing.T, workers int, config string, queue ...cli.QueuedJob) *plan.JobImpact {
	t.Helper()
	unit := func(config string) plan.Unit {
		u := example().Unit
		u.Effective.Config = []byte(`{"scheduler":{"interval_seconds":30},"identity":"managed",` + config + `}`)
		u.Effective.Users = []schema.UnixUser{{Name: "ada", UID: 20001}}
		return u
	}
	before := unit(`"partitions":[{"name":"main"},{"name":"low"}]`)
	m := before.Members[1]
	before.Members = append(before.Members[:1:1], m, m, m)
	for i, node := range []string{"dev-gpu-1", "dev-gpu-2", "dev-gpu-3"} {
		before.Members[i+1].Node, before.Members[i+1].Name = node, "worker-"+string(rune('0'+i))
	}
	after := unit(config)
	after.Members = before.Members[:1+workers]
	before.Effective.Roles = []schema.EffectiveRole{{Name: "controller", ControlPlane: true, Count: 1}, {Name: "worker", Count: 3}}
	after.Effective.Roles = []schema.EffectiveRole{{Name: "controller", ControlPlane: true, Count: 1}, {Name: "worker", Count: workers}}
	o := plan.Observed{Key: before.Effective.Key, Presence: plan.Present, Complete: true, Unit: &before,
		Jobs: JobsOf(queue, time.Unix(1, 0))}
	for _, m := range before.Members {
		o.Members = append(o.Members, plan.MemberState{Name: m.Name, Node: m.Node, State: plan.Running})
	}
	return plan.Make(plan.Input{Key: o.Key, After: &after.Effective, Members: after.Members, Observed: o, Rules: cluster.Rules{}}).Jobs
}

// A waiting job whose nodes all leave, as it excludes the others by name, can never start.
func TestPlanKnowsExcludedNodes(t *testing.T) {
	excluded, err := cli.Excluded().Decode(cli.Answer{Stdout: []byte("JOBID EXC_NODES\n7 \n8 (null)\n9 dev-gpu-[1-2]\n10 dev-gpu-1\n11+0 " +
		"\n")})
	require.NoError(t, err)
	require.Equal(t, map[string]cli.NodeList{"9": "dev-gpu-[1-2]", "10": "dev-gpu-1"}, excluded)
	var workers []plan.Member
	for _, node := range []string{"dev-gpu-1", "dev-gpu-2", "dev-gpu-3"} {
		workers = append(workers, plan.Member{Node: node})
	}
	impact := func(count int) *plan.JobImpact {
		all := []cli.QueuedJob{
			{ID: "7", Raw: "7", State: "PD", Partitions: []string{"main"}},
			{ID: "9", Raw: "9", State: "PD", Partitions: []string{"main"}},
			{ID: "10", Raw: "10", State: "PD", Partitions: []string{"main"}, Asks: cli.Asked{Nodes: 2}},
		}
		Exclude(all, excluded, workers)
		return smaller(t, count, `"partitions":[{"name":"main"}]`, all...)
	}
	less := impact(2) // without dev-gpu-3
	require.Equal(t, []string{"9", "10"}, less.CannotStart.IDs)
	require.Equal(t, 1, less.Kept.Count)
	require.Zero(t, impact(3).CannotStart.Count)

	// A list that cannot be read marks its job, and no other one.
	jobs := []cli.QueuedJob{{ID: "7", Raw: "7", State: "PD"}, {ID: "9", Raw: "9", State: "PD"}}
	Exclude(jobs, map[string]cli.NodeList{"7": "dev-gpu-[1-", "9": "dev-gpu-[1-2]"}, workers)
	require.True(t, jobs[0].Unread)
	require.Equal(t, []string{"dev-gpu-3"}, jobs[1].Asks.Allowed)

	// One that can have many nodes counts as one that excludes none.
	for range maxAllowed {
		workers = append(workers, workers[2])
	}
	jobs[1].Asks.Allowed = nil
	Exclude(jobs, map[string]cli.NodeList{"9": "dev-gpu-[1-2]"}, workers)
	require.Empty(t, jobs[1].Asks.Allowed)
}

// A node that gets another shape leaves and joins again, and stays in slurm.conf: a waiting job that names it goes on waiting.
func TestNodeOfAnotherShapeKeepsTheJobsThatNameIt(t *testing.T) {
	before := example().Unit
	worker := before.Members[1]
	after, without := before, before
	after.Members, without.Members = slices.Clone(before.Members), before.Members[:1]
	after.Members[1].MemoryMiB /= 2
	jobs := JobsOf([]cli.QueuedJob{
		{ID: "7", State: "PD", Asks: cli.Asked{Named: []string{worker.Node}}},
		{ID: "8", State: "PD", Asks: cli.Asked{Allowed: []string{worker.Node}}},
	}, time.Unix(1, 0))
	impact := func(after *plan.Unit) *plan.JobImpact {
		leave := plan.Action{Verb: plan.Leave, Member: worker.Name, Node: worker.Node,
			Impact: cluster.Rules{}.Impact(plan.Leave, worker.Name, &before, after)}
		return plan.ImpactOn([]plan.Action{leave}, jobs)
	}
	require.Equal(t, 2, impact(&after).Kept.Count)
	require.Equal(t, []string{"7"}, impact(&without).Cancelled.IDs)
	require.Equal(t, []string{"8"}, impact(&without).CannotStart.IDs)
}

// The observation asks which nodes waiting jobs exclude, while there are any.
func TestObservationAsksForExcludedNodes(t *testing.T) {
	c := newCluster(t)
	c.queue, c.excluded = []string{"5 R alice main"}, []string{"5 gpu-1"}
	c.observe(t)
	asked := func() bool {
		return slices.Contains(c.ctl.runs, "squeue --all "+profile.QueuedStates+" "+profile.ExcludedFormat)
	}
	require.False(t, asked())
	c.queue = []string{"5 PD alice main"}
	jobs := c.observe(t).Jobs
	require.True(t, asked())
	require.Empty(t, jobs.Groups[0].Allowed, "gpu-1 is the only worker")
	c.excluded = []string{"5 gpu-9"}
	require.Equal(t, []string{"gpu-1"}, c.observe(t).Jobs.Groups[0].Allowed)
}

// A plan names each job once, by the id that squeue prints, with the worst that happens to one of its parts.
func TestPlanNamesAWholeJob(t *testing.T) {
	job := func(id, state, partition string, nodes ...string) cli.QueuedJob {
		return cli.QueuedJob{ID: id, Tasks: 1, State: state, User: "ada", Partitions: []string{partition}, Nodes: nodes}
	}
	const both, main = `"partitions":[{"name":"main"},{"name":"low"}]`, `"partitions":[{"name":"main"}]`

	got := smaller(t, 3, main, job("197+0", "PD", "main"), job("197+1", "PD", "low"), job("198", "PD", "main"))
	require.Equal(t, plan.JobSet{Count: 1, IDs: []string{"197"}, Users: []plan.UserJobs{{User: "ada", Count: 1}}}, got.Cancelled)
	require.Equal(t, 1, got.Kept.Count)

	got = smaller(t, 3, main, job("190+1", "R", "low", "dev-gpu-2"), job("190+0", "R", "main", "dev-gpu-1"),
		job("192_1", "R", "low", "dev-gpu-3"))
	require.Equal(t, []string{"190", "192_1"}, got.Waited.IDs)
	require.Zero(t, got.Continue.Count)

	array := cli.QueuedJob{ID: "5_[1-295:7%3]", Tasks: 43, State: "PD", User: "ada", Partitions: []string{"low"}}
	got = smaller(t, 3, main, array)
	require.Equal(t, 43, got.Cancelled.Count)
	require.Equal(t, []string{"5_[1-295:7%3]"}, got.Cancelled.IDs)

	array.ID = "5_[1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31,33,35,37,39,41,43,45,47]"
	require.Equal(t, []string{"5_[1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31,33,35,37,39,41...]"}, smaller(t, 3, main, array).Cancelled.IDs)
	require.Equal(t, 1, smaller(t, 2, both, job("197+0", "PD", "main"), job("197+1", "PD", "low")).Queued())
}

// A plan that takes workers names the queued jobs that Slurm then ends, as they name a node that leaves, and those that
// ask for more than what is left.
func TestPlanReadsWhatQueuedJobsAskFor(t *testing.T) {
	const both = `"partitions":[{"name":"main"},{"name":"low"}]`
	job := func(id string, asks cli.Asked, partitions ...string) cli.QueuedJob {
		return cli.QueuedJob{ID: id, Tasks: 1, State: "PD", User: "ada", Partitions: partitions, Asks: asks}
	}
	got := smaller(t, 2, both,
		job("1", cli.Asked{Nodes: 1, Named: []string{"dev-gpu-3"}}, "main"),
		job("2", cli.Asked{Nodes: 1, Named: []string{"dev-gpu-1"}}, "main"),
		job("3", cli.Asked{Nodes: 3, CPUs: 3}, "main"),
		job("4", cli.Asked{Nodes: 1, CPUs: 8, GPUs: 4}, "main", "low"), // on more than one node
		job("5", cli.Asked{Nodes: 9}, "main"),                          // it could not start before, either
	)
	require.Equal(t, []string{"1"}, got.Cancelled.IDs)
	require.Equal(t, []string{"3"}, got.CannotStart.IDs)
	require.Equal(t, 3, got.Kept.Count)

	got = smaller(t, 3, `"partitions":[{"name":"main","nodes":{"names":["dev-gpu-1"]}},{"name":"low"}]`,
		job("3", cli.Asked{Nodes: 2, CPUs: 3}, "main"), job("4", cli.Asked{Nodes: 2, CPUs: 8}, "main", "low"))
	require.Equal(t, []string{"3"}, got.CannotStart.IDs)

	got = smaller(t, 3, `"partitions":[{"name":"main"},{"name":"low","nodes":{"names":["dev-gpu-1"]}}]`,
		job("7+0", cli.Asked{Nodes: 1}, "main"), job("7+1", cli.Asked{Nodes: 2}, "low"))
	require.Equal(t, []string{"7"}, got.CannotStart.IDs)
}
