package pulls

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// Roll-outs of one tenant take turns with those of others, and with the publication of plans.
func TestOwnersAtTheForge(t *testing.T) {
	e := &env{open: newOpenPulls("main")}
	e.open.put(reconciler.PullRequest{Number: 7, Author: "eve", Open: true, BaseBranch: "main"})
	p := &Planner{env: e, reporter: &Reporter{rollouts: newRollOuts(time.Now)}}
	for _, tenant := range []string{"physics", "biology"} {
		p.reporter.rollouts.Observe(&plan.Status{Key: schema.InstanceKey(tenant, "lab", "train"), LastApplied: plan.LastApplied{Revision: "c1"}})
	}
	for want, i := range map[string]reconciler.Item{
		"author eve":     {Task: reconciler.TaskPull, Pull: 7},
		"author ":        {Task: reconciler.TaskPull, Pull: 8},
		"tenant biology": {Task: reconciler.TaskRollout, Commit: "c1"},
		"tenant ":        {Task: reconciler.TaskRollout, Commit: "c2"},
		"show":           {Task: reconciler.TaskShow},
		"replan":         {Task: reconciler.TaskReplan},
	} {
		require.Equal(t, want, p.Owner(i))
	}
}
