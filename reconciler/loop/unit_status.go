package loop

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// unitView is everything known about one unit at the end of a reconciliation. Its
// status follows from it, in one place.
type unitView struct {
	st       *reconciler.State         // in force
	prev     *plan.Status              // as recorded; never nil
	want     *schema.EffectiveInstance // as st has it; nil: the unit is to be deleted
	commit   string                    // that suspends or resumes the unit, if st does
	plan     plan.Plan                 // still to do, from observed
	observed plan.Observed
	outcomes []plan.Outcome // of this reconciliation; nil: no action was executed
	acting   bool           // the plan is about to be executed
	pending  bool           // decided, and not observed since
	paused   string         // why nothing may be executed
	waits    string         // what the plan waits for, such as jobs
	retry    *plan.Retry
	review   *plan.UnitReview // awaited
	attempt  int
	applied  string // digest of the plan that made the unit converge now
}

func newView(st *reconciler.State, prev *plan.Status) unitView {
	return unitView{st: st, prev: prev, want: st.Instance(prev.Key), commit: st.Main, retry: prev.Retry, attempt: prev.Attempt, review: prev.Review}
}

// backend returns the backend whose runtime observes the unit: the one that made
// what is there also removes it.
func (v unitView) backend() string {
	switch o := v.prev.Observed; {
	case o != nil && o.Unit != nil:
		return o.Unit.Instance.RuntimeBackend
	case v.want != nil:
		return v.want.RuntimeBackend
	}
	return v.prev.RuntimeBackend
}

// members returns the placement of the unit's members.
func (v unitView) members() []plan.Member { return v.st.Placement.Members(v.prev.Key) }

// scope returns where the runtime looks for the unit: where it is placed and where
// it is remembered; if nothing is remembered, all nodes that may hold it.
func (v unitView) scope() runtimes.Scope {
	scope := runtimes.Scope{Key: v.prev.Key, Instance: v.want}
	add := func(m plan.Member) {
		if n := v.st.Effective.Nodes[m.Node]; n != nil { // its address may have changed
			m.Address, m.SSHPort = n.Spec.Address, n.Spec.SSHPort
		}
		if !slices.ContainsFunc(scope.Members, func(o plan.Member) bool { return o.Name == m.Name && o.Node == m.Node }) {
			scope.Members = append(scope.Members, m)
		}
	}
	isRemembered := v.prev.Observed != nil && v.prev.Observed.Unit != nil
	if isRemembered {
		for _, m := range v.prev.Observed.Unit.Members {
			add(m)
		}
	}
	for _, m := range v.members() {
		add(m)
	}
	for _, m := range v.prev.Members {
		add(m.Member)
	}
	if !isRemembered {
		for _, name := range slices.Sorted(maps.Keys(v.st.Effective.Nodes)) {
			if n := v.st.Effective.Nodes[name]; v.want == nil || slices.Contains(n.Spec.Roles, controlRole(v.want)) {
				scope.Candidates = append(scope.Candidates, n)
			}
		}
	}
	return scope
}

// controlRole returns the node role of an instance's control plane.
func controlRole(i *schema.EffectiveInstance) string {
	for _, role := range i.Roles {
		if role.ControlPlane {
			return role.NodeRole
		}
	}
	return ""
}

// makePlan plans the way from what is observed to what is in force.
func (v unitView) makePlan(rules plan.Rules) plan.Plan {
	key := v.prev.Key
	return plan.Make(plan.Input{
		Key: key, After: v.want, Members: v.members(), Unplaced: v.st.Placement.Unplaced(key),
		Denied: v.st.Effective.Denied(key), Observed: v.observed, Rules: rules,
	})
}

// makeStatus returns the status of the unit. Pure.
func (v unitView) makeStatus() plan.Status {
	s := *v.prev
	s.APIVersion, s.Kind = schema.APIVersion, "InstanceStatus"
	s.Attempt, s.Retry, s.Review = v.attempt, v.retry, v.review.Offered(v.prev.Review)
	if v.want != nil {
		s.UID, s.App, s.RuntimeBackend = v.want.UID, v.want.App, v.want.RuntimeBackend
		s.OperatingMode, s.ControlPlaneScope = v.want.OperatingMode, v.want.ControlPlaneScope
	}
	if v.observed.Presence != plan.Unknown {
		o := plan.Structural(v.observed)
		s.Observed = &o
	}
	if len(v.observed.RuntimeState) > 0 {
		s.RuntimeState = v.observed.RuntimeState
	}
	s.Members = v.memberStatuses()
	s.Phase = v.phase()
	s.FailureReason = v.failure()
	s.Digest = cmp.Or(v.applied, s.Digest)
	s.Conditions = v.conditions(s.Phase, s.FailureReason)
	return s
}

