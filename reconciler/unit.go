package reconciler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"berth/reconciler/apply"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// observeTimeout bounds one look at a unit, however many hosts hang.
const observeTimeout = 20 * time.Second

// reconcileUnit brings one unit to what is in force: observe, plan, apply,
// observe again, record. It returns when to look again.
func (r *Reconciler) reconcileUnit(ctx context.Context, key schema.Key) (time.Duration, error) {
	st := r.current()
	if st == nil {
		return 0, nil // the first decision will ask again
	}
	prev := r.writer.get(key)
	want := st.effective.Instances[key]
	if prev == nil {
		return 0, nil // never decided, or gone and told
	}
	if want == nil && prev.Phase == plan.PhaseDeleted {
		r.finish(key, prev)
		return 0, nil
	}
	rt, blocked := r.runtimeOf(want, prev)
	if rt == nil {
		r.recordBlocked(key, want, st, prev, blocked)
		return 0, nil
	}
	if wait := retryWait(prev, r.o.Now()); wait > 0 {
		return wait, nil
	}

	members := st.placement.Members[key]
	observed := r.observe(ctx, rt, st, key, want, members, prev)
	p := r.plan(st, key, want, members, observed, rt)
	view := unitView{prev: prev, want: want, members: members, plan: p, observed: observed,
		retry: prev.Retry, attempt: prev.Attempt}

	if len(p.Actions) == 0 {
		if view.converged() || (want == nil && observed.Presence == plan.Absent) {
			view.retry = nil
		}
		if !r.record(view) {
			return 0, nil
		}
		if want == nil && observed.Presence == plan.Absent {
			r.queue.Add(Item{Do: TaskUnit, Unit: key}) // told and forgotten in a pass of its own
			return 0, nil
		}
		return r.o.Interval, nil
	}
	if prev.Retry != nil && prev.Retry.Terminal {
		if !r.record(view) { // looked at, but not touched until the revision changes
			return 0, nil
		}
		return r.o.Interval, nil
	}

	// What is about to happen is on the remote before it happens; repairing
	// what runs needs no remote (DESIGN §3: while it is down, Berth keeps what
	// is in force healthy and starts nothing new).
	view.acting = true
	view.attempt++
	if !r.record(view) {
		return 0, nil
	}
	if !onlyRepairs(p) {
		flush, cancel := context.WithTimeout(ctx, 15*time.Second)
		err := r.writer.flush(flush)
		cancel()
		if err != nil {
			return 0, fmt.Errorf("%s: nothing new is started: %w", key, err)
		}
	}
	// A decision may have come in while it was flushed.
	if now := r.current(); now != st && !sameUnit(now, st, key) {
		r.queue.Add(Item{Do: TaskUnit, Unit: key})
		return 0, nil
	}

	stamp := runtimes.Stamp{Epoch: r.writer.epoch(), Commit: prev.Revision, CorrelationID: prev.CorrelationID}
	r.o.Log.Info("applying", "unit", key.String(), "actions", len(p.Actions), "digest", short(p.Digest), "attempt", view.attempt,
		"correlation_id", prev.CorrelationID, "org_id", key.Tenant, "project_id", key.ProjectID(), "app_instance_id", key.Name)
	r.begin(key, p)
	outcomes := apply.Run(ctx, apply.Options{Runtime: counted{rt, r.o.Metrics, prev.RuntimeBackend}, Journal: journal{r, key, prev.Revision}, Log: r.o.Log}, &p, stamp, view.attempt)
	for _, o := range outcomes {
		if o.State != plan.Done {
			r.o.Log.Warn("action not done", "unit", key.String(), "action_id", o.ActionID, "verb", string(o.Verb), "member", o.Member,
				"state", string(o.State), "error", o.Error, "correlation_id", prev.CorrelationID)
		}
	}
	if ctx.Err() != nil {
		return 0, nil // stopping: the next start observes and goes on
	}

	latest := r.current() // a decision may have changed what is wanted, and the revision
	want = latest.effective.Instances[key]
	members = latest.placement.Members[key]
	if prev = r.writer.get(key); prev == nil {
		return 0, nil
	}
	observed = r.observe(ctx, rt, latest, key, want, members, prev)
	after := r.plan(latest, key, want, members, observed, rt)
	view = unitView{prev: prev, want: want, members: members, plan: after, observed: observed, outcomes: outcomes,
		attempt: view.attempt, retry: prev.Retry, acting: len(after.Actions) > 0}
	again := r.o.Interval
	switch {
	case view.converged(), want == nil && observed.Presence == plan.Absent:
		view.retry = nil
		view.applied = p.Digest
		r.end(key)
	case hasFailed(outcomes):
		view.retry = nextRetry(prev.Retry, view.failure(), r.o.Now(), r.o.MaxAttempts)
		again = view.retry.Next.Sub(r.o.Now()) + time.Duration(rand.Int64N(int64(time.Second)))
	}
	if !r.record(view) {
		return 0, nil
	}
	if want == nil && observed.Presence == plan.Absent {
		r.queue.Add(Item{Do: TaskUnit, Unit: key})
		return 0, nil
	}
	if len(after.Actions) > 0 && !hasFailed(outcomes) && !slices.ContainsFunc(outcomes, waiting) {
		again = 10 * time.Millisecond // the decision changed, or one step uncovered the next
	}
	return again, nil
}

