package loop

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"berth/reconciler"
	"berth/reconciler/apply"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/usage"
)

// nextStep is the delay after an action that uncovered another one.
const nextStep = 10 * time.Millisecond

// unitRun is one reconciliation of a unit. Its steps are observe, choosePlan, compare
// (the gate), apply and settle; each uses the results of the earlier ones.
type unitRun struct {
	*unitTask
	runtime runtimes.Runtime
	view    unitView // input of the new status
	gated   gated
	resumed bool     // the plan had to wait and is continued: the same attempt
	journal *journal // nil until actions are executed
}

// reconcile brings one unit to the state in force. It returns the delay until the unit
// is reconciled again.
func (t *unitTask) reconcile(ctx context.Context, item reconciler.Item) (time.Duration, error) {
	ctx = runtimes.WithTenant(ctx, item.Unit.Tenant)
	r := &unitRun{unitTask: t}
	if !r.begin(item.Unit) {
		return 0, nil
	}
	r.observe(ctx)
	r.choosePlan()
	r.compare(ctx)
	if ctx.Err() != nil {
		return 0, nil // the daemon stops: a host that was not asked is not unknown
	}
	if again, ok := r.settleWithoutAction(); ok {
		return again, nil
	}
	if again, ok, err := r.recordIntent(ctx); !ok {
		return again, err
	}
	outcomes := r.apply(ctx)
	if ctx.Err() != nil {
		return 0, nil // the next start observes, and continues
	}
	return r.settle(ctx, outcomes), nil
}

// begin reads a consistent copy of the state in force and the status of a unit. It
// returns false if the unit is not reconciled now.
func (r *unitRun) begin(key schema.Key) bool {
	st, prev := r.decision(key)
	if st == nil || prev == nil {
		return false // not decided yet, or deleted
	}
	r.view = newView(st, prev, r.now())
	if r.view.want == nil && prev.Phase == plan.PhaseDeleted && len(prev.Abandoned) == 0 {
		r.status.RemoveUnit(key)
		r.rate.forget(key)
		return false
	}
	backend := r.view.backend()
	if r.runtime = r.runtimes[backend]; r.view.isShared() {
		r.runtime = viewRuntime{r.status}
	}
	if r.runtime == nil {
		r.recordWithoutRuntime(backend)
		return false
	}
	return true
}

// recordWithoutRuntime records a unit that no runtime of this daemon can serve. One
// that is known to be absent is deleted.
func (r *unitRun) recordWithoutRuntime(backend string) {
	v := r.view
	if v.want == nil && v.prev.Observed != nil && v.prev.Observed.Presence == plan.Absent {
		next := *v.prev
		next.Phase = plan.PhaseDeleted
		if r.set(v.prev, next) {
			r.queues.addUnit(next.Key)
		}
		return
	}
	b := plan.Blocked{Code: plan.CodeNoRuntime,
		Message: fmt.Sprintf("this daemon has no runtime for backend %q; use a version with another runtime_backend", backend)}
	v.plan = plan.Plan{Key: v.prev.Key, Blocked: []plan.Blocked{b}}
	v.observed = plan.Observed{Key: v.prev.Key, Presence: plan.Unknown, Reason: b.Message}
	r.record(v)
}

// observe asks the runtime about the unit at its present and remembered places.
func (r *unitRun) observe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.observing)
	defer cancel()
	v := &r.view
	defer r.noteNodes()
	if v.want == nil && v.prev.Phase == plan.PhaseDeleted { // only remains of abandoned members are left
		v.observed = plan.Observed{Key: v.prev.Key, Presence: plan.Absent}
		return
	}
	scope := v.scope()
	if v.pauseReason() == "" { // a paused daemon, such as a rehearsal on a copy of the estate, deposes nobody
		scope.Stamp = r.stamp()
	}
	v.observed = r.runtime.Observe(ctx, scope)
	backend := v.prev.RuntimeBackend
	if v.want != nil {
		backend = v.want.RuntimeBackend
	}
	r.metrics.called(backend, "observe", v.observed.Presence != plan.Unknown)
	r.pulls.NoteJobs(v.observed)
	r.nodeViews.note(v.prev.Key, v.observed.Members)
}

// stamp returns the stamp of this daemon's requests to hosts about the unit.
func (r *unitRun) stamp() runtimes.Stamp {
	epoch, leader := r.status.Leadership()
	return runtimes.Stamp{Epoch: epoch, Leader: leader, Commit: r.view.prev.Revision, CorrelationID: r.view.prev.CorrelationID}
}

