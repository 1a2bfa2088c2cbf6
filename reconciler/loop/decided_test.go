package loop

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// A decision is no observation: members that an action may have put on nodes stay in the status, so that no other unit gets the nodes.
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

// Placed again during a reconciliation, a unit is not recorded at the nodes before: another one may have them by now.
func TestRecordOfAnEarlierPlacementIsRefused(t *testing.T) {
	t.Parallel()
	key := schema.InstanceKey("physics", "lab", "train")
	unit := &schema.EffectiveUnit{Key: key, AppSelection: schema.AppSelection{RuntimeBackend: "test"}, DesiredState: schema.DesiredRunning,
		Roles: []schema.EffectiveRole{{Name: "worker", NodeRole: "worker", Count: 1}}}
	eff := func(node string) *schema.Effective {
		n := &schema.Node{Spec: schema.NodeSpec{Roles: []string{"worker"}}}
		n.Key = nodeKey(node)
		return &schema.Effective{Nodes: map[string]*schema.Node{node: n}, Tenants: map[string]*schema.EffectiveTenant{"physics": {
			Projects: map[string]*schema.EffectiveProject{"lab": {Units: map[string]*schema.EffectiveUnit{"train": unit}}}}}}
	}
	state := func(node string) *reconciler.State {
		return &reconciler.State{Desired: new(schema.Desired).OrEmpty(), Effective: eff(node),
			Placement: new(plan.Placer).Place(eff(node), plan.Memory{})}
	}
	r := New(Options{Log: slog.New(slog.DiscardHandler)})
	earlier := state("gpu-1")
	require.Equal(t, "gpu-1", earlier.Placement.Members(key)[0].Node)
	prev := plan.Status{Key: key, Phase: plan.PhaseRequested}
	require.True(t, r.units.set(nil, prev))
	record := func(st *reconciler.State) bool {
		v := newView(st, r.status.Unit(key), time.Now())
		v.observed = plan.Observed{Key: key, Presence: plan.Absent}
		return r.units.record(v)
	}
	r.inForce.set(state("gpu-2"))
	require.False(t, record(earlier))
	require.Empty(t, r.status.Unit(key).Members)
	r.inForce.set(state("gpu-1"))
	require.True(t, record(earlier), "the same placement, by another decision")
	require.Equal(t, "gpu-1", r.status.Unit(key).Members[0].Node)
}

// A member that moved has left its node when it is observed elsewhere, not when it is placed elsewhere: units that wait for the node
// are placed again then.
func TestMovedMemberFreesItsNodeOnceItLeft(t *testing.T) {
	t.Parallel()
	status := func(placed, observed string) *plan.Status {
		return &plan.Status{Members: []plan.MemberStatus{{Member: plan.Member{Name: "worker-0", Node: placed}}},
			Observed: &plan.Observed{Members: []plan.MemberState{{Name: "worker-0", Node: observed}}}}
	}
	require.False(t, freesNode(status("gpu-1", "gpu-1"), status("gpu-2", "gpu-1")))
	require.True(t, freesNode(status("gpu-2", "gpu-1"), status("gpu-2", "gpu-2")))
}
