package loop

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/pulls"
	"berth/reconciler/status"
	"berth/schema"
)

// recordTimeout bounds how long a task waits until what it recorded is on the remote, before it
// does what the record announces.
const recordTimeout = 15 * time.Second

// recorder records the statuses of units, and informs their dependents: the rollout of
// the commit, pull requests that show the unit, and members that wait for a node.
type recorder struct {
	status *status.Writer
	pulls  *pulls.Pulls
	queues *queues
	log    *slog.Logger
	now    func() time.Time

	operations operationStatuses
}

// today returns the UTC day.
func (r *recorder) today() string { return r.now().UTC().Format(time.DateOnly) }

// loadRules has the status writer read what the rules of a state need to know of earlier events.
func (r *recorder) loadRules(ctx context.Context, st *reconciler.State) {
	if all := st.Desired.HookRules(); len(all) > 0 {
		r.status.LoadRules(ctx, all)
	}
}

// set records next in place of prev. It returns false if prev is no longer the unit's
// status.
func (r *recorder) set(prev *plan.Status, next plan.Status) bool {
	changed, ok := r.status.SetUnit(prev, next)
	if !ok || !changed {
		return ok
	}
	if prev == nil || prev.Phase != next.Phase {
		from := plan.Phase("")
		if prev != nil {
			from = prev.Phase
		}
		r.unitLog(&next).Info("phase changed", "from", string(from), "to", string(next.Phase), "reason", next.FailureReason, "revision",
			reconciler.Short(next.Revision))
	}
	for _, commit := range r.pulls.RollOuts.Observe(&next) {
		r.pulls.Touched(commit)
	}
	if freesNode(prev, &next) || hasNewMemberToReplace(prev, &next) {
		r.queues.add(reconciler.Item{Task: reconciler.TaskPlace})
	}
	if prev == nil || prev.Phase != next.Phase || !status.EqualJSON(prev.Operations, next.Operations) {
		r.operations.follow(r.status, next.Key)
	}
	if prev == nil || !status.EqualJSON(prev.Observed, next.Observed) || !samePending(prev.Operations, next.Operations) {
		r.pulls.UnitMoved(next.Key)
	}
	return true
}

// update records the result of change for a unit's status, which is nil for a new
// unit. It repeats the change if another one comes between. A change that returns
// false records nothing.
func (r *recorder) update(key schema.Key, change func(prev *plan.Status) (next plan.Status, ok bool)) {
	for {
		prev := r.status.Unit(key)
		next, ok := change(prev)
		if !ok || r.set(prev, next) {
			return
		}
	}
}

// freesNode returns true if a unit gives up a node, or goes on without a member of a lost one.
func freesNode(prev, next *plan.Status) bool {
	if prev == nil {
		return false
	}
	if len(next.Abandoned) != len(prev.Abandoned) || next.Phase == plan.PhaseDeleted && prev.Phase != plan.PhaseDeleted {
		return true
	}
	kept := nodesOf(next)
	for node := range nodesOf(prev) {
		if !kept[node] {
			return true
		}
	}
	return false
}

// nodesOf returns the nodes where a unit has members, or is to have them. A member that moves gives its node up only when it is
// observed to have left.
func nodesOf(s *plan.Status) map[string]bool {
	nodes := map[string]bool{}
	for _, m := range s.Members {
		nodes[m.Node] = true
	}
	if s.Observed == nil {
		return nodes
	}
	for _, m := range s.Observed.Members {
		nodes[m.Node] = true
	}
	for _, m := range s.Observed.Begun {
		nodes[m.Node] = true
	}
	if s.Observed.Unit != nil {
		for _, m := range s.Observed.Unit.Members {
			nodes[m.Node] = true
		}
	}
	return nodes
}

// hasNewMemberToReplace returns true if a member joined for which an operation replace waits: only now can it be placed elsewhere.
func hasNewMemberToReplace(prev, next *plan.Status) bool {
	node := func(s *plan.Status, member string) string { // where it has joined; "": nowhere
		if s == nil || s.Observed == nil {
			return ""
		}
		m, _ := s.Observed.Unit.Member(member)
		if slices.ContainsFunc(s.Observed.Members, func(o plan.MemberState) bool { return o.Name == member && o.Node == m.Node }) {
			return m.Node
		}
		return ""
	}
	return slices.ContainsFunc(plan.Pending(next.Operations), func(o plan.Operation) bool {
		now := node(next, o.Spec.Member)
		return o.Verb() == plan.Replace && now != "" && now != node(prev, o.Spec.Member)
	})
}

// appOf returns the app of a resource in d or, if d does not declare it, as its
// status has it.
func (r *recorder) appOf(d *schema.Desired, key schema.Key) string {
	if app := d.AppOf(key); app != "" {
		return app
	}
	if s := r.status.Unit(key); s != nil {
		return s.App
	}
	var of struct {
		AppSlug string `json:"app_slug"`
	}
	if s := r.status.Resource(key); s != nil {
		status.Detail(s, &of)
	}
	return of.AppSlug
}

// uidOf returns the uid of an instance in d or, if d does not declare it, as its
// status has it.
func (r *recorder) uidOf(d *schema.Desired, key schema.Key) string {
	if i := d.Instance(key); i != nil {
		return i.UID
	}
	if s := r.status.Unit(key); s != nil {
		return s.UID
	}
	return ""
}

// logOf returns a log whose lines carry the identity of a resource (requirement
// A11). The uid is that of a unit.
func (r *recorder) logOf(key schema.Key, app, uid, correlationID string) *slog.Logger {
	log := r.log.With("correlation_id", correlationID, "org_id", orgOf(key), "project_id", projectOf(key), "app_slug", app)
	switch key.Kind {
	case schema.KindInstance:
		log = log.With("app_instance_id", schema.ID(uid, key))
	case schema.KindSharedRuntime:
		log = log.With("shared_runtime_id", schema.ID(uid, key))
	}
	return log
}

// unitLog is logOf for the unit of a status.
func (r *recorder) unitLog(s *plan.Status) *slog.Logger {
	return r.logOf(s.Key, s.App, s.UID, s.CorrelationID).With("unit", s.Key.String())
}

// orgOf returns the tenant that a resource belongs to.
func orgOf(k schema.Key) string {
	if k.Kind == schema.KindTenant {
		return k.Name
	}
	return k.Tenant
}

// projectOf returns the id of the project that a resource belongs to.
func projectOf(k schema.Key) string {
	if k.Kind == schema.KindProject {
		return k.Tenant + "." + k.Name
	}
	return k.ProjectID()
}
