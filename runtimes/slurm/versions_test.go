package slurm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
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
	const want = "host ctl: slurm 23.11.4 is installed, and Berth runs 22.05, 24.11, 26.05: install one of them, and declare it in the AppVersion"
	require.ErrorContains(t, c.apply(t, plan.Leave, c.unit), want)
	obs := c.observe(t)
	require.Equal(t, plan.Unknown, obs.Presence)
	require.Contains(t, obs.Reason, want)
	for _, line := range append(c.ctl.runs, c.wk.runs...) {
		require.True(t, strings.HasSuffix(line, " -V") || strings.HasPrefix(line, "scontrol show") || strings.HasPrefix(line, "scontrol ping") || strings.Contains(line, " list "), line)
	}
}
