package slurm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/cli"
)

// Slurm says of a job that a node could not start that its launch failed, or that an administrator holds it.
func TestFailedLaunchIsToldFromAHold(t *testing.T) {
	const began = 1_800_000_000
	last := lastRuns([]cli.Run{
		{ID: 7, State: "REQUEUED", Submitted: began - 60, Started: began - 50, Ended: began - 1, Nodes: []string{"w0"}},
		{ID: 7, State: "REQUEUED", Submitted: began, Started: began + 1, Ended: began + 2, Nodes: []string{"w1"}},
		{ID: 7, State: "PENDING", Submitted: began + 2},
		{ID: 8, State: "REQUEUED", Submitted: began, Started: began, Ended: began + 600, Nodes: []string{"w2"}},
	})
	require.Equal(t, []string{"w1"}, heldJob{"7", heldByAdmin}.failedOn(last[7]), "at once")
	require.Equal(t, []string{"w2"}, heldJob{"8", launchFailed}.failedOn(last[8]), "after a long Prolog")
	require.Empty(t, heldJob{"8", heldByAdmin}.failedOn(last[8]), "after it ran")
	require.Empty(t, heldJob{"9", heldByAdmin}.failedOn(last[9]), "it never started")
}
