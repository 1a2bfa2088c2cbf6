package slurm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
)

// Only slurmctld's own flag says that a node does not respond; a node that it does not know says nothing.
func TestSchedulerViewOfANode(t *testing.T) {
	require.Equal(t, plan.NoView, viewOf(node{}, false))
	require.Equal(t, plan.Responds, viewOf(node{State: "down", Flags: []string{"DRAIN"}}, true))
	require.Equal(t, plan.Unresponsive, viewOf(node{State: "down", Flags: []string{"NOT_RESPONDING"}}, true))
	require.Equal(t, plan.Unresponsive, viewOf(node{State: "idle", Flags: []string{"NOT_RESPONDING"}}, true))
}
