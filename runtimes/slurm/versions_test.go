package slurm

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// A leave drains the node and waits for its jobs with the tools of every release.
func TestLeaveWaitsForJobsOnEveryRelease(t *testing.T) {
	for _, version := range []string{"22.05.8", "24.11.5", "26.05.5"} {
		c := newCluster(t)
		c.version = version
		c.queue = []string{"7 R 2001 main"}
		require.ErrorIs(t, c.apply(t, plan.Leave, c.unit), runtimes.ErrWaiting, version)
		require.Contains(t, c.node, "DRAIN", version)
		require.False(t, c.wk.ran("slurmd"), version)
		c.queue = nil
		require.NoError(t, c.apply(t, plan.Leave, c.unit), version)
		require.True(t, c.wk.ran("clear slurmd"), version)
	}
}

// A job that asks for a leaving node by name is cancelled before the node leaves, as the plan says on every release. While the node
// joins again with another shape, it waits.
func TestJobThatNamesALeavingNodeIsCancelled(t *testing.T) {
	c := newCluster(t)
	queue := []string{"7 PD 2001 main gpu-[1-2]", "8 PD 2001 main gpu-2", "9 PD 2001 main", "10 PD 2001 main gpu-1"}
	c.queue = slices.Clone(queue)
	require.NoError(t, c.apply(t, plan.Leave, c.unit))
	require.Equal(t, queue, c.queue)

	c = newCluster(t)
	c.queue = slices.Clone(queue)
	after := c.unit
	after.Members = after.Members[:1]
	require.NoError(t, c.apply(t, plan.Leave, after))
	require.Equal(t, queue[1:3], c.queue)
	require.True(t, c.ctl.ran("scancel", profile.CancelPending))
}

// D6: an answer in the shape of another release was read as a cluster without nodes, so
// a leave stopped slurmd under its jobs.
func TestLeaveNeedsAListOfNodes(t *testing.T) {
	for _, said := range []string{`{"meta":{"slurm":{"release":"24.11.5"}},"errors":[],"warnings":[],"sinfo":[]}`, "{}"} {
		c := newCluster(t)
		c.sinfo, c.queue = said, []string{"7 R 2001 main"}
		require.ErrorContains(t, c.apply(t, plan.Leave, c.unit), `host ctl: sinfo --json: the answer has no list`)
		require.False(t, c.wk.ran("slurmd"))
		require.False(t, c.ctl.ran("delete"))
		require.False(t, c.ctl.ran("scontrol update"))
	}
}

// With the tools of a version that Berth does not run, nothing is known and nothing is
// changed.
func TestUnknownReleaseIsNotGuessed(t *testing.T) {
	c := newCluster(t)
	c.version = "23.11.4"
	const want = "host ctl: slurm 23.11.4 is installed, and Berth runs 22.05, 24.11, 26.05: install one of them, and declare it in the " +
		"AppVersion"
	require.ErrorContains(t, c.apply(t, plan.Leave, c.unit), want)
	obs := c.observe(t)
	require.Equal(t, plan.Unknown, obs.Presence)
	require.Contains(t, obs.Reason, want)
	for _, line := range append(c.ctl.runs, c.wk.runs...) {
		require.True(t, strings.HasSuffix(line, " -V") || strings.HasPrefix(line, "scontrol show") ||
			strings.HasPrefix(line, "scontrol ping") || strings.HasPrefix(line, "id -u ") || strings.Contains(line, " list ") ||
			strings.Contains(line, "read_only"), line)
	}
}

// declares returns the unit with a declared version of Slurm.
func (c *fakeCluster) declares(version string) plan.Unit {
	u := c.unit
	u.Effective.AppSelection = schema.AppSelection{App: "slurm", Version: "v", SoftwareVersion: version}
	return u
}

// The installed version of a host is compared before anything is written there.
func TestJoinAndCreateNeedTheDeclaredVersion(t *testing.T) {
	const want = " 22.05.8 is installed, and AppVersion slurm/v declares 24.11.5: install Slurm 24.11.5 on the host, or let the instance " +
		"name an AppVersion that declares 22.05.8"
	c := newCluster(t)
	delete(c.wk.files, workerRecordPath)
	var worker, controller []runtimes.Op
	c.wk.before = func(op runtimes.Op) error { worker = append(worker, op); return nil }
	c.ctl.before = func(op runtimes.Op) error { controller = append(controller, op); return nil }
	require.ErrorContains(t, c.apply(t, plan.Join, c.declares("24.11.5")), "host gpu-1: slurmd"+want)
	require.False(t, works(worker), "%+v", worker)
	require.False(t, works(controller), "%+v", controller)
	require.NoError(t, c.apply(t, plan.Join, c.declares("22.05")), "a series allows its maintenance releases")

	c.loseRecord()
	controller = nil
	u := c.declares("24.11.5")
	p := plan.Plan{Key: u.Effective.Key, After: &u}
	a := plan.Action{ID: "action.1", Verb: plan.Create, Member: "controller-0", Node: "ctl"}
	err := c.rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: a, Stamp: runtimes.Stamp{Epoch: 1, ActionID: a.ID}})
	require.ErrorContains(t, err, "host ctl: slurmctld"+want)
	require.False(t, works(controller), "%+v", controller)
}

// Hosts with another version than the declared one are drift, each with its own text. A
// change is applied, and then says so.
func TestOtherVersionIsReported(t *testing.T) {
	c := newCluster(t)
	u := c.declares("22.05.8")
	see := func() []plan.Drift {
		return c.rt.Observe(t.Context(), runtimes.Scope{Key: u.Effective.Key, Members: u.Members[:1], Instance: &u.Effective}).Drift
	}
	require.Empty(t, see())
	c.wk.answer = func(run *runtimes.Run) (string, int) {
		if run.Program == profile.Slurmd {
			return "slurm-wlm 22.05.9\n", 0
		}
		return c.answer(run)
	}
	const wrong = "host gpu-1: slurmd 22.05.9 is installed, and AppVersion slurm/v declares 22.05.8: install Slurm 22.05.8 on the host, " +
		"or let the instance name an AppVersion that declares 22.05.9"
	require.Equal(t, []plan.Drift{{Member: "worker-0", What: "version", Detail: wrong}}, see())

	u.Effective.Config = partitionNamed("other")
	require.ErrorContains(t, c.apply(t, plan.Configure, u), wrong)
	require.JSONEq(t, string(u.Effective.Config), string(c.record(t).Unit.Effective.Config))
	require.Equal(t, "22.05.8", c.record(t).Unit.Effective.SoftwareVersion)

	u = c.declares("24.11")
	u.Effective.Config = partitionNamed("other")
	require.Len(t, see(), 2, "the controller as well")

	// A host that does not answer is reported as such.
	c.wk.before = func(runtimes.Op) error { return runtimes.ErrUnreachable }
	require.Len(t, see(), 1)
}
