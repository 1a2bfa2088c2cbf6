package loop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// A decision keeps the references and notes of members that stay on their nodes: it is made from the
// recorded observation, which has none. A member that has left its node loses them. An observation by the runtime replaces the note.
func TestDecisionKeepsReferencesOfMembers(t *testing.T) {
	member := func(node string) plan.Member { return plan.Member{Name: "worker-0", Role: "worker", Node: node} }
	references := map[string]string{"node": "a"}
	status := func(node string) plan.Status {
		return plan.Status{
			Key: train, Phase: plan.PhaseRunning, EffectiveValues: plan.EffectiveValues{RuntimeBackend: "bare_metal"},
			Members: []plan.MemberStatus{{Member: member(node), State: plan.Running, Note: "30 of 32 CPUs",
				Integration: &plan.Integration{SchedulerType: "bare_metal", Adapter: "runtimes/bare_metal", References: references}}},
			Observed: &plan.Observed{Key: train, Presence: plan.Present, Complete: true,
				Unit: &plan.Unit{Effective: schema.EffectiveUnit{Key: train,
					AppSelection: schema.AppSelection{RuntimeBackend: "bare_metal"}}, Members: []plan.Member{member("a")}},
				Members: []plan.MemberState{{Name: "worker-0", Node: "a", State: plan.Running}}},
		}
	}
	st := &reconciler.State{Desired: &schema.Desired{Platform: &schema.Platform{}}, Effective: &schema.Effective{}}
	for node, want := range map[string]map[string]string{"a": references, "b": nil} {
		prev := status(node)
		next := statusOfDecision(train, st, &prev, "m2", time.Time{})
		require.Len(t, next.Members, 1)
		require.Equal(t, want, next.Members[0].Integration.References, node)
		require.Equal(t, want != nil, next.Members[0].Note == "30 of 32 CPUs", node)
	}
	prev := status("a")
	seen := plan.Observed{Key: train, Presence: plan.Present, Unit: prev.Observed.Unit,
		Members: []plan.MemberState{{Name: "worker-0", Node: "a", State: plan.Running, References: references}}}
	for _, note := range []string{"", "31 of 32 CPUs"} {
		seen.Members[0].Note = note
		require.Equal(t, note, unitView{prev: &prev, observed: seen, st: st}.memberStatuses()[0].Note)
	}
}
