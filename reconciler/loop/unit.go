package loop

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/reconciler"
	"berth/reconciler/apply"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/runtimes"
	"berth/schema"
)

// observeTimeout bounds one look at a unit, however many hosts hang.
const observeTimeout = 20 * time.Second

// reconcileUnit brings one unit to what is in force: observe, plan, apply,
// observe again, record. It returns when to look again.
func (r *Reconciler) reconcileUnit(ctx context.Context, key schema.Key) (time.Duration, error) {
	st, prev := r.decision(key)
	if st == nil || prev == nil {
		return 0, nil // not decided yet, or gone
	}
	want := st.Instance(key)
	if want == nil && prev.Phase == plan.PhaseDeleted {
		r.writer.RemoveUnit(key)
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

	members := st.Placement.Members(key)
	observed := r.observe(ctx, rt, st, key, want, members, prev)
	if ctx.Err() != nil {
		return 0, nil // stopping: what could not be asked is not unknown
	}
	p := r.plan(st, key, want, members, observed, rt)
	if want != nil && observed.Presence == plan.Absent {
		if v := st.Desired.Version(want.App, want.Version); v != nil {
			if b, ok := VersionBlocked(v, r.writer.Resource(v.Key)); ok {
				p.Actions, p.Blocked = nil, append(p.Blocked, b)
			}
		}
	}
	g := gated{plan: p, shown: p, review: prev.Review}
	if st.Paused == "" {
		g = r.gate(ctx, st, prev, p, observed, rt)
		if ctx.Err() != nil {
			return 0, nil
		}
	}
	p = g.plan
	view := unitView{prev: prev, want: want, members: members, plan: g.shown, observed: observed, denied: st.Denied(key), refused: st.Noncompliance(key),
		retry: prev.Retry, attempt: prev.Attempt, review: g.review, suspended: suspendedCondition(st, prev, want, st.Main)}
	if prev.Review != nil && g.review == nil {
		view.retry = nil // another plan than the one that failed
	}

	if st.Paused != "" && len(p.Actions) > 0 { // looked at, and left alone
		view.paused = st.Paused
		if !r.record(view) {
			return 0, nil
		}
		return r.o.Interval, nil
	}
	if len(p.Actions) == 0 {
		if view.converged() || (want == nil && observed.Presence == plan.Absent) {
			view.retry = nil
		}
		if g.quiet {
			return g.again, nil
		}
		if !r.record(view) {
			return 0, nil
		}
		if want == nil && observed.Presence == plan.Absent {
			return time.Millisecond, nil // recorded as gone; the next pass forgets it
		}
		return cmp.Or(g.again, r.o.Interval), nil
	}
	if view.retry != nil && view.retry.Terminal {
		if !r.record(view) { // looked at, but not touched until the revision changes
			return 0, nil
		}
		return r.o.Interval, nil
	}

	// What is about to happen is on the remote before it happens; repairing
	// what runs needs no remote (DESIGN §3: while it is down, Berth keeps what
	// is in force healthy and starts nothing new). Going on with a plan that had
	// to wait is the same attempt, and nothing new to record.
	view.acting = !g.kept()
	resumed := r.waitsWith(key) == p.Digest
	if resumed {
		view.waits = waitsFor(prev)
	} else {
		view.attempt++
	}
	if !r.record(view) {
		return 0, nil
	}
	begun := new(atomic.Bool)
	defer func() {
		if g.until != nil && !begun.Load() {
			r.compareAgain(key, prev.Revision, g.until)
		}
	}()
	if !onlyRepairs(p) || g.until != nil {
		flush, cancel := context.WithTimeout(ctx, 15*time.Second)
		err := r.writer.Flush(flush)
		cancel()
		if err != nil {
			return 0, fmt.Errorf("%s: nothing new is started: %w", key, err)
		}
	}
	// A decision may have come in while it was flushed.
	if now := r.current(); now != st && (now.Paused != "" || !sameUnit(now, st, key)) {
		return time.Millisecond, nil
	}

	epoch, leader := r.writer.Leadership()
	stamp := runtimes.Stamp{Epoch: epoch, Leader: leader, Commit: prev.Revision, CorrelationID: prev.CorrelationID}
	level := slog.LevelInfo
	if resumed {
		level = slog.LevelDebug // said before, and as often as it is tried
	}
	log := r.logUnit(prev)
	log.Log(ctx, level, "applying", "actions", len(p.Actions), "digest", short(p.Digest), "attempt", view.attempt)
	if !resumed && !g.kept() {
		r.pulls.RollOuts.Acting(prev.Revision, key, len(p.Actions))
	}
	outcomes := apply.Run(ctx, apply.Options{Runtime: counted{rt, r.o.Metrics, prev.RuntimeBackend}, Journal: journal{r, prev, view.attempt, st.Noncompliance(key), g.kept(), begun, new(sync.Map)}, Log: log}, &p, stamp, view.attempt)
	for _, o := range outcomes {
		level := level
		if !waiting(o) {
			level = slog.LevelWarn
		}
		if o.State != plan.Done {
			log.Log(ctx, level, "action not done", "action_id", o.ActionID, "verb", string(o.Verb), "member", o.Member,
				"state", string(o.State), "error", o.Error)
		}
	}
	if ctx.Err() != nil {
		return 0, nil // stopping: the next start observes and goes on
	}

	// A decision may have changed meanwhile what is wanted, and through which commit.
	latest, prev := r.decision(key)
	if prev == nil {
		return 0, nil
	}
	want = latest.Instance(key)
	members = latest.Placement.Members(key)
	observed = r.observe(ctx, rt, latest, key, want, members, prev)
	if ctx.Err() != nil {
		return 0, nil
	}
	now := r.gate(ctx, latest, prev, r.plan(latest, key, want, members, observed, rt), observed, rt)
	if ctx.Err() != nil {
		return 0, nil
	}
	after := now.plan
	view = unitView{prev: prev, want: want, members: members, plan: now.shown, observed: observed, outcomes: outcomes, denied: latest.Denied(key), refused: latest.Noncompliance(key),
		attempt: view.attempt, retry: prev.Retry, review: cmp.Or(now.until, now.review), acting: len(after.Actions) > 0 && !now.kept(),
		suspended: suspendedCondition(latest, prev, want, latest.Main)}
	again := cmp.Or(now.again, r.o.Interval)
	waits := ""
	switch {
	case view.converged(), want == nil && observed.Presence == plan.Absent:
		view.retry = nil
		view.applied = p.Digest
	case hasFailed(outcomes):
		view.retry = nextRetry(prev.Retry, view.failure(), r.o.Now(), r.o.MaxAttempts)
	case slices.ContainsFunc(outcomes, waiting):
		waits = after.Digest
		held := outcomes[slices.IndexFunc(outcomes, waiting)]
		view.waits = strings.TrimSuffix(held.Error, ": "+runtimes.ErrWaiting.Error())
	case repeats(after, p, outcomes):
		// Said to be done, and asked for again: trying at once would never end.
		view.retry = nextRetry(prev.Retry, "applied, and still differs: "+actionsLine(after.Actions), r.o.Now(), r.o.MaxAttempts)
	case len(after.Actions) > 0:
		again = 10 * time.Millisecond // the decision changed, or one step uncovered the next
	}
	if view.retry != nil && view.retry != prev.Retry {
		again = view.retry.Next.Sub(r.o.Now()) + time.Duration(rand.Int64N(int64(time.Second)))
	}
	r.setWaits(key, waits)
	if !r.record(view) {
		return 0, nil
	}
	if want == nil && observed.Presence == plan.Absent {
		return time.Millisecond, nil // recorded as gone; the next pass forgets it
	}
	return again, nil
}

// compareAgain puts back what is awaited of a unit's review, as nothing of the
// plan that was agreed to was begun.
func (r *Reconciler) compareAgain(key schema.Key, revision string, review *plan.UnitReview) {
	for {
		s := r.writer.Unit(key)
		if s == nil || s.Revision != revision || s.Review != nil {
			return // it is another's by now
		}
		next := *s
		next.Review = review
		if r.set(s, next) {
			return
		}
	}
}

// decision is what is decided of a unit and its status, as of one moment. Both
// are nil before the first decision, the status where there is none.
func (r *Reconciler) decision(key schema.Key) (*reconciler.State, *plan.Status) {
	r.writer.Decision.RLock()
	defer r.writer.Decision.RUnlock()
	return r.current(), r.writer.Unit(key)
}

// waitsWith is the digest of the plan that a unit waits to go on with.
func (r *Reconciler) waitsWith(key schema.Key) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waits[key]
}

