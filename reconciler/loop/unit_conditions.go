package loop

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// unitConditions makes the conditions of a unit from the rest of its status.
type unitConditions struct {
	unitView
	phase   plan.Phase
	failure string // why it failed; "": it did not
	members []plan.MemberStatus
}

// all returns the conditions, sorted by type.
func (v unitConditions) all() []plan.Condition {
	l := &conditionList{revision: v.prev.Revision}
	var blocked *plan.Blocked
	if len(v.plan.Blocked) > 0 {
		blocked = &v.plan.Blocked[0]
	}
	v.addReady(l, blocked)
	v.addProgress(l, blocked)
	l.setAuthorized(v.st.Denied(v.prev.Key))
	if why := v.holdReason(); why != "" {
		l.set(plan.ConditionOnHold, true, plan.ReasonOperation, why)
	}
	if v.want != nil {
		v.addRules(l)
	}
	if out := v.outOfService(); out != "" {
		l.set(plan.ConditionDegraded, true, plan.ReasonMembersOutOfService, out)
	}
	if len(v.observed.Drift) > 0 {
		d := v.observed.Drift[0]
		message := strings.TrimSpace(d.Member + " " + d.Detail)
		if more := len(v.observed.Drift) - 1; more > 0 {
			message += fmt.Sprintf("; and %d more", more)
		}
		l.set(plan.ConditionDriftDetected, true, d.What.Reason(), message)
	}
	slices.SortFunc(l.list, func(a, b plan.Condition) int { return cmp.Compare(a.Type, b.Type) })
	return l.list
}

// addProgress adds the conditions Reconciling and Stalled.
func (v unitConditions) addProgress(l *conditionList, blocked *plan.Blocked) {
	isTerminal := v.retry != nil && v.retry.Terminal
	needsPerson := v.observed.Presence == plan.Unknown && v.observed.NeedsPerson
	isStalled := isTerminal || v.paused != "" || needsPerson || (blocked != nil && !blocked.Wait)
	switch {
	case v.converged(), isStalled, v.phase == plan.PhaseDeleted:
		l.set(plan.ConditionReconciling, false, plan.ReasonOfPhase(v.phase), "")
	case v.retry != nil:
		l.set(plan.ConditionReconciling, true, plan.ReasonProgressingWithRetry, actionsLine(v.plan.Actions))
	default:
		l.set(plan.ConditionReconciling, true, plan.ReasonProgressing, actionsLine(v.plan.Actions))
	}
	switch {
	case isTerminal:
		l.set(plan.ConditionStalled, true, plan.ReasonRetriesExhausted, v.retry.Reason)
	case v.paused != "":
		l.set(plan.ConditionStalled, true, plan.ReasonPaused, v.paused)
	case needsPerson:
		l.set(plan.ConditionStalled, true, plan.ReasonHostConfiguration, v.observed.Reason)
	case isStalled:
		l.set(plan.ConditionStalled, true, blocked.Code.Reason(), blocked.Message)
	default:
		l.set(plan.ConditionStalled, false, plan.ReasonNone, "")
	}
}

// maxOutOfService limits the members that are named with their reasons.
const maxOutOfService = 3

// outOfService describes the workers that take no jobs: those that run and are out of service, and, once the instance serves or
// has failed, those that do not run. Empty: there are none.
func (v unitConditions) outOfService() string {
	isCounted := v.failure != "" || v.serves()
	var out []string
	workers := 0
	for _, m := range v.members {
		if m.ControlPlane {
			continue
		}
		workers++
		why := m.OutOfService
		if m.State != plan.Running && isCounted {
			why = v.stateDetail(m)
		}
		if why != "" {
			out = append(out, fmt.Sprintf("%s on %s: %s", m.Name, m.Node, why))
		}
	}
	if len(out) == 0 {
		return ""
	}
	text := fmt.Sprintf("%d of %d workers out of service: %s", len(out), workers, strings.Join(out[:min(len(out), maxOutOfService)], "; "))
	if more := len(out) - maxOutOfService; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	if v.retry != nil && v.serves() {
		text += "; last attempt: " + v.retry.Reason
	}
	return text
}

