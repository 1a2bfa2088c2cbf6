package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// A unit stops on its current nodes even if policy allows none of them. It is not
// moved first, and no member is added.
func TestStopNeedsNoAllowedNode(t *testing.T) {
	key := schema.InstanceKey("physics", "lhc", "train")
	inst := schema.EffectiveUnit{Key: key, AppSelection: schema.AppSelection{App: "batch", Version: "v1", RuntimeBackend: "bare_metal"},
		DesiredState: schema.DesiredRunning,
		Roles: []schema.EffectiveRole{{Name: "controller", NodeRole: "controller", ControlPlane: true, Count: 1},
			{Name: "worker", NodeRole: "worker", Count: 1}}}
	nodes := map[string]*schema.Node{}
	for name, role := range map[string]string{"lab": "controller", "gpu-1": "worker"} {
		nodes[name] = &schema.Node{Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: name}},
			Spec: schema.NodeSpec{Address: "10.0.0.1", Region: "lab", SKU: "old", Roles: []string{role},
				Capacity: schema.Capacity{CPUs: 4, MemoryMiB: 4000}}}
	}
	eff := func(i schema.EffectiveUnit) *schema.Effective {
		return effectiveOf(nodes, &i)
	}
	members := plan.Place(eff(inst), plan.Memory{}).Members(key)
	require.Len(t, members, 2)
	seen := plan.Observed{Key: key, Presence: plan.Present, Complete: true, Unit: &plan.Unit{Effective: inst, Members: members}}
	for _, m := range members {
		seen.Members = append(seen.Members, plan.MemberState{Name: m.Name, Node: m.Node, State: plan.Running})
	}
	st := &plan.Status{Key: key, Phase: plan.PhaseRunning, Observed: &seen}
	for _, m := range members {
		st.Members = append(st.Members, plan.MemberStatus{Member: m, State: plan.Running})
	}
	mem := plan.Remember(st)

	after := inst
	after.DesiredState = schema.DesiredStopped
	after.Roles = []schema.EffectiveRole{inst.Roles[0], inst.Roles[1]}
	after.Roles[0].SKUs, after.Roles[1].SKUs = []string{}, []string{}
	after.Regions = []string{"mars"}
	placed := plan.Place(eff(after), mem)
	p := plan.Make(plan.Input{Key: key, After: &after, Members: placed.Members(key), Unplaced: placed.Unplaced(key), Observed: seen})
	require.Len(t, p.Actions, 1, "%+v", p.Blocked)
	require.Equal(t, plan.Stop, p.Actions[0].Verb)
	for _, b := range p.Blocked {
		require.True(t, b.Wait, b.Message)
	}
}