func (r *Reconciler) setWaits(key schema.Key, digest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if digest == "" {
		delete(r.waits, key)
		return
	}
	r.waits[key] = digest
}

// repeats says whether after asks again for what p is said to have done.
func repeats(after, p plan.Plan, outcomes []plan.Outcome) bool {
	for i, o := range outcomes {
		if o.State == plan.Done && slices.ContainsFunc(after.Actions, func(a plan.Action) bool { return a.ID == p.Actions[i].ID }) {
			return true
		}
	}
	return false
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

// sameUnit says whether two decisions mean the same for a unit. What was not
// judged anew is the same value, so that this costs nothing for most units.
func sameUnit(a, b *reconciler.State, key schema.Key) bool {
	x, y := a.Instance(key), b.Instance(key)
	return (x == y || status.EqualJSON(x, y)) && slices.EqualFunc(a.Placement.Members(key), b.Placement.Members(key), sameMember)
}

// sameMember compares all of two members but why they are where they are. It is
// asked of every member at every decision, so that it does not go by reflection.
func sameMember(a, b plan.Member) bool {
	return a.Name == b.Name && a.Role == b.Role && a.ControlPlane == b.ControlPlane && a.Node == b.Node &&
		a.Address == b.Address && a.SSHPort == b.SSHPort && a.Region == b.Region && a.SKU == b.SKU &&
		a.CPUs == b.CPUs && a.MemoryMiB == b.MemoryMiB && a.Misfit == b.Misfit && slices.Equal(a.GPUs, b.GPUs)
}

func (r *Reconciler) runtimeOf(want *schema.EffectiveInstance, prev *plan.Status) (runtimes.Runtime, plan.Blocked) {
	// What is there is looked at, and taken away, by the runtime that made it.
	backend := prev.RuntimeBackend
	switch {
	case prev.Observed != nil && prev.Observed.Unit != nil:
		backend = prev.Observed.Unit.Instance.RuntimeBackend
	case want != nil:
		backend = want.RuntimeBackend
	}
	rt := r.o.Runtimes[backend]
	if rt == nil {
		return nil, plan.Blocked{Code: "runtime.missing",
			Message: fmt.Sprintf("this daemon has no runtime for backend %q; use a version with another runtime_backend", backend)}
	}
	return rt, plan.Blocked{}
}

func (r *Reconciler) recordBlocked(key schema.Key, want *schema.EffectiveInstance, st *reconciler.State, prev *plan.Status, b plan.Blocked) {
	if want == nil && prev.Observed != nil && prev.Observed.Presence == plan.Absent {
		next := *prev // it was looked for, and is not there
		next.Phase = plan.PhaseDeleted
		if r.set(prev, next) {
			r.queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: key})
		}
		return
	}
	r.record(unitView{prev: prev, want: want, members: st.Placement.Members(key), denied: st.Denied(key), refused: st.Noncompliance(key),
		plan:     plan.Plan{Key: key, Blocked: []plan.Blocked{b}},
		observed: plan.Observed{Key: key, Presence: plan.Unknown, Reason: b.Message}, retry: prev.Retry, attempt: prev.Attempt, review: prev.Review,
		suspended: suspendedCondition(st, prev, want, st.Main)})
}