// choosePlan plans from the observed state to the state in force. A new instance waits
// while the bytes of its version differ from the declared ones.
func (r *unitRun) choosePlan() {
	v := &r.view
	v.finishOperations(r.now())
	v.plan = v.makePlan(r.runtime)
	if b, ok := v.operatorBlocked(); ok {
		v.plan.Actions, v.plan.Blocked = nil, append(v.plan.Blocked, b)
	}
	if v.want == nil || v.observed.Presence != plan.Absent {
		return
	}
	version := v.st.Desired.Version(v.want.Key.Tenant, v.want.App, v.want.Version)
	if version == nil {
		return
	}
	if b, ok := VersionBlocked(version, r.status.Resource(version.Key)); ok {
		v.plan.Actions, v.plan.Blocked = nil, append(v.plan.Blocked, b)
	}
}

// compare passes the plan through the gate. A paused estate executes nothing, so
// there is nothing to compare.
func (r *unitRun) compare(ctx context.Context) {
	v := &r.view
	r.gated = gated{plan: v.plan, shown: v.plan, review: v.prev.Review}
	if v.pauseReason() == "" {
		r.gated = r.gate.check(ctx, v.st, v.prev, v.plan, v.observed, r.runtime)
		r.limitRate()
	}
	v.plan, v.review = r.gated.shown, r.gated.review
	if v.prev.Review != nil && v.review == nil {
		v.retry = nil // the failed plan was another one
	}
}

// settleWithoutAction records a unit on which nothing is executed now. It returns
// false if there are actions to execute.
func (r *unitRun) settleWithoutAction() (again time.Duration, ok bool) {
	v, g := &r.view, r.gated
	switch {
	case len(g.plan.Actions) == 0:
		if v.converged() || v.isGone() {
			v.retry = nil
		}
		again = cmp.Or(g.again, r.interval)
		if g.isQuiet {
			return again, true
		}
	case v.pauseReason() != "":
		v.paused, again = v.pauseReason(), r.interval
	case v.retry == nil:
		return 0, false
	case v.retry.Terminal && v.retry.Plan != g.plan.Digest:
		v.retry = nil // something else is to be done, such as the repair of another daemon
		return 0, false
	case v.retry.Terminal: // observed only, until the revision or the plan changes
		again = r.interval
	default: // observed only, until its time comes or less is to be done, as after a repair by a person
		wait := v.retry.Next.Sub(r.now())
		if wait <= 0 || len(g.plan.Actions) < v.retry.Actions {
			return 0, false
		}
		again = min(r.interval, wait)
	}
	return r.recordAgain(again), true
}

// recordAgain records the status and returns the delay until the next
// reconciliation; again if nothing else requires one.
func (r *unitRun) recordAgain(again time.Duration) time.Duration {
	switch {
	case !r.record(r.view):
		return 0
	case r.view.isGone() && len(r.view.abandoned()) == 0:
		return soon // it is recorded as deleted; the next reconciliation removes it
	}
	return again
}

// recordIntent records the next actions and waits until the record is on the remote.
// Repairs do not wait: while the remote is unreachable, Berth repairs the units in
// force and starts nothing new. Continuing a plan that had to wait is the
// same attempt. It returns false if the unit has to be reconciled again first.
func (r *unitRun) recordIntent(ctx context.Context) (again time.Duration, ok bool, err error) {
	v, p := &r.view, r.gated.plan
	key := v.prev.Key
	v.acting, v.begins = !r.gated.isKept(), &p
	v.startOperations(p, r.now())
	r.mu.Lock()
	r.resumed = r.continuing[key] == p.Digest
	r.mu.Unlock()
	if r.resumed {
		v.waits = waitReason(v.prev)
	} else {
		v.attempt++
	}
	if !r.record(*v) {
		return 0, false, nil
	}
	if !onlyRepairs(p) || r.gated.approved != nil {
		flush, cancel := context.WithTimeout(ctx, recordTimeout)
		defer cancel()
		if err := withoutWorker(ctx, func() error { return r.status.Flush(flush) }); err != nil {
			r.restoreReview()
			return 0, false, fmt.Errorf("%s: no new action started: %w", key, err)
		}
	}
	// A decision or a hold may have come while the status was written.
	now, prev := r.decision(key)
	if prev == nil || newView(now, prev, r.now()).pauseReason() != "" || now != v.st && !sameUnit(now, v.st, key) {
		r.restoreReview()
		return soon, false, nil
	}
	return 0, true, nil
}

// restoreReview sets the awaited review of an approved plan again if none of its
// actions was started: the next plan is compared again.
func (r *unitRun) restoreReview() {
	if r.gated.approved == nil || r.journal != nil && r.journal.hasStarted() {
		return
	}
	r.update(r.view.prev.Key, func(s *plan.Status) (next plan.Status, ok bool) {
		if s == nil || s.Revision != r.view.prev.Revision || s.Review != nil {
			return next, false // changed by another decision
		}
		next = *s
		next.Review = r.gated.approved
		return next, true
	})
}

