package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// A member is abandoned by a deletion only if its node is lost for long enough by its own observation and by the scheduler, without
// jobs; a control plane never is.
func TestMembersOfLostNodesAreAbandoned(t *testing.T) {
	key := schema.InstanceKey("physics", "lhc", "train")
	unit := &plan.Unit{Effective: schema.EffectiveUnit{Key: key}, Members: []plan.Member{
		{Name: "controller-0", Role: "controller", Node: "ctl", ControlPlane: true}, {Name: "worker-0", Role: "worker", Node: "w1"}}}
	input := func(change func(*plan.Input)) plan.Input {
		in := plan.Input{Key: key, Nodes: map[string]plan.NodeState{"w1": {LostFor: plan.AbandonAfter}},
			Observed: plan.Observed{Key: key, Presence: plan.Present, Complete: true, Unit: unit, Members: []plan.MemberState{
				{Name: "controller-0", Node: "ctl", State: plan.Running},
				{Name: "worker-0", Node: "w1", State: plan.Unreachable, Scheduler: plan.Unresponsive}}}}
		change(&in)
		return in
	}
	verbs := func(p plan.Plan) (out []plan.Verb) {
		for _, a := range p.Actions {
			out = append(out, a.Verb)
		}
		return out
	}
	p := plan.Make(input(func(*plan.Input) {}))
	require.Equal(t, []plan.Verb{plan.Abandon}, verbs(p), "alone: it is recorded before the deletion goes on")
	require.True(t, p.IsOfLostNodes())
	for name, change := range map[string]func(*plan.Input){
		"too short": func(in *plan.Input) {
			in.Nodes = map[string]plan.NodeState{"w1": {LostFor: plan.AbandonAfter - time.Second}}
		},
		"not lost": func(in *plan.Input) { in.Nodes = nil },
		"jobs":     func(in *plan.Input) { in.Observed.Members[1].HasJobs = true },
		"responds": func(in *plan.Input) { in.Observed.Members[1].Scheduler = plan.Responds },
		"no view":  func(in *plan.Input) { in.Observed.Members[1].Scheduler = plan.NoView },
		"control plane": func(in *plan.Input) {
			in.Nodes = map[string]plan.NodeState{"ctl": {LostFor: plan.AbandonAfter}}
			in.Observed.Members[0].State, in.Observed.Members[0].Scheduler = plan.Unreachable, plan.Unresponsive
		},
	} {
		p := plan.Make(input(change))
		require.Empty(t, p.Actions, name)
		require.Equal(t, plan.CodeUnreachable, p.Blocked[0].Code, name)
	}

	left := []plan.Abandoned{{Member: unit.Members[1]}}
	gone := func(isReady bool, members ...plan.MemberState) plan.Plan {
		in := plan.Input{Key: key, Abandoned: left, Nodes: map[string]plan.NodeState{"w1": {Ready: isReady}},
			Observed: plan.Observed{Key: key, Presence: plan.Absent, Members: members}}
		return plan.Make(in)
	}
	require.Equal(t, []plan.Verb{plan.Clean}, verbs(gone(true)))
	require.Equal(t, &unit.Members[1], gone(true).Actions[0].Left)
	require.Empty(t, verbs(gone(false)))
	require.Empty(t, verbs(gone(true, plan.MemberState{Name: "worker-0", Node: "w1"})), "it was not taken out")
}
