package loop

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// unitView is everything known about one unit at the end of a reconciliation. Its
// status follows from it, in one place.
type unitView struct {
	st       *reconciler.State     // in force
	prev     *plan.Status          // as recorded; never nil
	want     *schema.EffectiveUnit // from st; nil: the unit is to be deleted
	commit   string                // commit that suspends or resumes the unit, if st does
	plan     plan.Plan             // still to do, from observed
	observed plan.Observed
	outcomes []plan.Outcome // of this reconciliation; nil: no action was executed
	acting   bool           // the plan is about to be executed
	pending  bool           // decided, and not observed since
	obstacle
	progress
	lostNodes
	retry  *plan.Retry
	review *plan.UnitReview // awaited

	operations []plan.Operation // on the unit, as of this reconciliation
}

// progress is how far the plans of a unit were applied.
type progress struct {
	attempt int
	applied string     // digest of the plan that made the unit converge now
	begins  *plan.Plan // to be executed next; nil: none
}

// obstacle says why the plan of a unit is not executed.
type obstacle struct {
	paused string // why nothing may be executed
	waits  string // reason why the plan waits, such as jobs
}

func newView(st *reconciler.State, prev *plan.Status, now time.Time) unitView {
	return unitView{st: st, prev: prev, want: st.Unit(prev.Key), commit: st.Main, retry: prev.Retry,
		progress: progress{attempt: prev.Attempt}, review: prev.Review,
		operations: plan.BeginHolds(operationsOf(st, prev, now), now)}
}

// backend returns the backend whose runtime observes the unit: the backend that
// created the unit also removes it.
func (v unitView) backend() string {
	switch o := v.prev.Observed; {
	case o != nil && o.Unit != nil:
		return o.Unit.Effective.RuntimeBackend
	case v.want != nil:
		return v.want.RuntimeBackend
	}
	return v.prev.RuntimeBackend
}

// isShared reports whether the unit uses a shared runtime instead of members of its own. A unit that
// still has members is not treated as a view, as its own runtime has to remove them.
func (v unitView) isShared() bool {
	if o := v.prev.Observed; o != nil && o.Unit != nil && (v.want == nil || o.Unit.Effective.SharedRuntime == "") {
		return o.Unit.Effective.SharedRuntime != ""
	}
	return v.want != nil && v.want.SharedRuntime != ""
}

// holdReason describes the operation that holds the unit; "": none does.
func (v unitView) holdReason() string {
	o, isHeld := plan.Holding(v.operations)
	if !isHeld {
		return ""
	}
	return fmt.Sprintf("the operation hold %s keeps the unit as it is (%s); the operation release ends that", o.Name, o.Spec.Reason)
}

// pausedText says why nothing is executed on the unit.
func (v unitView) pausedText() string {
	if v.paused == v.holdReason() {
		return v.paused
	}
	return "Berth is paused: " + v.paused
}

// pauseReason returns why nothing may be executed on the unit: the estate is paused, or the unit is held, or the site of one of its
// nodes is paused; "": it may.
func (v unitView) pauseReason() string {
	if why := cmp.Or(v.st.Paused, v.holdReason()); why != "" {
		return why
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(v.st.Desired.Platform.Sites())),
		func(s *schema.Site) bool { return s.Spec.Paused != nil }) {
		return ""
	}
	for _, m := range v.scope().Members {
		if n := v.st.Desired.Platform.Nodes[m.Node]; n != nil {
			if s := v.st.Desired.Platform.SiteOf(n.Spec.Region); s != nil && s.Spec.Paused != nil {
				return fmt.Sprintf("site %s: %s", s.Key.Name, s.Spec.Paused.Reason)
			}
		}
	}
	return ""
}

// members returns the placement of the unit's members.
func (v unitView) members() []plan.Member { return v.st.Placement.Members(v.prev.Key) }