func waiting(o plan.Outcome) bool { return o.State == plan.Waiting }

// retryWait is how long a failing unit still has to wait.
func retryWait(s *plan.Status, now time.Time) time.Duration {
	if s.Retry == nil || s.Retry.Terminal {
		return 0
	}
	return s.Retry.Next.Sub(now)
}

// onlyRepairs says whether p merely starts again what was in place.
func onlyRepairs(p plan.Plan) bool {
	return !slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Verb != plan.Start })
}

// sameUnit says whether two decisions mean the same for a unit.
func sameUnit(a, b *state, key schema.Key) bool {
	return equalJSON(a.effective.Instances[key], b.effective.Instances[key]) &&
		equalJSON(a.placement.Members[key], b.placement.Members[key])
}

func (r *Reconciler) runtimeOf(want *schema.EffectiveInstance, prev *plan.Status) (runtimes.Runtime, plan.Blocked) {
	// What runs is taken away by the runtime that made it.
	backend := prev.RuntimeBackend
	if want != nil {
		backend = want.RuntimeBackend
	}
	rt := r.o.Runtimes[backend]
	if rt == nil {
		return nil, plan.Blocked{Code: "runtime.missing",
			Message: fmt.Sprintf("this daemon has no runtime for backend %q; use a version with another runtime_backend", backend)}
	}
	return rt, plan.Blocked{}
}

func (r *Reconciler) recordBlocked(key schema.Key, want *schema.EffectiveInstance, st *state, prev *plan.Status, b plan.Blocked) {
	if want == nil && prev.Observed == nil {
		next := *prev // nothing was ever made
		next.Phase = plan.PhaseDeleted
		if r.set(prev, next) {
			r.queue.Add(Item{Do: TaskUnit, Unit: key})
		}
		return
	}
	r.record(unitView{prev: prev, want: want, members: st.placement.Members[key],
		plan:     plan.Plan{Key: key, Blocked: []plan.Blocked{b}},
		observed: plan.Observed{Key: key, Presence: plan.Unknown, Reason: b.Message}, retry: prev.Retry, attempt: prev.Attempt})
}

