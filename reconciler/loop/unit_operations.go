package loop

import (
	"fmt"
	"slices"
	"time"

	"berth/reconciler/plan"
)

// operationStatuses returns the operations for the unit's status, with why the requested ones wait.
func (v unitView) operationStatuses() []plan.Operation {
	out := slices.Clone(v.operations)
	why := ""
	switch {
	case v.paused != "":
		why = v.pausedText()
	case v.pending:
		return out
	case len(v.plan.Blocked) > 0:
		why = v.plan.Blocked[0].Message
	}
	for i := range out {
		if out[i].Phase == plan.OperationRequested {
			out[i].Message = why
		}
	}
	return out
}

// startOperations notes that the actions of a plan are about to be executed.
func (v *unitView) startOperations(p plan.Plan, now time.Time) {
	v.operations = slices.Clone(v.operations)
	for _, a := range p.Actions {
		i := operationIndex(v.operations, a)
		if i < 0 || v.operations[i].Phase != plan.OperationRequested {
			continue
		}
		o := &v.operations[i]
		o.Phase, o.Message, o.From, o.Started = plan.OperationRunning, "", a.Node, now.UTC().Truncate(time.Second)
	}
}

// settleOperations notes the outcomes of operations, and returns those of the other actions: a failed
// operation does not make its unit fail.
func (v *unitView) settleOperations(p plan.Plan, outcomes []plan.Outcome, now time.Time) (others []plan.Outcome) {
	for n, out := range outcomes {
		a := p.Actions[n]
		if a.Operation == nil {
			others = append(others, out)
			continue
		}
		i := operationIndex(v.operations, a)
		if i < 0 || v.operations[i].IsFinished() {
			continue // withdrawn meanwhile
		}
		o := &v.operations[i]
		switch leaves := a.Verb == plan.Replace || a.Verb == plan.Remove || a.Verb == plan.Abandon; {
		case out.State == plan.Failed:
			o.Finish(plan.OperationFailed, out.Error, now)
		case out.State != plan.Done:
			o.Message = out.Error
		case leaves:
			o.Message = "" // the rest of the plan moves the member
		default:
			o.Finish(plan.OperationDone, "", now)
		}
	}
	return others
}

// finishOperations finishes the operations whose effect the observation shows, and those that can
// never have one.
func (v *unitView) finishOperations(now time.Time) {
	u := v.observed.Unit
	if v.observed.Presence != plan.Present || !v.observed.Complete || u == nil || v.want == nil {
		return
	}
	after := &plan.Unit{Effective: *v.want, Members: v.members()}
	v.operations = slices.Clone(v.operations)
	for i := range v.operations {
		o := &v.operations[i]
		if o.IsFinished() {
			continue
		}
		if why := plan.Refusal(*o, u, after); why != "" {
			o.Finish(plan.OperationFailed, why, now)
		} else if result := v.effectOf(o, u); result != "" {
			o.Finish(plan.OperationDone, result, now)
		}
	}
}

// effectOf describes the effect of an operation that the observation of a unit shows; "": it shows none.
func (v unitView) effectOf(o *plan.Operation, u *plan.Unit) string {
	name := o.Spec.Member
	m, isMember := u.Member(name)
	at := slices.IndexFunc(v.observed.Members, func(s plan.MemberState) bool { return s.Name == name })
	switch o.Verb() {
	case plan.Remove:
		if !isMember && at < 0 {
			return name + " is no longer a member"
		}
	case plan.Replace:
		if o.From == "" || !isMember || m.Node == o.From || at < 0 {
			return ""
		}
		if s := v.observed.Members[at]; s.Node == m.Node && s.State == plan.Running {
			return fmt.Sprintf("%s moved from %s to %s", name, o.From, m.Node)
		}
	}
	return ""
}