// apply executes the plan.
func (r *unitRun) apply(ctx context.Context) []plan.Outcome {
	defer r.restoreReview()
	v, p := &r.view, r.gated.plan
	credential := newCredential(v.operator(), r.now())
	if !credential.Expires.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, credentialLife)
		defer cancel()
	}
	stamp := r.stamp()
	stamp.Credential = credential
	log, level := r.unitLog(v.prev), slog.LevelInfo
	if r.resumed {
		level = slog.LevelDebug // logged before, and repeated with each try
	}
	log.Log(ctx, level, "plan application started", "actions", len(p.Actions), "plan", reconciler.Short(p.Digest), "attempt", v.attempt)
	if !r.resumed {
		r.countRetry(p)
	}
	if !r.resumed && !r.gated.isKept() {
		r.pulls.RollOuts.Acting(v.prev.Revision, v.prev.Key, len(p.Actions))
	}
	openUsage := ""
	if slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Verb == plan.AbandonUsage }) {
		openUsage = r.usage.openSince(ctx, v.prev)
	}
	r.journal = &journal{
		recorder: r.recorder, unit: v.prev, credential: credential, attempt: v.attempt, noncompliance: v.st.Noncompliance(v.prev.Key),
		isKept: r.gated.isKept(), openUsage: openUsage,
		steps: map[string]string{}, operations: v.operations, of: map[string]*plan.Operation{},
	}
	outcomes := apply.Run(ctx, apply.Options{Runtime: counted{r.runtime, r.metrics, v.prev.RuntimeBackend}, Journal: r.journal,
		RecordUsage: r.recordUsage, JobsLost: r.jobsLost, Correlation: correlations(v.operations), Log: log}, &p, stamp, v.attempt)
	r.metrics.acted(outcomes)
	for _, o := range outcomes {
		if o.State == plan.Done {
			continue
		}
		level := level
		if o.State != plan.Waiting {
			level = slog.LevelWarn
		}
		log.Log(ctx, level, "action not completed", "action_id", o.ActionID, "verb", string(o.Verb), "member", o.Member,
			"state", string(o.State), "error", o.Error)
	}
	return outcomes
}

// countRetry counts the application of a plan as a retry if it is one. An operation that asks for one has ended the retry state
// of the unit.
func (r *unitRun) countRetry(p plan.Plan) {
	if r.view.retry != nil {
		r.metrics.retriedAutomatically()
	}
	if slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Verb == plan.RetryUnit }) {
		r.metrics.retriedOnRequest(1)
	}
}

// settle observes and plans again after actions were executed, and records the
// result. A decision may have come meanwhile.
func (r *unitRun) settle(ctx context.Context, outcomes []plan.Outcome) (again time.Duration) {
	applied, attempt := r.gated.plan, r.view.attempt
	st, prev := r.decision(applied.Key)
	if prev == nil {
		return 0
	}
	r.view = newView(st, prev, r.now())
	v := &r.view
	v.attempt, v.cleaned, v.outcomes = attempt, cleanedBy(applied, outcomes), v.settleOperations(applied, outcomes, r.now())
	r.observe(ctx)
	v.finishOperations(r.now())
	v.plan = v.makePlan(r.runtime)
	g := r.gate.check(ctx, st, prev, v.plan, v.observed, r.runtime)
	if ctx.Err() != nil {
		return 0
	}
	v.plan, v.review = g.shown, cmp.Or(g.approved, g.review)
	v.acting = len(g.plan.Actions) > 0 && !g.isKept()
	again = cmp.Or(g.again, r.interval)
	continues := ""
	switch held := slices.IndexFunc(outcomes, isWaiting); {
	case v.converged(), v.isGone():
		v.retry, v.applied = nil, applied.Digest
	case hasFailed(v.outcomes):
		v.retry = nextRetry(prev.Retry, v.failure(), g.plan, r.now(), r.maxAttempts)
	case held >= 0:
		continues = g.plan.Digest
		v.waits = waitReasons(outcomes)
	case repeats(g.plan, applied, outcomes):
		// An immediate retry of an action that reported success would never end.
		v.retry = nextRetry(prev.Retry, "applied, and still differs: "+actionsLine(g.plan.Actions), g.plan, r.now(), r.maxAttempts)
	case len(g.plan.Actions) > 0:
		again = nextStep // the decision changed, or one action uncovered the next
	}
	if v.retry != nil && v.retry != prev.Retry {
		again = min(r.interval, v.retry.Next.Sub(r.now())+rand.N(time.Second)) // observed meanwhile
	}
	r.setContinuing(applied.Key, continues)
	return r.recordAgain(again)
}

// recordUsage is recordLast for this unit.
func (r *unitRun) recordUsage(ctx context.Context, jobs []usage.Job) error {
	return r.usage.recordLast(ctx, r.view.prev, jobs)
}

// jobsLost announces jobs that the scheduler of the unit lost.
func (r *unitRun) jobsLost(jobs []plan.LostJob) {
	if len(jobs) > 0 {
		r.status.Announce(status.LostJobsEvent(r.view.prev, jobs, r.now()))
	}
}