// scope returns the places where the runtime observes the unit: present and remembered
// ones; without memory, all nodes that may hold it.
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
		scope.Candidates = v.candidates()
	}
	return scope
}

// candidates returns the nodes that may hold the unit, by name.
func (v unitView) candidates() (all []*schema.Node) {
	role := ""
	if v.want != nil {
		role = controlRole(v.want)
	}
	for _, n := range v.st.Effective.Nodes {
		if v.want == nil || slices.Contains(n.Spec.Roles, role) {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b *schema.Node) int { return strings.Compare(a.Key.Name, b.Key.Name) })
	return all
}

// controlRole returns the node role of an instance's control plane.
func controlRole(i *schema.EffectiveUnit) string {
	for _, role := range i.Roles {
		if role.ControlPlane {
			return role.NodeRole
		}
	}
	return ""
}

// makePlan plans from the observed state to the state in force.
func (v unitView) makePlan(rules plan.Rules) plan.Plan {
	key := v.prev.Key
	return plan.Make(plan.Input{
		Key: key, After: v.want, Members: v.members(), Unplaced: v.st.Placement.Unplaced(key),
		Denied: v.st.Effective.Denied(key), Observed: v.observed, Operations: plan.Pending(v.operations), Made: v.prev.Made, Rules: rules,
		Abandoned: v.abandoned(), Nodes: v.nodes, SkipEmpty: true,
	})
}

// converged returns true if the unit is in its desired state.
func (v unitView) converged() bool {
	return !v.pending && v.observed.Presence == plan.Present && len(v.plan.Actions) == 0 && len(v.plan.Blocked) == 0
}

// serves returns true if all that is left to do is to bring back workers, and no role lacks more than its max_unavailable:
// the control plane runs as declared, and a change waits for no dead worker.
func (v unitView) serves() bool {
	if v.pending || v.plan.After == nil || v.want == nil || v.want.DesiredState == schema.DesiredStopped || !isComplete(&v.observed) ||
		v.paused != "" {
		return false
	}
	return v.waitsForWorkersOnly() && v.hasEnoughMembers()
}

// waitsForWorkersOnly returns true if the plan only starts members and repeats joins, and hosts that do not answer or
// have nothing of their member are all that blocks it.
func (v unitView) waitsForWorkersOnly() bool {
	for _, b := range v.plan.Blocked {
		if b.Code != plan.CodeUnreachable && b.Code != plan.CodeMissing {
			return false
		}
	}
	for _, a := range v.plan.Actions {
		// The first attempt of a join is part of its change.
		failed := v.retry != nil && v.retry.Plan == v.plan.Digest
		if a.Verb != plan.Start && (a.Verb != plan.Join || !failed) {
			return false
		}
	}
	return true
}

// hasEnoughMembers returns true if the control plane runs, no member has still to leave, and no role lacks more than its
// max_unavailable.
func (v unitView) hasEnoughMembers() bool {
	states := map[string]plan.State{}
	for _, m := range v.observed.Members {
		states[m.Name] = m.State
		if _, declared := v.plan.After.Member(m.Name); !declared {
			return false // it has still to leave
		}
	}
	missing, count := map[string]int{}, map[string]int{}
	for _, m := range v.plan.After.Members {
		runs := states[m.Name] == plan.Running
		if m.ControlPlane && !runs {
			return false
		}
		count[m.Role]++
		if !runs {
			missing[m.Role]++
		}
	}
	for _, role := range v.want.Roles {
		n := count[role.Name]
		if !role.ControlPlane && n > 0 && n-missing[role.Name] < max(1, n-role.MaxUnavailable.Of(n)) {
			return false
		}
	}
	return true
}

// isGone returns true if the unit was to be deleted and is absent.
func (v unitView) isGone() bool { return v.want == nil && v.observed.Presence == plan.Absent }

// isComplete reports whether a unit was observed after its creation had finished.
func isComplete(o *plan.Observed) bool { return o != nil && o.Presence == plan.Present && o.Complete }