// observe asks the runtime where the unit shall be and where it is remembered.
func (r *Reconciler) observe(ctx context.Context, rt runtimes.Runtime, st *state, key schema.Key, want *schema.EffectiveInstance, members []plan.Member, prev *plan.Status) plan.Observed {
	scope := runtimes.Scope{Key: key, Instance: want}
	add := func(m plan.Member) {
		if !slices.ContainsFunc(scope.Members, func(o plan.Member) bool { return o.Name == m.Name && o.Node == m.Node }) {
			scope.Members = append(scope.Members, m)
		}
	}
	remembered := prev.Observed != nil && prev.Observed.Unit != nil
	if remembered {
		for _, m := range prev.Observed.Unit.Members {
			add(m)
		}
	}
	for _, m := range members {
		add(m)
	}
	for _, m := range prev.Members {
		add(m.Member)
	}
	if !remembered {
		for _, name := range sortedNodes(st.effective.Nodes) {
			n := st.effective.Nodes[name]
			if want == nil || slices.Contains(n.Spec.Roles, controlRole(want)) {
				scope.Candidates = append(scope.Candidates, n)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	o := rt.Observe(ctx, scope)
	backend := prev.RuntimeBackend
	if want != nil {
		backend = want.RuntimeBackend
	}
	r.o.Metrics.called(backend, "observe", o.Presence != plan.Unknown)
	return o
}

func controlRole(i *schema.EffectiveInstance) string {
	for _, role := range i.Roles {
		if role.ControlPlane {
			return role.NodeRole
		}
	}
	return ""
}

func sortedNodes(m map[string]*schema.Node) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (r *Reconciler) plan(st *state, key schema.Key, want *schema.EffectiveInstance, members []plan.Member, o plan.Observed, rules plan.Rules) plan.Plan {
	return plan.Make(plan.Input{
		Key: key, After: want, Members: members, Unplaced: st.placement.Unplaced[key],
		Denied: st.effective.Denied(key), Observed: o, Rules: rules,
	})
}

// record writes the status a view comes to, and wakes who shows it. Where
// somebody recorded another status since the view was taken, nothing is
// written: the unit is looked at again, and false returned.
func (r *Reconciler) record(v unitView) bool {
	if r.set(v.prev, v.status()) {
		r.mu.Lock()
		r.seen[v.prev.Key] = true
		r.mu.Unlock()
		return true
	}
	r.queue.Add(Item{Do: TaskUnit, Unit: v.prev.Key})
	return false
}

// set records s in place of before, if that still is the unit's status.
func (r *Reconciler) set(before *plan.Status, s plan.Status) bool {
	changed, ok := r.writer.set(before, s)
	if !ok || !changed {
		return ok
	}
	if before == nil || before.Phase != s.Phase {
		was := ""
		if before != nil {
			was = string(before.Phase)
		}
		r.o.Log.Info("phase", "unit", s.Key.String(), "from", was, "to", string(s.Phase), "reason", s.FailureReason,
			"revision", short(s.Revision), "correlation_id", s.CorrelationID,
			"org_id", s.Key.Tenant, "project_id", s.Key.ProjectID(), "app_slug", s.App, "app_instance_id", s.Key.Name)
	}
	r.touched(s.Revision)
	if before == nil || !equalJSON(before.Observed, s.Observed) {
		r.refreshPulls()
	}
	return true
}

// finish tells of a unit that is gone, then forgets it.
func (r *Reconciler) finish(key schema.Key, s *plan.Status) {
	if r.o.Forge != nil && s.Revision != "" {
		r.queue.Add(Item{Do: TaskFollow, Commit: s.Revision}) // forgets it once told
		return
	}
	r.forget(key)
}

// forget drops a unit that is gone, and gives its nodes to who waits for them.
func (r *Reconciler) forget(key schema.Key) {
	r.writer.forget(key)
	r.mu.Lock()
	delete(r.progress, key)
	delete(r.seen, key)
	r.mu.Unlock()
	r.replace()
}

// counted counts the calls of a runtime.
type counted struct {
	runtimes.Runtime
	m       *Metrics
	backend string
}

func (c counted) Apply(ctx context.Context, ch runtimes.Change) error {
	err := c.Runtime.Apply(ctx, ch)
	c.m.called(c.backend, string(ch.Action.Verb), err == nil)
	return err
}

// journal follows a unit's actions for the pull request that caused them. The
// lasting record of intent and outcome is in the hosts' ledgers and in Git.
type journal struct {
	r        *Reconciler
	key      schema.Key
	revision string
}

func (j journal) Begin(context.Context, plan.Action) error { return nil }

func (j journal) End(_ context.Context, o plan.Outcome) error {
	j.r.mu.Lock()
	if p := j.r.progress[j.key]; p != nil && o.State == plan.Done {
		p.done++
	}
	j.r.mu.Unlock()
	j.r.touched(j.revision)
	return nil
}

func (r *Reconciler) begin(key schema.Key, p plan.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pr := r.progress[key]
	if pr == nil {
		pr = &progress{started: r.o.Now()}
		r.progress[key] = pr
	}
	pr.done, pr.total = 0, len(p.Actions)
}

func (r *Reconciler) end(key schema.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pr := r.progress[key]; pr != nil {
		pr.took = r.o.Now().Sub(pr.started)
	}
}
