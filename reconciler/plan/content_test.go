package plan_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// An unchanged unit is recognized without flattening its configuration, the largest cost of a plan.
func TestUnchangedUnitIsPlannedWithoutFlattening(t *testing.T) {
	declared := schema.EffectiveUnit{
		Key:    schema.InstanceKey("a", "b", "c"),
		Roles:  []schema.EffectiveRole{{Name: "controller", ControlPlane: true, Count: 1, NoGPUs: true, SpreadBy: "rack"}},
		Config: json.RawMessage(`{"jobs":{"max_time_minutes":300},"partitions":[{"default":true,"name":"main"}]}`),
	}
	members := []plan.Member{{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "n1", Reason: "the only free node"}}
	planOf := func(observed schema.EffectiveUnit) plan.Plan {
		return plan.Make(plan.Input{Key: declared.Key, After: &declared, Members: members, Observed: plan.Observed{
			Key: declared.Key, Presence: plan.Present, Complete: true, Unit: &plan.Unit{Effective: observed, Members: members},
			Members: []plan.MemberState{{Name: "controller-0", Node: "n1", State: plan.Running}},
		}})
	}
	var read schema.EffectiveUnit
	raw, err := json.Marshal(declared)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &read))
	require.Empty(t, planOf(read).Actions)

	unchanged := testing.AllocsPerRun(20, func() { planOf(read) })
	read.DisplayName = "another"
	require.Greater(t, testing.AllocsPerRun(20, func() { planOf(read) }), 1.3*unchanged)
}
