package loop

import (
	"cmp"
	"slices"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// suspendedCondition returns the condition Suspended of an instance as a state
// declares it. commit suspends or resumes it, if this is the first status that says
// so. A resumed instance keeps the condition, False, and its revision is then the commit that
// resumed it. Nil: the instance was never suspended, or is to be deleted.
func suspendedCondition(st *reconciler.State, prev *plan.Status, want *schema.EffectiveUnit, commit string) *plan.Condition {
	if want == nil {
		return nil
	}
	was := prev.Condition(plan.ConditionSuspended)
	now := plan.Condition{Type: plan.ConditionSuspended, Status: plan.ConditionTrue, Revision: commit}
	switch {
	case !want.SuspendedBy.IsZero():
		now.Reason, now.Message = plan.ReasonDeclared, plan.Suspension(want.Key, want.SuspendedBy)
	case st.Paused != "":
		now.Reason, now.Message = plan.ReasonPaused, st.Paused
	case was == nil || was.Is(plan.ConditionFalse):
		return was
	default:
		return resumedCondition(was, commit)
	}
	if was.Is(plan.ConditionTrue) {
		now.Revision = was.Revision
	}
	return &now
}

func resumedCondition(was *plan.Condition, commit string) *plan.Condition {
	return &plan.Condition{Type: plan.ConditionSuspended, Status: plan.ConditionFalse, Reason: plan.ReasonResumed,
		Message: "resumed; it had been suspended: " + was.Message, Revision: commit}
}

// withResumed adds the condition Suspended with the reason Resumed to conditions
// without it, if the resource was suspended before.
func withResumed(prev *plan.ThingStatus, now []plan.Condition, commit string) []plan.Condition {
	was := prev.Condition(plan.ConditionSuspended)
	if was == nil || slices.ContainsFunc(now, func(c plan.Condition) bool { return c.Type == plan.ConditionSuspended }) {
		return now
	}
	if was.Is(plan.ConditionTrue) {
		was = resumedCondition(was, commit)
	}
	return append(now, *was)
}

// withCondition returns a status in which c replaces the condition of its type.
// Conditions are sorted by type.
func withCondition(s plan.Status, c *plan.Condition) plan.Status {
	if c == nil {
		return s
	}
	s.Conditions = slices.DeleteFunc(slices.Clone(s.Conditions), func(o plan.Condition) bool { return o.Type == c.Type })
	i, _ := slices.BinarySearchFunc(s.Conditions, c.Type, func(o plan.Condition, typ plan.ConditionType) int {
		return cmp.Compare(o.Type, typ)
	})
	s.Conditions = slices.Insert(s.Conditions, i, *c)
	return s
}
