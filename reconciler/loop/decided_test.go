package loop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// A decision is no observation: members that an action may have put on nodes stay in the status, so that nobody else gets the nodes.
func TestDecisionKeepsBegunMembers(t *testing.T) {
	t.Parallel()
	key := schema.InstanceKey("physics", "lab", "train")
	begun := []plan.BegunMember{{Name: "worker-1", Role: "worker", Node: "gpu-2"}}
	prev := &plan.Status{Key: key, Phase: plan.PhaseUpdating,
		Observed: &plan.Observed{Key: key, Presence: plan.Present, Complete: true, Begun: begun}}
	st := &reconciler.State{Desired: &schema.Desired{}, Effective: &schema.Effective{}}
	next := statusOfDecision(key, st, prev, "c0ffee", time.Unix(0, 0))
	require.Equal(t, plan.PhaseDeleting, next.Phase)
	require.Equal(t, begun, next.Observed.Begun)
}
