package loop

import (
	"cmp"
	"slices"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// makeStatus returns the status of the unit. Pure.
func (v unitView) makeStatus() plan.Status {
	s := *v.prev
	s.APIVersion, s.Kind = schema.APIVersion, string(s.Key.Kind)+"Status"
	s.Attempt, s.Retry, s.Review = v.attempt, v.retry, v.review.WithPosted(v.prev.Review)
	if v.want != nil {
		s.UID, s.App, s.RuntimeBackend = v.want.UID, v.want.App, v.want.RuntimeBackend
		s.OperatingMode, s.ControlPlaneScope, s.Operator = v.want.OperatingMode, v.want.ControlPlaneScope, v.want.Operator
	}
	if v.observed.Presence != plan.Unknown {
		o := plan.Structural(v.observed)
		if v.begins != nil {
			o = o.WithBegun(v.begins)
		}
		s.Observed = &o
	}
	if len(v.observed.RuntimeState) > 0 {
		s.RuntimeState = v.observed.RuntimeState
	}
	s.Members, s.Abandoned = v.memberStatuses(), v.abandoned()
	s.Phase = v.phase()
	if s.Phase == plan.PhaseRequested && v.prev.Phase == plan.PhaseRunning && !v.pending { // a view whose attachment has ended
		s.Attempt++ // its events at this revision are announced once more
	}
	s.FailureReason = ""
	if !v.serves() { // else the condition Degraded has it
		s.FailureReason = v.failure()
	}
	s.Digest = cmp.Or(v.applied, s.Digest)
	s.Conditions = unitConditions{v, s.Phase, s.FailureReason, s.Members}.all()
	s.Attachments = v.attachments(s.Phase, s.FailureReason)
	s.Operations = v.operationStatuses()
	return s
}

// statusOfDecision returns the status of a unit right after a commit changed its
// desired state. The observation stays. prev is nil for a new unit.
func statusOfDecision(key schema.Key, st *reconciler.State, prev *plan.Status, commit string, now time.Time) plan.Status {
	s := plan.Status{Key: key, Phase: plan.PhaseRequested}
	if prev != nil {
		s = *prev
	}
	want := st.Unit(key)
	s.Revision, s.CorrelationID, s.Retry = commit, reconciler.CorrelationID(commit), nil
	switch {
	case want == nil:
		s.Phase, s.Made = plan.PhaseDeleting, false // from now on nobody misses it
	case s.Phase == plan.PhaseDeleted || s.Phase == plan.PhaseDeleting:
		s.Phase = plan.PhaseRequested // declared again before it was gone
	}
	v := unitView{
		st: st, prev: &s, want: want, commit: commit, progress: progress{attempt: s.Attempt}, pending: true, plan: plan.Plan{Key: key},
		observed:   plan.Observed{Key: key, Presence: plan.Unknown, Reason: "not looked at since this change"},
		operations: operationsOf(st, &s, now),
	}
	if s.Observed != nil {
		v.observed = *s.Observed
	}
	next := v.makeStatus()
	next.Phase, next.Observed = s.Phase, s.Observed // with the members that actions begun since may have put on nodes
	return next
}

// phase follows the state machine of requirement A5. A failed unit stays failed until an attempt has no failed action;
// Retry tells about its attempts.
func (v unitView) phase() plan.Phase {
	switch {
	case v.want == nil:
		if v.observed.Presence == plan.Absent {
			return plan.PhaseDeleted
		}
		return plan.PhaseDeleting
	case v.observed.Presence == plan.Unknown:
		return v.prev.Phase
	case v.converged():
		if v.want.DesiredState == schema.DesiredStopped {
			return plan.PhaseStopped
		}
		return plan.PhaseRunning
	case v.isStopped():
		return plan.PhaseStopped
	case v.serves():
		return plan.PhaseRunning
	case v.want.SharedRuntime != "": // a view does nothing itself
		return plan.PhaseRequested
	case v.lost() != "", hasFailed(v.outcomes), v.stillFailed():
		return plan.PhaseFailed
	case !v.acting && v.prev.Phase != plan.PhaseFailed:
		return v.prev.Phase
	case v.observed.Presence == plan.Absent, !v.observed.Complete:
		return plan.PhaseDeploying
	default:
		return plan.PhaseUpdating
	}
}

// isStopped reports whether a unit is stopped as declared: it does not run, and its other changes wait until it is started. One
// that was never made is stopped too.
func (v unitView) isStopped() bool {
	prevents := func(b plan.Blocked) bool { return b.Code != plan.CodeStopped }
	return v.want.DesiredState == schema.DesiredStopped && !v.pending &&
		len(v.plan.Actions) == 0 && !slices.ContainsFunc(v.plan.Blocked, prevents)
}

// lost describes the loss of a unit that waits for a person; "": it is not lost.
func (v unitView) lost() string {
	for _, b := range v.plan.Blocked {
		if b.Code == plan.CodeLost {
			return b.Message
		}
	}
	return ""
}

// failure describes why the unit failed; "": it did not.
func (v unitView) failure() string {
	switch first := firstFailure(v.outcomes); {
	case first != "":
		return first
	case v.lost() != "":
		return v.lost()
	case v.converged() || v.isGone() || !v.stillFailed():
		return ""
	}
	return v.prev.FailureReason
}

// stillFailed reports whether the unit failed, and no attempt has ended well since.
func (v unitView) stillFailed() bool { return v.prev.Phase == plan.PhaseFailed && len(v.outcomes) == 0 }

// memberStatuses returns the status of each desired member and of each member that
// still exists.
func (v unitView) memberStatuses() []plan.MemberStatus {
	observed := map[string]plan.MemberState{}
	for _, m := range v.observed.Members {
		observed[m.Name] = m
	}
	remembered := map[string]plan.MemberStatus{}
	for _, m := range v.prev.Members {
		remembered[m.Name] = m
	}
	var out []plan.MemberStatus
	put := func(m plan.Member) {
		out = append(out, v.memberStatus(m, observed[m.Name], remembered[m.Name]))
		delete(observed, m.Name)
	}
	if v.want != nil {
		for _, m := range v.members() {
			put(m)
		}
	}
	// A member to be removed keeps its node until it is gone.
	if u := v.observed.Unit; u != nil {
		for _, m := range u.Members {
			if _, ok := observed[m.Name]; ok {
				put(m)
			}
		}
	} else if v.observed.Presence == plan.Unknown && v.want == nil {
		out = v.prev.Members
	}
	return out
}

// memberStatus returns the status of a member. o is its observation, and was its status before; zero: there is none.
func (v unitView) memberStatus(m plan.Member, o plan.MemberState, was plan.MemberStatus) plan.MemberStatus {
	if was.Node != m.Node {
		was = plan.MemberStatus{}
	}
	ms := plan.MemberStatus{Member: m, Placed: cmp.Or(m.Reason, was.Placed)}
	ms.Reason = ""
	var references map[string]string
	switch isObserved := o.Name != "" && o.Node == m.Node; {
	case isObserved && o.References != nil:
		ms.State, ms.Note, ms.OutOfService, references = o.State, o.Note, o.OutOfService, o.References
		ms.MissingSince = v.missing[m.Name]
	case isObserved: // as in a status: an observation in one has no texts
		ms.State, ms.Note, ms.OutOfService, references = o.State, was.Note, was.OutOfService, referencesOf(was)
		ms.MissingSince = was.MissingSince
	case v.observed.Presence == plan.Unknown:
		ms.State, ms.Note, ms.OutOfService, references = was.State, was.Note, was.OutOfService, referencesOf(was)
		ms.MissingSince = was.MissingSince
	}
	ms.Integration = v.integration(references)
	return ms
}

// integration returns the integration metadata of a member (requirement A17).
func (v unitView) integration(references map[string]string) *plan.Integration {
	backend := v.backend()
	if backend == "" {
		return nil
	}
	return &plan.Integration{SchedulerType: backend, Adapter: "runtimes/" + backend, References: references}
}

// referencesOf returns the recorded references of a member.
func referencesOf(m plan.MemberStatus) map[string]string {
	if m.Integration == nil {
		return nil
	}
	return m.Integration.References
}
