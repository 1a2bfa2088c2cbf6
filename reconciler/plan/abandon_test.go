package plan_test

import (
	"fmt"
	"slices"
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

// A worker whose role says so gets another node once its own is lost for the declared time, and at most max_unavailable at once are
// on their way. It joins no node on which an abandoned member has remains.
func TestWorkersOfLostNodesAreReplaced(t *testing.T) {
	key := schema.InstanceKey("physics", "lhc", "train")
	after := &schema.EffectiveUnit{Key: key, DesiredState: schema.DesiredRunning, Roles: []schema.EffectiveRole{
		{Name: "controller", ControlPlane: true, Count: 1}, {Name: "worker", Count: 3}}}
	worker := func(i int) plan.Member {
		return plan.Member{Name: fmt.Sprint("worker-", i), Role: "worker", Node: fmt.Sprint("w", i)}
	}
	members := []plan.Member{{Name: "controller-0", Role: "controller", Node: "ctl", ControlPlane: true}, worker(0), worker(1), worker(2)}
	const lostFor = 30 * time.Minute
	abandoned := func(on *schema.OnNodeLost, change func(*plan.Input)) (out []string) {
		unit := *after
		unit.Roles = slices.Clone(unit.Roles)
		unit.Roles[1].OnNodeLost = on
		states := []plan.MemberState{{Name: "controller-0", Node: "ctl", State: plan.Running}}
		for _, m := range members[1:] {
			states = append(states, plan.MemberState{Name: m.Name, Node: m.Node, State: plan.Unreachable, Scheduler: plan.Unresponsive})
		}
		states[3].State, states[3].Scheduler = plan.Running, plan.Responds
		in := plan.Input{Key: key, After: &unit, Members: members,
			Nodes: map[string]plan.NodeState{"w0": {LostFor: lostFor}, "w1": {LostFor: lostFor}, "w2": {Ready: true}},
			Observed: plan.Observed{Key: key, Presence: plan.Present, Complete: true, Members: states,
				Unit: &plan.Unit{Effective: unit, Members: members}}}
		change(&in)
		p := plan.Make(in)
		for _, a := range p.Actions {
			if a.Verb == plan.Abandon || a.Verb == plan.Join {
				out = append(out, string(a.Verb)+" "+a.Member)
			}
		}
		return out
	}
	as := func(*plan.Input) {}
	soon := &schema.OnNodeLost{ReplaceAfterSeconds: int(lostFor.Seconds())}
	require.Equal(t, []string{"abandon worker-0"}, abandoned(soon, as), "the other one waits until it runs again")
	require.Empty(t, abandoned(nil, as))
	require.Empty(t, abandoned(&schema.OnNodeLost{Wait: true}, as))
	require.Empty(t, abandoned(&schema.OnNodeLost{ReplaceAfterSeconds: int(lostFor.Seconds()) + 1}, as))
	require.Equal(t, []string{"abandon worker-0", "abandon worker-1"}, abandoned(soon, func(in *plan.Input) {
		in.After.Roles[1].MaxUnavailable.Number = 2
	}))
	require.Equal(t, []string{"abandon worker-1"}, abandoned(soon, func(in *plan.Input) { in.Observed.Members[1].HasJobs = true }))
	out := func(in *plan.Input) { // worker-0 is out
		unit := *in.Observed.Unit
		unit.Members = append(slices.Clone(members[:1]), members[2:]...)
		in.Observed.Unit, in.Observed.Members = &unit, append(slices.Clone(in.Observed.Members[:1]), in.Observed.Members[2:]...)
		in.Abandoned = []plan.Abandoned{{Member: members[1]}}
	}
	require.Empty(t, abandoned(soon, out), "its place is not known yet")
	require.Equal(t, []string{"join worker-0"}, abandoned(soon, func(in *plan.Input) {
		out(in)
		in.Members = slices.Clone(members)
		in.Members[1].Node = "w3"
	}))
}