// observe asks the runtime where the unit shall be and where it is remembered.
func (r *Reconciler) observe(ctx context.Context, rt runtimes.Runtime, st *reconciler.State, key schema.Key, want *schema.EffectiveInstance, members []plan.Member, prev *plan.Status) plan.Observed {
	scope := runtimes.Scope{Key: key, Instance: want}
	add := func(m plan.Member) {
		if n := st.Effective.Nodes[m.Node]; n != nil { // where it is reached may have changed
			m.Address, m.SSHPort = n.Spec.Address, n.Spec.SSHPort
		}
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
		for _, name := range sortedNodes(st.Effective.Nodes) {
			n := st.Effective.Nodes[name]
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
	r.pulls.NoteJobs(o)
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

func (r *Reconciler) plan(st *reconciler.State, key schema.Key, want *schema.EffectiveInstance, members []plan.Member, o plan.Observed, rules plan.Rules) plan.Plan {
	return plan.Make(plan.Input{
		Key: key, After: want, Members: members, Unplaced: st.Placement.Unplaced(key),
		Denied: st.Effective.Denied(key), Observed: o, Rules: rules,
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
		if s := v.review; s != nil && s.Stale != nil && (v.prev.Review == nil || v.prev.Review.Stale == nil || v.prev.Review.Stale.Now != s.Stale.Now) {
			record := staleRecord(v.prev, s, r.o.Now())
			r.writer.Record(record)
			r.logUnit(v.prev).Warn("held after the merge", "pull", s.Pull, "why", record.Reason, "revision", short(v.prev.Revision))
		}
		return true
	}
	r.queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: v.prev.Key})
	return false
}

// set records s in place of before, if that still is the unit's status.
func (r *Reconciler) set(before *plan.Status, s plan.Status) bool {
	changed, ok := r.writer.SetUnit(before, s)
	if !ok || !changed {
		return ok
	}
	if before == nil || before.Phase != s.Phase {
		was := ""
		if before != nil {
			was = string(before.Phase)
		}
		r.logUnit(&s).Info("phase", "from", was, "to", string(s.Phase), "reason", s.FailureReason, "revision", short(s.Revision))
	}
	for _, commit := range r.pulls.RollOuts.Observe(&s) {
		r.pulls.Touched(commit)
	}
	if freed(before, &s) {
		r.queue.Add(reconciler.Item{Task: reconciler.TaskPlace})
	}
	if before == nil || !status.EqualJSON(before.Observed, s.Observed) {
		r.pulls.UnitMoved(s.Key)
	}
	return true
}

// freed says whether a unit gave up a node.
func freed(before, now *plan.Status) bool {
	if before == nil {
		return false
	}
	if now.Phase == plan.PhaseDeleted && before.Phase != plan.PhaseDeleted {
		return true
	}
	return slices.ContainsFunc(before.Members, func(m plan.MemberStatus) bool {
		return !slices.ContainsFunc(now.Members, func(o plan.MemberStatus) bool { return o.Node == m.Node })
	})
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

// journal follows a unit's actions, for the pull request that caused them and
// for the audit. Intent is in the hosts' ledgers before an effect.
type journal struct {
	r       *Reconciler
	s       *plan.Status // as it was when the actions began
	attempt int
	refused *schema.Noncompliance
	kept    bool // it is what was applied before that is kept, not what the commit brought
	begun   *atomic.Bool
	steps   *sync.Map // what was begun, in words, by the action's id
}

func (j journal) Begin(_ context.Context, a plan.Action) error {
	step := strings.TrimSpace(string(a.Verb) + " " + a.Member)
	if a.Node != "" {
		step += " on " + a.Node
	}
	j.begun.Store(true)
	j.steps.Store(a.ID, step)
	if !j.kept {
		j.r.pulls.RollOuts.At(j.s.Revision, j.s.Key, step)
		j.r.pulls.Touched(j.s.Revision)
	}
	return nil
}

func (j journal) End(_ context.Context, o plan.Outcome) error {
	if step, ok := j.steps.Load(o.ActionID); ok && o.State != plan.Done && !j.kept {
		j.r.pulls.RollOuts.At(j.s.Revision, j.s.Key, step.(string))
	}
	switch o.State {
	case plan.Done:
		if !j.kept {
			j.r.pulls.RollOuts.Done(j.s.Revision, j.s.Key)
		}
		fallthrough
	case plan.Failed, plan.Uncertain:
		j.r.writer.Record(effectRecord(j.s.Key, j.s, o, j.attempt, j.refused, j.r.o.Now()))
	}
	j.r.pulls.Touched(j.s.Revision)
	return nil
}
