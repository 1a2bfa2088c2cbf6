package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/reconciler/provenance"
	"berth/reconciler/pulls"
	"berth/schema"
	"berth/schema/audit"
)

// reconcile synchronizes the estate once.
func (t *estateTask) reconcile(ctx context.Context, _ reconciler.Item) (time.Duration, error) {
	err := t.synchronize(ctx)
	t.inForce.setRepositoryError(err)
	t.followDay()
	t.queues.add(reconciler.Item{Task: reconciler.TaskArtifacts})
	t.queues.add(reconciler.Item{Task: reconciler.TaskDates})
	return 0, err
}

// synchronize fetches, and decides the new commits of main.
func (t *estateTask) synchronize(ctx context.Context) error {
	tips, frozen, err := t.fetch(ctx)
	if err != nil {
		return err
	}
	if t.inForce.current() == nil && tips.InForce != "" {
		if err := t.adopt(ctx, tips); err != nil {
			return err
		}
		// After the decision: a unit that is reconciled earlier would get the state of an
		// older commit of main.
		defer t.wakeAll()
	}
	if frozen != nil {
		t.freeze(frozen.Error())
		return nil
	}
	old := t.inForce.current()
	if t.backlog.exists {
		old = t.backlog.state
	}
	return t.update(ctx, old, tips)
}

// fetch fetches the branches. frozen is the reason why main cannot be taken over.
func (t *estateTask) fetch(ctx context.Context) (tips reconciler.Tips, frozen, err error) {
	tips, frozen = t.o.Repo.Fetch(ctx)
	if frozen != nil && !errors.Is(frozen, reconciler.ErrRewritten) && !errors.Is(frozen, reconciler.ErrUnreadable) {
		return tips, nil, frozen
	}
	if err := t.status.Fetched(ctx, tips.Status); err != nil {
		return tips, nil, err
	}
	t.inForce.setTip(tips.Main)
	if sources, ok := t.o.Repo.(reconciler.NoticeReader); ok {
		t.status.Revise(func(rev *reconciler.Revision) {
			next := updateNotices(rev.Notices, append(sources.Notices(), t.expiredRollbacks()...), t.now().Sub(t.noticed) < noticeLifetime)
			if !slices.Equal(next, rev.Notices) {
				rev.Notices, t.noticed = next, t.now()
			}
		})
	}
	return tips, frozen, nil
}

// followDay records the queue maps whose rollback has expired, also while the sync is frozen or the remote is
// down. Without a new day it records nothing.
func (t *estateTask) followDay() {
	t.status.Decision.Lock()
	defer t.status.Decision.Unlock()
	if st := t.inForce.current(); st != nil {
		t.enforcer.queueMaps.record(st, nil, t.today())
	}
}

// expiredRollbacks returns a notice for each queue map in force whose rollback has expired.
func (t *estateTask) expiredRollbacks() (all []string) {
	st := t.inForce.current()
	if st == nil {
		return nil
	}
	for _, m := range st.Desired.QueueMaps() {
		if m.Expired(t.today()) {
			all = append(all, m.File+": "+overdue(m.Spec.Rollback))
		}
	}
	return all
}

// update takes the estate from the state old, which may be nil, to the tips.
func (t *estateTask) update(ctx context.Context, old *reconciler.State, tips reconciler.Tips) error {
	acks := t.pulls.AcksWaiting()
	if !isAt(old, tips) || len(acks) > 0 {
		return t.decide(ctx, old, tips, acks)
	}
	if done, err := t.applyCommand(ctx, old); done || err != nil {
		return err
	}
	if slices.ContainsFunc(old.Held, func(h schema.Held) bool { return h.Reason == schema.HeldUnreadable }) {
		return t.decide(ctx, old, tips, nil) // it may be readable now
	}
	t.thaw()
	if old.Day != t.today() || !maps.Equal(old.UsedUp, t.withUse(ctx, *old).UsedUp) {
		return t.startDay(ctx, old, tips)
	}
	return nil
}

// decide decides the commits that came to main since the state old, with
// acknowledgements that came later, and puts the result in force.
func (t *estateTask) decide(ctx context.Context, old *reconciler.State, tips reconciler.Tips, acks []pulls.Acked) error {
	was, decided, err := t.standing(ctx, old, tips)
	if err != nil {
		return err
	}
	if was.Tree == nil && t.o.Decide.Authority != nil {
		if lost := t.status.Revision().InForce; lost != "" && t.o.Accept != tips.Main {
			t.freeze(fmt.Sprintf("%s is gone, which held %s: the changes held for lack of authority are not known any more. Put the "+
				"branch back, or set repository.accept to %s to take all of it as permitted",
				reconciler.BranchInForce, reconciler.Short(lost), tips.Main))
			return nil
		}
	}
	steps, err := t.steps(ctx, decided, tips.Main)
	var d decide.Decision
	if err == nil && len(steps) > 0 {
		if acks, err = t.pulls.AddAcks(ctx, steps, acks); err == nil {
			d, err = t.decider.Commit(ctx, was, steps, t.today())
		}
	}
	switch {
	case errors.Is(err, reconciler.ErrUnreadable), errors.Is(err, decide.ErrFrozen):
		t.freeze(err.Error())
		return nil
	case err != nil:
		return err
	case len(steps) == 0:
		return nil
	}
	return t.enforce(ctx, old, tips, decided, d, acks)
}

