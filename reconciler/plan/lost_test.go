package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// A unit that was complete and that its host has nothing of is not made anew until an operation accepts the loss.
func TestLostUnitIsNotMadeAnewUnasked(t *testing.T) {
	key := schema.InstanceKey("t", "p", "one")
	after := &schema.EffectiveUnit{Key: key, DesiredState: schema.DesiredRunning}
	members := []plan.Member{{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "n0"},
		{Name: "worker-0", Role: "worker", Node: "n1"}}
	in := plan.Input{Key: key, After: after, Members: members, Observed: plan.Observed{Key: key, Presence: plan.Absent}}
	verbs := func(in plan.Input) (out []plan.Verb) {
		for _, a := range plan.Make(in).Actions {
			out = append(out, a.Verb)
		}
		return out
	}
	require.Equal(t, []plan.Verb{plan.Create, plan.Join}, verbs(in), "it never was there")

	in.Made = true
	p := plan.Make(in)
	require.Empty(t, p.Actions)
	require.Equal(t, plan.CodeLost, p.Blocked[0].Code)
	require.Contains(t, p.Blocked[0].Message, "the control host has lost Instance t.p/one")

	in.Observed.Remains = true
	require.True(t, plan.Structural(in.Observed).Remains, "pull requests see it, too")
	require.Equal(t, []plan.Verb{plan.Create, plan.Join}, verbs(in), "its record alone is gone")
	require.Contains(t, plan.Make(in).Actions[0].Reason, "its record on the host is gone or damaged")

	in.Observed.Remains = false
	in.Operations = []plan.Operation{{Name: "anew",
		Spec: schema.MemberOperationSpec{Operation: schema.OpAccept, Reason: "the disk is gone"}}}
	p = plan.Make(in)
	require.Equal(t, []plan.Verb{plan.Create, plan.Join, plan.AcceptLoss}, verbs(in))
	require.Equal(t, []string{p.Actions[0].ID}, p.Actions[2].Needs, "it is accepted once the unit is there")
}
