package loop

import (
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// pauseFile pauses the estate while it is in force.
const pauseFile = "platform/pause.yaml"

// conditionSuspended is True for a resource that Berth leaves alone because a
// document suspends it or the estate is paused, and afterwards False with the reason
// Resumed. A resource that was never suspended does not have it. Its revision is
// the commit that suspended or resumed the resource.
const conditionSuspended = "Suspended"

// Reasons of the condition Suspended.
const (
	reasonDeclared = "Declared" // a document says suspend: true
	reasonPaused   = "Paused"   // platform/pause.yaml
	reasonResumed  = "Resumed"  // it was suspended before
)

// suspendedCondition returns the condition Suspended of an instance as a state
// declares it. commit suspends or resumes it, if this is the first status that says
// so. Nil: the instance was never suspended, or is to be deleted.
func suspendedCondition(st *reconciler.State, prev *plan.Status, want *schema.EffectiveUnit, commit string) *plan.Condition {
	if want == nil {
		return nil
	}
	was := prev.Condition(conditionSuspended)
	now := plan.Condition{Type: conditionSuspended, Status: "True", Revision: commit}
	switch {
	case !want.SuspendedBy.IsZero():
		now.Reason, now.Message = reasonDeclared, plan.Suspension(want.Key, want.SuspendedBy)
	case st.Paused != "":
		now.Reason, now.Message = reasonPaused, st.Paused
	case was == nil || was.Status == "False":
		return was
	default:
		return resumedCondition(was, commit)
	}
	if was != nil && was.Status == "True" {
		now.Revision = was.Revision
	}
	return &now
}

func resumedCondition(was *plan.Condition, commit string) *plan.Condition {
	return &plan.Condition{Type: conditionSuspended, Status: "False", Reason: reasonResumed, Message: "resumed; it had been suspended: " + was.Message, Revision: commit}
}

// withResumed adds the condition Suspended with the reason Resumed to conditions
// without it, if the resource was suspended before.
func withResumed(prev *plan.ThingStatus, now []plan.Condition, commit string) []plan.Condition {
	isSuspended := func(c plan.Condition) bool { return c.Type == conditionSuspended }
	if prev == nil || slices.ContainsFunc(now, isSuspended) {
		return now
	}
	i := slices.IndexFunc(prev.Conditions, isSuspended)
	if i < 0 {
		return now
	}
	was := &prev.Conditions[i]
	if was.Status == "True" {
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
	i, _ := slices.BinarySearchFunc(s.Conditions, c.Type, func(o plan.Condition, typ string) int { return strings.Compare(o.Type, typ) })
	s.Conditions = slices.Insert(s.Conditions, i, *c)
	return s
}

// recordPause records the condition Suspended of every instance, as a commit paused
// or resumed the estate. It is called under the decision lock, so that the statuses
// and events of one pause are written together.
func (r *recorder) recordPause(st *reconciler.State, commit string) {
	for key := range r.status.Units().All() {
		r.update(key, func(prev *plan.Status) (next plan.Status, ok bool) {
			if prev == nil {
				return next, false
			}
			return withCondition(*prev, suspendedCondition(st, prev, st.Unit(key), commit)), true
		})
	}
}
