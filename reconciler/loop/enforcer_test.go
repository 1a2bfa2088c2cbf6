package loop

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// A node that becomes ready while a decision is made is given to a waiting member once that decision is in force: its placement
// does not know the node yet.
func TestDecisionIsPlacedAgainIfAStatusChangedMeanwhile(t *testing.T) {
	for _, isReady := range []bool{false, true} {
		r := New(Options{Log: slog.New(slog.DiscardHandler)})
		st := &reconciler.State{Main: "m", InForce: "f", Desired: &schema.Desired{Platform: &schema.Platform{}}, Effective: &schema.Effective{}}
		change := &decidedChange{next: st, placedAt: r.status.Version()}
		if isReady {
			_, ok := r.status.SetResource(nil, plan.ThingStatus{Key: nodeKey("gpu-1"), Phase: plan.NodeReady})
			require.True(t, ok)
		}
		r.estate.enforcer.recordDecision(effects{state: st, change: change})
		queue := r.queues.tasks[reconciler.TaskPlace].queue
		if !isReady {
			require.Zero(t, queue.Len())
			continue
		}
		require.Equal(t, 1, queue.Len())
		item, _ := queue.Get()
		require.Equal(t, reconciler.TaskPlace, item.Task)
	}
}
