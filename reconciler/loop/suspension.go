package loop

import (
	"slices"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// Suspended is the condition of an instance that Berth leaves alone. The status
// is True while a document suspends it or the estate is paused. Afterwards it
// is False with the reason Resumed. An instance that was never suspended does
// not have the condition. Its observed_revision is the commit that suspended or
// resumed the instance.
const conditionSuspended = "Suspended"

// Reasons of the condition Suspended.
const (
	reasonDeclared = "Declared" // a document says suspend: true
	reasonPaused   = "Paused"   // platform/pause.yaml
	reasonResumed  = "Resumed"  // it was suspended before
)

func conditionIn(cs []plan.Condition, typ string) *plan.Condition {
	if i := slices.IndexFunc(cs, func(c plan.Condition) bool { return c.Type == typ }); i >= 0 {
		return &cs[i]
	}
	return nil
}

// resumed adds the condition Suspended with the reason Resumed to a shared
// runtime's or an attachment's conditions, where it was suspended before and is
// not any more.
func resumed(prev *plan.ThingStatus, now []plan.Condition, commit string) []plan.Condition {
	if prev == nil || conditionIn(now, conditionSuspended) != nil {
		return now
	}
	was := conditionIn(prev.Conditions, conditionSuspended)
	switch {
	case was == nil:
		return now
	case was.Status == "True":
		was = resumedCondition(was, commit)
	}
	return append(now, *was)
}

func resumedCondition(was *plan.Condition, commit string) *plan.Condition {
	return &plan.Condition{Type: conditionSuspended, Status: "False", Reason: reasonResumed, Message: "it was suspended before: " + was.Message, Revision: commit}
}

// suspendedCondition is the condition Suspended of an instance that a state
// declares. commit is the one that suspends or resumes it, if this is the first
// status to say so. Nil: the instance was never suspended, or is to go.
func suspendedCondition(st *reconciler.State, prev *plan.Status, want *schema.EffectiveInstance, commit string) *plan.Condition {
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

// withCondition is a status with one condition set in place of the one of its type.
func withCondition(s plan.Status, c *plan.Condition) plan.Status {
	if c == nil {
		return s
	}
	s.Conditions = slices.DeleteFunc(slices.Clone(s.Conditions), func(o plan.Condition) bool { return o.Type == c.Type })
	i, _ := slices.BinarySearchFunc(s.Conditions, c.Type, func(o plan.Condition, typ string) int {
		if o.Type < typ {
			return -1
		}
		return 1
	})
	s.Conditions = slices.Insert(s.Conditions, i, *c)
	return s
}

// pauseAll sets the condition Suspended of every instance, as the estate was
// paused or goes on. The caller holds writer.Decision, so that the statuses and
// events of one pause are written together.
func (r *Reconciler) pauseAll(st *reconciler.State, merged []mergedCommit) {
	commit := st.Main
	for _, m := range merged { // newest first
		if slices.ContainsFunc(m.paths, func(c reconciler.PathChange) bool { return c.Path == pauseFile }) {
			commit = m.commit
			break
		}
	}
	for key := range r.writer.Units().All() {
		for {
			prev := r.writer.Unit(key)
			if prev == nil || r.set(prev, withCondition(*prev, suspendedCondition(st, prev, st.Instance(key), commit))) {
				break
			}
		}
	}
}

// pauseFile pauses the estate while it is in force.
const pauseFile = "platform/pause.yaml"
