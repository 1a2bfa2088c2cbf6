package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// A node on which an action may have put a member is taken until an observation comes after the action, whatever the unit's
// documents say meanwhile.
func TestNodeOfABegunMemberIsTaken(t *testing.T) {
	worker := schema.EffectiveRole{Name: "worker", NodeRole: "worker", Count: 1}
	train, other := schema.InstanceKey("physics", "lhc", "train"), schema.InstanceKey("physics", "lhc", "other")
	node := func(name string) *schema.Node {
		return &schema.Node{Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: name}},
			Spec: schema.NodeSpec{Roles: []string{"worker"}}}
	}
	eff := &schema.Effective{
		Nodes: map[string]*schema.Node{"n0": node("n0"), "n1": node("n1")},
		Tenants: map[string]*schema.EffectiveTenant{"physics": {Projects: map[string]*schema.EffectiveProject{
			"lhc": {Units: map[string]*schema.EffectiveUnit{"other": {Key: other, Roles: []schema.EffectiveRole{worker}}}}}}},
	}
	place := func(o plan.Observed) string {
		st := &plan.Status{Key: train, Phase: plan.PhaseDeleting, Observed: &o}
		return plan.Place(eff, plan.Remember(st)).Members(other)[0].Node
	}
	absent := plan.Observed{Key: train, Presence: plan.Absent}
	require.Equal(t, "n0", place(absent))

	begun := absent.WithBegun(&plan.Plan{
		After:   &plan.Unit{Members: []plan.Member{{Name: "worker-0", Role: "worker", Node: "n0"}}},
		Actions: []plan.Action{{Verb: plan.Join, Member: "worker-0", Node: "n0"}}})
	require.Equal(t, plan.Unknown, begun.Presence)
	require.Equal(t, "n1", place(begun))
}

// A new member joins no node that an unreachable member of the unit has not left.
func TestNewMemberWaitsForAnUnreachableOne(t *testing.T) {
	key := schema.InstanceKey("physics", "lhc", "train")
	role := func(shared bool) []schema.EffectiveRole {
		return []schema.EffectiveRole{{Name: "controller", ControlPlane: true, Count: 1}, {Name: "worker", Count: 1, Shareable: shared}}
	}
	joins := func(shared bool, state plan.State) (out []string) {
		control := plan.Member{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "ctl"}
		after := &schema.EffectiveUnit{Key: key, DesiredState: schema.DesiredRunning, Roles: role(shared)}
		before := &plan.Unit{Effective: *after, Members: []plan.Member{control, {Name: "worker-1", Role: "worker", Node: "n0"}}}
		p := plan.Make(plan.Input{Key: key, After: after,
			Members: []plan.Member{control, {Name: "worker-0", Role: "worker", Node: "n0"}},
			Observed: plan.Observed{Key: key, Presence: plan.Present, Complete: true, Unit: before, Members: []plan.MemberState{
				{Name: "controller-0", Node: "ctl", State: plan.Running}, {Name: "worker-1", Node: "n0", State: state}}}})
		for _, a := range p.Actions {
			if a.Verb == plan.Join {
				out = append(out, a.Member)
			}
		}
		return out
	}
	require.Empty(t, joins(false, plan.Unreachable))
	require.Equal(t, []string{"worker-0"}, joins(false, plan.Running), "it follows the leave")
	require.Equal(t, []string{"worker-0"}, joins(true, plan.Unreachable), "the node has room for both")
}