// stateDetail describes a member that does not run.
func (v unitConditions) stateDetail(m plan.MemberStatus) string {
	why := cmp.Or(string(m.State), "not joined")
	for _, o := range slices.Backward(v.observed.Members) {
		if o.Name == m.Name && o.Detail != "" {
			return why + ", " + o.Detail
		}
	}
	return why
}

// addReady adds the condition Ready.
func (v unitConditions) addReady(l *conditionList, blocked *plan.Blocked) {
	refused := v.st.Noncompliance(v.prev.Key)
	switch {
	case v.observed.Presence == plan.Unknown:
		l.add(plan.ConditionReady, plan.ConditionUnknown, plan.ReasonObservationUnknown, v.observed.Reason)
	case v.paused != "":
		l.set(plan.ConditionReady, false, plan.ReasonPaused, v.pausedText())
	case v.pending:
		l.add(plan.ConditionReady, plan.ConditionUnknown, plan.ReasonNotObserved, "not looked at since this change")
	case v.converged() && refused != nil && refused.Fate == schema.FateStopped:
		l.set(plan.ConditionReady, false, plan.ReasonStoppedByPolicy, fateMessage(refused))
	case v.converged():
		l.set(plan.ConditionReady, v.phase == plan.PhaseRunning, plan.ReasonOfPhase(v.phase), "")
	case v.serves():
		l.set(plan.ConditionReady, true, plan.ReasonOfPhase(v.phase), "")
	case v.failure != "":
		l.set(plan.ConditionReady, false, plan.ReasonFailed, v.failure)
	case v.waits != "":
		l.set(plan.ConditionReady, false, plan.ReasonWaiting, v.waits)
	case blocked != nil:
		l.set(plan.ConditionReady, false, plan.ReasonBlocked, blocked.Message)
	default:
		l.set(plan.ConditionReady, false, plan.ReasonOfPhase(v.phase), "")
	}
}

// addRules adds the conditions of a declared unit: PolicyCompliant, Scheduled and
// Suspended.
func (v unitConditions) addRules(l *conditionList) {
	find := func(is func(plan.BlockedCode) bool) *plan.Blocked {
		if i := slices.IndexFunc(v.plan.Blocked, func(b plan.Blocked) bool { return is(b.Code) }); i >= 0 {
			return &v.plan.Blocked[i]
		}
		return nil
	}
	switch refused, denied := v.st.Noncompliance(v.prev.Key), find(plan.BlockedCode.IsPolicy); {
	case refused != nil:
		l.set(plan.ConditionPolicyCompliant, false, fateReason(refused), fateMessage(refused))
	case denied != nil:
		l.set(plan.ConditionPolicyCompliant, false, denied.Code.Reason(), denied.Message)
	default:
		l.set(plan.ConditionPolicyCompliant, true, plan.ReasonAllowed, "")
	}
	if why := v.st.QuotaUsedUp(v.prev.Key); why != "" {
		l.set(plan.ConditionWithinQuota, false, plan.ReasonGPUHoursUsedUp, why)
	}
	if unplaced := find(plan.BlockedCode.IsPlacement); unplaced != nil {
		l.set(plan.ConditionScheduled, false, unplaced.Code.Reason(), unplaced.Message)
	} else {
		l.set(plan.ConditionScheduled, true, plan.ReasonPlaced, "")
	}
	if c := suspendedCondition(v.st, v.prev, v.want, v.commit); c != nil {
		l.list = append(l.list, *c)
	}
}

// waitReason returns the recorded reason why a unit waits, or "".
func waitReason(s *plan.Status) string {
	if c := s.Condition(plan.ConditionReady); c != nil && c.Reason == plan.ReasonWaiting {
		return c.Message
	}
	return ""
}
