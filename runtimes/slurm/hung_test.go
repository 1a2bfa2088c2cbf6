package slurm

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/cli"
)

// A boot ends the jobs of a node, and slurmctld has them as running until the node registers
// again (S9 of the findings on machines with systemd).
func TestJobsFromBeforeTheBootAreLost(t *testing.T) {
	earliest := earliestStarts([]cli.QueuedJob{
		{ID: "1", State: "R", Nodes: []string{"gpu-1", "gpu-2"}, Started: 200},
		{ID: "2", State: "R", Nodes: []string{"gpu-1"}, Started: 100},
		{ID: "3", State: "PD", Nodes: []string{"gpu-3"}},
	})
	require.Equal(t, map[string]int64{"gpu-1": 100, "gpu-2": 200}, earliest)
	for _, c := range []struct {
		node   string
		booted int64
		age    time.Duration
		lost   bool
	}{
		{"gpu-1", 150, time.Minute, true},
		{"gpu-1", 150, 30 * time.Second, false}, // a registration would not requeue them yet
		{"gpu-1", 50, time.Minute, false},
		{"gpu-1", 0, time.Minute, false}, // it did not register yet
		{"gpu-2", 150, time.Minute, false},
		{"gpu-3", 150, time.Minute, false},
	} {
		require.Equal(t, c.lost, hasLostJobs(node{Name: c.node, Booted: c.booted}, earliest, c.age), "%+v", c)
	}
}

// A cluster whose tools wait longer than Slurm's default is probed as long.
func TestProbeWaitsAsLongAsTheToolsOfTheCluster(t *testing.T) {
	c := hungDaemons{newCluster(t).on(t).control}
	require.Zero(t, c.messageTimeout())
	c.rec.Unit.Effective.Config = json.RawMessage(`{"options":{"MessageTimeout":60},"scheduler":{"interval_seconds":30}}`)
	require.Equal(t, time.Minute, c.messageTimeout())
}

// A poll whose caller ends reports just that: the awaited condition did not fail, and a changed
// configuration is not rolled back for it.
func TestPollOfACallerThatEnds(t *testing.T) {
	e := environment{timeouts: Timeouts{Ready: time.Minute}}
	ctx, end := context.WithCancel(t.Context())
	err := e.poll(ctx, "node", func(context.Context) (bool, string, error) {
		end()
		return false, "it is down", nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "last seen: it is down")
	e.timeouts.Ready = 10 * time.Millisecond
	err = e.poll(t.Context(), "node", func(context.Context) (bool, string, error) { return false, "it is down", nil })
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "node: not within 10ms; last seen: it is down")
}