// statusOfDecision returns the status of a unit right after the commit changed what
// it shall be. What was observed stays. prev is nil for a new unit.
func statusOfDecision(key schema.Key, st *reconciler.State, prev *plan.Status, commit string) plan.Status {
	s := plan.Status{Key: key, Phase: plan.PhaseRequested}
	if prev != nil {
		s = *prev
	}
	want := st.Instance(key)
	s.Revision, s.CorrelationID, s.Retry = commit, reconciler.CorrelationID(commit), nil
	switch {
	case want == nil:
		s.Phase = plan.PhaseDeleting
	case s.Phase == plan.PhaseDeleted || s.Phase == plan.PhaseDeleting:
		s.Phase = plan.PhaseRequested // declared again before it was gone
	}
	v := unitView{
		st: st, prev: &s, want: want, commit: commit, attempt: s.Attempt, pending: true, plan: plan.Plan{Key: key},
		observed: plan.Observed{Key: key, Presence: plan.Unknown, Reason: "not looked at since this change"},
	}
	if s.Observed != nil {
		v.observed = *s.Observed
	}
	next := v.makeStatus()
	next.Phase = s.Phase
	return next
}

// phase follows the state machine of requirement A5. A failed unit stays failed
// until it converges; Retry tells about its attempts.
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
	case hasFailed(v.outcomes), v.prev.Phase == plan.PhaseFailed:
		return plan.PhaseFailed
	case !v.acting:
		return v.prev.Phase
	case v.observed.Presence == plan.Absent, !v.observed.Complete:
		return plan.PhaseDeploying
	default:
		return plan.PhaseUpdating
	}
}

// converged returns true if the unit is what it shall be.
func (v unitView) converged() bool {
	return !v.pending && v.observed.Presence == plan.Present && len(v.plan.Actions) == 0 && len(v.plan.Blocked) == 0
}

// isGone returns true if the unit was to be deleted and is absent.
func (v unitView) isGone() bool { return v.want == nil && v.observed.Presence == plan.Absent }

func hasFailed(os []plan.Outcome) bool { return firstFailure(os) != "" }

// firstFailure describes the first action that failed; "": none did.
func firstFailure(os []plan.Outcome) string {
	for _, o := range os {
		if o.State == plan.Failed || o.State == plan.Uncertain {
			return strings.TrimSpace(fmt.Sprintf("%s %s: %s", o.Verb, o.Member, o.Error))
		}
	}
	return ""
}

// failure describes why the unit failed; "": it did not.
func (v unitView) failure() string {
	switch first := firstFailure(v.outcomes); {
	case first != "":
		return first
	case v.converged() || v.isGone():
		return ""
	}
	return v.prev.FailureReason
}

// memberStatuses returns the status of each member that shall be there, and of each
// that is still there.
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
		ms := plan.MemberStatus{Member: m, Placed: m.Reason}
		ms.Reason = ""
		if ms.Placed == "" && remembered[m.Name].Node == m.Node {
			ms.Placed = remembered[m.Name].Placed
		}
		if o, ok := observed[m.Name]; ok && o.Node == m.Node {
			ms.State = o.State
		} else if v.observed.Presence == plan.Unknown && remembered[m.Name].Node == m.Node {
			ms.State = remembered[m.Name].State
		}
		out = append(out, ms)
		delete(observed, m.Name)
	}
	if v.want != nil {
		for _, m := range v.members() {
			put(m)
		}
	}
	// A member that shall be removed keeps its node until it is gone.
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

// waitReason returns what a status says that its unit waits for, or "".
func waitReason(s *plan.Status) string {
	if c := s.Condition("Ready"); c != nil && c.Reason == reasonWaiting {
		return c.Message
	}
	return ""
}