// steps returns the commits to decide. If the author of one is not known yet, the
// estate is reconciled again soon for the rest.
func (t *estateTask) steps(ctx context.Context, decided, main string) ([]decide.Step, error) {
	ready := func() {}
	if tree, err := t.o.Repo.Snapshot(ctx, main); err == nil { // otherwise Steps returns the error
		ready = t.decider.Ahead(ctx, tree)
	}
	steps, err := t.authors.Steps(ctx, decided, main, t.awaitsAck())
	ready()
	if err == nil && (len(steps) == 0 || steps[len(steps)-1].Commit != main) {
		t.queues.addAfter(reconciler.Item{Task: reconciler.TaskEstate}, t.o.Settings.AuthorLag/4)
	}
	return steps, err
}

// enforce writes a decision to berth/in-force and puts it in force. decided is the
// commit of main that was decided before.
func (t *estateTask) enforce(
	ctx context.Context, old *reconciler.State, tips reconciler.Tips, decided string, d decide.Decision, acks []pulls.Acked,
) error {
	change, err := t.account(ctx, old, tips, decided, d)
	if err != nil {
		return err
	}
	commit, err := t.writeInForce(ctx, tips.InForce, d.Commit, reconciler.CorrelationID(d.Commit), d)
	if commit == "" {
		return err
	}
	if isAt(old, tips) && commit == old.InForce { // nothing changed
		t.thaw()
		t.pulls.AcksDecided(acks)
		return nil
	}
	change.next = newState(d.Commit, commit, t.today(), d)
	if old != nil && old.Main == d.Commit { // no commit of main changed anything
		change.origin.changed, change.origin.first = nil, ""
	}
	if len(acks) > 0 {
		change.origin.acknowledged = acks[0].Commit
		if old != nil && old.Main == d.Commit {
			change.origin.first = acks[0].Commit
		}
	}
	t.logHeld(old, change.next)
	if err := t.putInForce(ctx, change); err != nil {
		return err
	}
	t.pulls.AcksDecided(acks)
	if d.Frozen != nil {
		t.freeze(d.Frozen.Error())
	}
	return nil
}

// account returns the change that a decision makes, with the audit records, events
// and origins that are not recorded yet, those of the backlog included.
func (t *estateTask) account(
	ctx context.Context, old *reconciler.State, tips reconciler.Tips, decided string, d decide.Decision,
) (decidedChange, error) {
	verdicts, err := t.unrecorded(ctx, decided, d.Verdicts)
	if err != nil {
		return decidedChange{}, err
	}
	c := decidedChange{
		old: old, origin: origin{changed: d.Changed, first: d.First, requesters: provenance.Requesters(d.Verdicts)},
		records: t.decisionRecords(verdicts, tips.InForce, d), events: entitlementEvents(verdicts, d.Desired, t.now()),
	}
	switch {
	case tips.InForce == "":
		c.records = []audit.Record{adoptedRecord(d.Commit, len(d.Verdicts), t.now())}
	case old != nil && old.InForce != tips.InForce:
		earlier, from, err := t.decideBacklog(ctx, old, decided)
		if err != nil {
			return decidedChange{}, err
		}
		verdicts, err := t.unrecorded(ctx, from, earlier.Verdicts)
		if err != nil {
			return decidedChange{}, err
		}
		if earlier.Effective != nil {
			c.origin.changed, c.origin.first = earlier.Changed, earlier.First
			for key := range decide.Changed(earlier.Effective, d.Effective) {
				c.origin.changed[key] = cmp.Or(d.Changed[key], d.First)
			}
		}
		for key, user := range provenance.Requesters(earlier.Verdicts) {
			c.origin.requesters[key] = cmp.Or(c.origin.requesters[key], user)
		}
		c.records = append(t.decisionRecords(verdicts, old.InForce, earlier), c.records...)
		c.events = append(entitlementEvents(verdicts, earlier.Desired, t.now()), c.events...)
	}
	return c, nil
}

