package slurm

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/schema"
)

// drawUnit draws a unit of up to three workers, partitions and users.
func drawUnit(t *rapid.T, name string) plan.Unit {
	u := example().Unit
	type entry struct {
		Name    string `json:"name"`
		Default bool   `json:"default,omitempty"`
	}
	set := struct {
		Partitions []entry        `json:"partitions"`
		Scheduler  map[string]int `json:"scheduler"`
		Identity   string         `json:"identity"`
	}{Scheduler: map[string]int{"interval_seconds": rapid.IntRange(30, 31).Draw(t, name+" interval")}, Identity: "managed"}
	for i, p := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"main", "quick", "long"}), 1, 3, rapid.ID).Draw(t,
		name+" partitions") {
		set.Partitions = append(set.Partitions, entry{p, i == 0})
	}
	u.Effective.Config, _ = json.Marshal(set)
	u.Effective.Users = nil
	for i, n := range []string{"ada", "bob", "eve"} {
		if rapid.Bool().Draw(t, name+" has "+n) {
			u.Effective.Users = append(u.Effective.Users, schema.UnixUser{Name: n, UID: 20001 + i})
		}
	}
	u.Effective.OnJobs = rapid.SampledFrom([]*schema.OnJobs{nil, {Wait: true}, {CancelAfterSeconds: 60}}).Draw(t, name+" on jobs")
	control, worker := u.Members[0], u.Members[1]
	u.Members = []plan.Member{control}
	for i := range 3 {
		if rapid.Bool().Draw(t, fmt.Sprint(name, " worker ", i)) {
			w := worker
			w.Name, w.Node, w.CPUs = fmt.Sprintf("worker-%d", i), fmt.Sprintf("gpu-%d", i), rapid.IntRange(2, 3).Draw(t, name+" cpus")
			u.Members = append(u.Members, w)
		}
	}
	u.Effective.Roles = []schema.EffectiveRole{{Name: "controller", ControlPlane: true, Count: 1},
		{Name: "worker", Count: len(u.Members) - 1}}
	return u
}

// drawQueue draws jobs that the unit may have.
func drawQueue(t *rapid.T, u plan.Unit) []cli.QueuedJob {
	var jobs []cli.QueuedJob
	set, err := cluster.Parse(u.Effective.Config)
	require.NoError(t, err)
	var partitions []string
	for _, p := range set.Partitions {
		partitions = append(partitions, p.Name)
	}
	nodes := cluster.WorkerNodes(&u)
	for i := range rapid.IntRange(0, 10).Draw(t, "jobs") {
		if len(u.Effective.Users) == 0 {
			break
		}
		j := cli.QueuedJob{ID: fmt.Sprint(i + 1), Tasks: 1, State: "PD", Account: "members", QoS: "normal",
			User:       rapid.SampledFrom(u.Effective.Users).Draw(t, "user").Name,
			Partitions: rapid.SliceOfNDistinct(rapid.SampledFrom(partitions), 1, len(partitions), rapid.ID).Draw(t, "in")}
		if len(nodes) > 0 && rapid.Bool().Draw(t, "runs") {
			j.State, j.Partitions = rapid.SampledFrom([]string{"R", "CG", "S"}).Draw(t, "state"), j.Partitions[:1]
			j.Nodes = rapid.SliceOfNDistinct(rapid.SampledFrom(nodes), 1, 2, rapid.ID).Draw(t, "on")
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// The numbers of a plan add up to those of the snapshot, for each action and for all
// together, and no job is counted twice: also one whose node leaves and whose partition and
// user go with the same change.
func TestImpactOfAChangeAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawUnit(t, "before"), drawUnit(t, "after")
		queue := drawQueue(t, before)
		jobs := JobsOf(queue, time.Unix(1, 0))
		o := plan.Observed{Key: before.Effective.Key, Presence: plan.Present, Complete: true, Unit: &before, Jobs: jobs}
		for _, m := range before.Members {
			o.Members = append(o.Members, plan.MemberState{Name: m.Name, Node: m.Node, State: plan.Running})
		}
		in := plan.Input{Key: o.Key, After: &after.Effective, Members: after.Members, Observed: o, Rules: cluster.Rules{}}
		switch rapid.IntRange(0, 5).Draw(t, "change") {
		case 0:
			in.After, in.Members = nil, nil
		case 1:
			in.After = &before.Effective
			in.After.DesiredState, in.Members = schema.DesiredStopped, before.Members
		}
		p := plan.Make(in)
		for _, i := range append([]*plan.JobImpact{p.Jobs}, impactsOf(p)...) {
			require.Equal(t, jobs.Running, i.Running())
			require.Equal(t, jobs.Pending, i.Queued())
		}
		left := partitionsIn(t, after)
		changes := len(p.Actions) > 0 && in.After != nil && in.After.DesiredState != schema.DesiredStopped
		ended, cancelled, moved := 0, 0, 0
		for _, j := range queue {
			_, isUser := find(after.Effective.Users, j.User)
			switch {
			case !changes:
			case j.Pending() && !isUser:
				cancelled++
			case j.Pending():
				stay := slices.DeleteFunc(slices.Clone(j.Partitions), func(p string) bool { return !slices.Contains(left, p) })
				if len(stay) == 0 {
					cancelled++
				} else if len(stay) < len(j.Partitions) {
					moved++
				}
			case !isUser || !slices.Contains(left, j.Partitions[0]) || leaves(p, j.Nodes):
				ended++
			}
		}
		if changes {
			require.Equal(t, ended, p.Jobs.Ended.Count+p.Jobs.Waited.Count)
			require.Equal(t, cancelled, p.Jobs.Cancelled.Count)
			require.Equal(t, moved, p.Jobs.Moved.Count)
		}
		without := in
		without.Observed.Jobs = nil
		require.Equal(t, plan.Make(without).Digest, p.Digest, "no digest covers the jobs")
	})
}

