package plan_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// A plan leaves a missing worker alone, says why, and delays nothing else for it.
func TestPlanLeavesMissingWorkersAlone(t *testing.T) {
	t.Parallel()
	key := schema.InstanceKey("physics", "lhc", "train")
	unit := schema.EffectiveUnit{Key: key, DesiredState: schema.DesiredRunning, Roles: []schema.EffectiveRole{
		{Name: "controller", ControlPlane: true, Count: 1}, {Name: "worker", Count: 2}}}
	members := []plan.Member{{Name: "controller-0", Role: "controller", Node: "ctl", ControlPlane: true},
		{Name: "worker-0", Role: "worker", Node: "w0"}, {Name: "worker-1", Role: "worker", Node: "w1"}}
	observed := plan.Observed{Key: key, Presence: plan.Present, Complete: true, Unit: &plan.Unit{Effective: unit, Members: members[:2]},
		Members: []plan.MemberState{{Name: "controller-0", Node: "ctl", State: plan.Running},
			{Name: "worker-0", Node: "w0", State: plan.Missing}}}
	p := plan.Make(plan.Input{Key: key, After: &unit, Members: members, Observed: observed})
	require.Equal(t, []plan.Blocked{{Code: plan.CodeMissing, Wait: true, Message: "worker-0 on w0 is missing: its host has nothing of it; " +
		"Berth makes it again after the missing_grace_seconds of its role, or after an operation retry"}}, p.Blocked)
	require.True(t, slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Verb == plan.Join && a.Member == "worker-1" }))
	require.False(t, slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Member == "worker-0" }))

	stopped := unit
	stopped.DesiredState = schema.DesiredStopped
	observed.Members[0].State = plan.Stopped
	p = plan.Make(plan.Input{Key: key, After: &stopped, Members: members[:2], Observed: observed})
	require.Empty(t, p.Actions, "nothing of it runs")

	atOnce := 0
	require.Equal(t, time.Minute, schema.EffectiveRole{}.MissingGrace())
	require.Zero(t, schema.EffectiveRole{MissingGraceSeconds: &atOnce}.MissingGrace())
}