// unrecorded returns the verdicts about commits that no earlier daemon recorded. A
// commit that changes nothing on berth/in-force is decided again after a restart.
func (t *estateTask) unrecorded(ctx context.Context, decided string, verdicts []decide.Verdict) ([]decide.Verdict, error) {
	to := t.backlog.recordedTo
	if to == "" || to == decided || decided == "" {
		return verdicts, nil
	}
	commits, err := t.o.Repo.Log(ctx, decided, to, provenance.MaxSteps)
	if errors.Is(err, reconciler.ErrNotFound) {
		return verdicts, nil // berth/status names a commit that does not exist
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(verdicts), func(v decide.Verdict) bool {
		return slices.ContainsFunc(commits, func(c reconciler.Commit) bool { return c.ID == v.Commit })
	}), nil
}

// decideBacklog repeats a decision that an earlier daemon wrote to berth/in-force and
// did not record: from the state in the statuses, which is of the commit from, to the decided commit.
func (t *estateTask) decideBacklog(
	ctx context.Context, old *reconciler.State, decided string,
) (d decide.Decision, from string, err error) {
	was, from, err := t.standing(ctx, old, reconciler.Tips{InForce: old.InForce})
	if errors.Is(err, reconciler.ErrRewritten) || errors.Is(err, reconciler.ErrNotFound) {
		t.log.Warn("recorded decision does not exist; later decisions are not recorded", "in_force", reconciler.Short(old.InForce), "error",
			err)
		return d, from, nil
	}
	if err != nil {
		return d, from, err
	}
	steps, err := t.authors.Steps(ctx, from, decided, t.awaitsAck())
	if err != nil {
		return d, from, err
	}
	if len(steps) == 0 || steps[len(steps)-1].Commit != decided {
		return d, from, fmt.Errorf("authors of the commits up to %s, which is decided, are not known yet", reconciler.Short(decided))
	}
	d, err = t.decider.Commit(ctx, was, steps, t.today())
	if errors.Is(err, decide.ErrFrozen) {
		return decide.Decision{}, from, nil
	}
	return d, from, err
}

// standing returns the state in force before a decision, and the commit of main that
// was decided last; "" if nothing is in force.
func (t *estateTask) standing(
	ctx context.Context, old *reconciler.State, tips reconciler.Tips,
) (was decide.Standing, decided string, err error) {
	if tips.InForce == "" {
		return was, "", nil
	}
	if was.Tree, err = t.o.Repo.Snapshot(ctx, tips.InForce); err != nil {
		return was, "", err
	}
	message, err := t.o.Repo.ReadInForce(ctx, tips.InForce)
	if err != nil {
		return was, "", err
	}
	was.Permitted, decided = message.Permitted, message.Commit
	units := t.status.Units()
	was.Facts = decide.Facts{Memory: &units, GPUSeconds: t.gpuSeconds(ctx)}
	if old != nil && old.InForce == tips.InForce && old.Main != "" {
		decided = old.Main // a commit that changes nothing is not written there
	}
	return was, decided, nil
}

// startDay evaluates the state in force again, because the grace of a noncompliant
// unit may end with a day, and the GPU hours of a month begin with one or are used up.
func (t *estateTask) startDay(ctx context.Context, old *reconciler.State, tips reconciler.Tips) error {
	next, err := t.read(ctx, old.InForce)
	if err != nil {
		return err
	}
	next.Main, next.Permitted, next.Paused = old.Main, old.Permitted, old.Paused
	setHeld(next, old.Held)
	if err := t.putInForce(ctx, decidedChange{old: old, next: next}); err != nil {
		return err
	}
	if next = t.inForce.current(); !maps.Equal(old.UsedUp, next.UsedUp) {
		t.wakeAll() // their conditions change
	}
	if slices.ContainsFunc(old.Held, func(h schema.Held) bool { return h.Reason == schema.HeldQuota }) {
		return t.decide(ctx, next, tips, nil)
	}
	return nil
}

// place places the waiting members again, as nodes became free, and enqueues the
// units whose members change.
func (t *estateTask) place(context.Context, reconciler.Item) (time.Duration, error) {
	t.status.Decision.Lock()
	defer t.status.Decision.Unlock()
	st := t.inForce.current()
	if st == nil {
		return 0, nil
	}
	next := *st
	next.Placement = t.decider.Place(st.Effective, t.status.Units())
	t.inForce.set(&next)
	for k := range plan.ChangedPlacement(st.Placement, next.Placement) {
		if !slices.EqualFunc(st.Placement.Members(k), next.Placement.Members(k), sameMember) {
			t.queues.addUnit(k)
		}
	}
	return 0, nil
}

// wakeAll enqueues all units.
func (t *estateTask) wakeAll() {
	for k := range t.status.Units().All() {
		t.queues.addUnit(k)
	}
}