func impactsOf(p plan.Plan) (out []*plan.JobImpact) {
	for _, a := range p.Actions {
		out = append(out, a.Jobs)
	}
	return out
}

func partitionsIn(t *rapid.T, u plan.Unit) (out []string) {
	set, err := cluster.Parse(u.Effective.Config)
	require.NoError(t, err)
	for _, p := range set.Partitions {
		out = append(out, p.Name)
	}
	return out
}

func find(users []schema.UnixUser, name string) (schema.UnixUser, bool) {
	for _, u := range users {
		if u.Name == name {
			return u, true
		}
	}
	return schema.UnixUser{}, false
}

// leaves reports whether a member on one of the nodes leaves, now or later.
func leaves(p plan.Plan, nodes []string) bool {
	return slices.ContainsFunc(slices.Concat(p.Actions, p.Later),
		func(a plan.Action) bool { return a.Verb == plan.Leave && slices.Contains(nodes, a.Node) })
}

// Jobs that differ in their ids only are one group, and the first ids are kept.
func TestImpactSnapshotIsBounded(t *testing.T) {
	var queue []cli.QueuedJob
	for i := range 5000 {
		queue = append(queue, cli.QueuedJob{ID: fmt.Sprint(i / 2), State: "PD", User: "ada", Partitions: []string{"main"}})
	}
	jobs := JobsOf(queue, time.Unix(1, 0))
	require.Equal(t, 5000, jobs.Pending)
	require.Len(t, jobs.Groups, 1)
	require.Equal(t, 5000, jobs.Groups[0].Count)
	require.Len(t, jobs.Groups[0].IDs, plan.MaxJobIDs)
}

// A snapshot that fails says so, and says nothing about slurmctld.
func TestImpactWithoutASnapshot(t *testing.T) {
	c := newCluster(t)
	c.queue = []string{"7 R 2001 main", "8 PD 2001 main,quick"}
	o := c.observe(t)
	require.Equal(t, 1, o.Jobs.Running)
	require.Equal(t, 1, o.Jobs.Pending)
	require.Empty(t, o.Jobs.Unknown)

	c.queue = []string{"|7 R 2001 main"}
	o = c.observe(t)
	require.Equal(t, plan.Present, o.Presence)
	require.Equal(t, "ctl did not answer", o.Jobs.Unknown)
	require.Equal(t, plan.Running, o.Members[0].State)
}
