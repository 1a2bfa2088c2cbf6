package loop

import (
	"context"
	"maps"
	"slices"
	"time"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/reconciler/provenance"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/authority"
)

// change is a decision to put in force, with the known commits and users behind it.
type change struct {
	old     *reconciler.State // nil: nothing was in force, or unknown
	next    *reconciler.State
	origin  origin
	records []audit.Record
	events  []plan.Event

	// Filled in by putInForce.
	before *reconciler.State     // old, with the assignments of the present placement
	units  []schema.Key          // that next changes, sorted
	merged []mergedCommit        // of main since old, newest first
	causes map[schema.Key]string // commit of main that changed each unit
	now    time.Time
}

// origin names the commits and users of a decision.
type origin struct {
	first        string                // first commit that was decided; "": unknown
	changed      map[schema.Key]string // units that later commits changed, by the last of them
	requesters   map[schema.Key]string // of instances and operations
	acknowledged string                // commit whose deletion was acknowledged later; "": none
	approval     *approval             // command that the decision carries out; nil: none
}

// enforced is the state that the last decision of this process replaced.
type enforced struct {
	memory plan.Memory
	units  []schema.Key // that it changed
}

// enforcer puts decisions in force. Only the goroutine of the estateTask uses it.
type enforcer struct {
	*recorder
	inForce     *inForce
	decider     *decide.Decider
	authors     *provenance.Authors
	metrics     *Metrics
	history     history
	attachments attachments
	queueMaps   queueMaps
	last        *enforced // nil: this process has put nothing in force
}

// putInForce puts a decision in force, and with it the backlog.
func (t *estateTask) putInForce(ctx context.Context, c change) error {
	if err := t.enforcer.putInForce(ctx, c); err != nil {
		return err
	}
	t.backlog = backlog{}
	return nil
}

// putInForce places members, finds the changed units and their commits, and carries
// out the effects.
func (f *enforcer) putInForce(ctx context.Context, c change) error {
	memory := f.status.Units()
	if c.old != nil {
		before := *c.old
		before.Placement = f.decider.Place(c.old.Effective, memory)
		c.before = &before
	}
	c.next.Placement = f.decider.Place(c.next.Effective, memory)
	c.now = f.now()
	c.units = changedUnits(c.old, c.next, memory, f.last)
	if c.old != nil && c.old.Main != "" && c.old.Main != c.next.Main {
		c.merged = f.history.between(ctx, c.old.Main, c.next.Main)
	}
	var err error
	if c.causes, err = f.causes(ctx, &c, memory); err != nil {
		return err
	}
	c.origin.requesters = f.requesters(ctx, c.next, c.units, c.origin.requesters)
	f.carryOut(c.effects())
	f.last = &enforced{memory, c.units}
	return nil
}

// causes returns the commit of main that changed each unit.
func (f *enforcer) causes(ctx context.Context, c *change, memory plan.Memory) (map[schema.Key]string, error) {
	isMerge := c.old == nil || c.old.Main != c.next.Main
	if c.origin.approval == nil && !isMerge && c.old.InForce != c.next.InForce && c.origin.acknowledged == "" && len(c.units) > 0 {
		return f.history.causesOf(ctx, c.old.InForce, c.next, c.units) // a held change came into force without a new commit
	}
	causes := attribute(c.merged, c.next.Main, c.units)
	for _, key := range c.units {
		s := memory.Get(key)
		switch commit := c.origin.commitOf(c.old, c.next, key); {
		case c.origin.approval != nil:
			causes[key] = c.origin.approval.commit
		case commit != "":
			causes[key] = commit
		case isMerge:
		case c.origin.acknowledged != "" && changes(c.before, c.next, key):
			causes[key] = c.origin.acknowledged
		case s != nil && s.Revision != "": // no commit changed it: a day began
			causes[key] = s.Revision
		}
	}
	return causes, nil
}

// commitOf returns the commit that changed a unit; "": unknown, or only its
// placement changed.
func (o origin) commitOf(old, next *reconciler.State, key schema.Key) string {
	if commit := o.changed[key]; commit != "" {
		return commit
	}
	if old == nil || sameInstance(old, next, key) {
		return ""
	}
	return o.first
}

// requesters adds to known the requesters of new instances and operations that it lacks.
func (f *enforcer) requesters(
	ctx context.Context, st *reconciler.State, units []schema.Key, known map[schema.Key]string,
) map[schema.Key]string {
	missing := map[string]schema.Key{}
	for _, key := range units {
		if i := st.Desired.Instance(key); i != nil && known[key] == "" && isNewUnit(f.status.Unit(key)) {
			missing[i.File] = key
		}
		for _, o := range newOperations(st, f.status.Unit(key), key) {
			missing[o.File] = o.Key
		}
	}
	out := f.authors.FindRequesters(ctx, st.Main, missing, func(s decide.Step, key schema.Key) authority.Actor {
		return f.decider.Permissions().Maker(st.Desired, s, authority.Scope{Tenant: key.Tenant, Project: key.Project}, f.today())
	})
	if out == nil {
		return known
	}
	maps.Copy(out, known)
	return out
}

// isNewUnit returns true if a decision creates a unit, rather than changes one.
func isNewUnit(prev *plan.Status) bool {
	return prev == nil || prev.Phase == plan.PhaseDeleting || prev.Phase == plan.PhaseDeleted
}

// changedUnits lists, sorted, the units that a decision changes, and those without
// a status. With last, only units that can have changed are compared.
func changedUnits(old, next *reconciler.State, memory plan.Memory, last *enforced) []schema.Key {
	candidates := map[schema.Key]bool{}
	if old == nil || last == nil {
		for k := range next.Effective.All() {
			candidates[k] = true
		}
		for k := range memory.All() {
			candidates[k] = true
		}
	} else {
		for k := range schema.Differing(old.Effective, next.Effective) {
			candidates[k] = true
		}
		for k := range plan.ChangedPlacement(old.Placement, next.Placement) {
			candidates[k] = true
		}
		for k := range plan.ChangedMemory(last.memory, memory) {
			candidates[k] = true
		}
		for _, k := range last.units { // their statuses may be lost again
			candidates[k] = true
		}
	}
	var keys []schema.Key
	for k := range candidates {
		if isChanged(old, next, memory.Get(k), k) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, schema.Key.Compare)
	return keys
}

// isChanged returns true if a decision changes a unit with this status.
func isChanged(old, next *reconciler.State, s *plan.Status, key schema.Key) bool {
	isGoing := s != nil && (s.Phase == plan.PhaseDeleting || s.Phase == plan.PhaseDeleted)
	if next.Unit(key) == nil {
		return s != nil && !isGoing
	}
	return old == nil || s == nil || isGoing || changes(old, next, key)
}

// effects are the effects of a decision. The fields have the order in which carryOut
// carries them out.
type effects struct {
	// Rollouts begin before the statuses that they count are recorded.
	begin  []heldOf
	reopen []string // commits whose ended rollout continues

	// Recorded as one: a reader, and each commit of berth/status, has all of them or
	// none. If a daemon stops after half of them, the next one would undo them.
	change     *change // makes the statuses of its units
	records    []audit.Record
	events     []plan.Event
	state      *reconciler.State
	pauseCause string // commit that pauses or resumes the estate; "": neither

	// Afterwards, as a unit must not be reconciled by the state before.
	wake    []schema.Key
	publish []string // commits whose rollout is published
}

// heldOf is a commit of main with its held documents.
type heldOf struct {
	commit string
	held   []schema.Held
}

// effects returns the effects of a change. Pure.
func (c *change) effects() effects {
	next := c.next
	e := effects{change: c, records: c.records, events: c.events, state: next, wake: c.units}
	isMerge := c.old == nil || c.old.Main != next.Main
	for _, m := range c.merged {
		e.begin = append(e.begin, heldOf{m.commit, unreadableIn(next.Held, m.paths)})
		e.publish = append(e.publish, m.commit)
	}
	e.publish = append(e.publish, next.Main)
	var wasHeld []schema.Held
	if c.old != nil {
		wasHeld = c.old.Held
	}
	for commit, held := range attributeHeld(c.merged, next.Main, newlyHeld(wasHeld, next.Held)) {
		e.begin = append(e.begin, heldOf{commit, held})
	}
	if !isMerge && c.old.InForce != next.InForce && c.origin.acknowledged == "" {
		e.reopen = slices.Compact(slices.Sorted(maps.Values(c.causes)))
	}
	if c.old != nil && c.old.Paused != next.Paused {
		e.pauseCause = next.Main
		if i := slices.IndexFunc(c.merged, func(m mergedCommit) bool { return m.touches(pauseFile) }); i >= 0 {
			e.pauseCause = c.merged[i].commit
		}
	}
	return e
}

// status returns the status of a changed unit. prev is nil for a new unit. Pure.
func (c *change) status(key schema.Key, prev *plan.Status) plan.Status {
	s := statusOfDecision(key, c.next, prev, c.causes[key], c.now)
	for i := range s.Operations {
		if o := &s.Operations[i]; o.RequestedBy == "" && !o.IsRequest {
			o.RequestedBy = c.origin.requesters[operationKey(key, o.Name)]
		}
	}
	want := c.next.Unit(key)
	if isNewUnit(prev) && want != nil {
		s.RequestedBy = c.origin.requesters[key]
	}
	if !changes(c.before, c.next, key) {
		return s // nothing to compare
	}
	stopped := wasStopped(c.before, prev, key)
	switch {
	case c.origin.approval != nil:
		s.Review = c.origin.approval.review(key, stopped)
	case c.old.Main == c.next.Main && c.origin.acknowledged != "" && want == nil:
		s.Review = nil // a user with the permission acknowledged the deletion of exactly these documents
	case c.old.Main != c.next.Main, c.old.InForce != c.next.InForce:
		s.Review = &plan.UnitReview{Stopped: stopped, Commits: c.commits(s.Revision, prev)}
	case prev != nil: // no commit changed it
		s.Review = prev.Review
	}
	return s
}

// commits returns the commits of main that came with a decision besides revision, newest first, and
// those since a unit that is not compared yet was applied. Pure.
func (c *change) commits(revision string, prev *plan.Status) []string {
	var all []string
	for _, m := range c.merged {
		all = append(all, m.commit)
	}
	if prev != nil && prev.Revision != "" {
		all = append(all, prev.Revision)
		if prev.Review != nil {
			all = append(all, prev.Review.Commits...)
		}
	}
	all = slices.DeleteFunc(all, func(commit string) bool { return commit == revision })
	return all[:min(len(all), maxAttributed)]
}

// carryOut carries out the effects of a decision.
func (f *enforcer) carryOut(e effects) {
	for _, one := range e.begin {
		f.pulls.RollOuts.Begin(one.commit, one.held)
	}
	for _, commit := range e.reopen {
		f.pulls.RollOuts.Released(commit, e.state.Held)
	}
	f.recordDecision(e)
	f.metrics.frozen.Set(0)
	f.inForce.setReady()
	for _, key := range e.wake {
		f.queues.addUnit(key)
	}
	for _, commit := range e.publish {
		f.pulls.Touched(commit)
	}
	f.pulls.BaseMoved()
	f.log.Info("decision in force", "main", reconciler.Short(e.state.Main), "in_force", reconciler.Short(e.state.InForce), "held",
		len(e.state.Held),
		"changed_units", len(e.wake), "correlation_id", reconciler.CorrelationID(e.state.Main))
}

// recordDecision records a decision together with its statuses, events and audit
// records.
func (f *enforcer) recordDecision(e effects) {
	f.status.Decision.Lock()
	defer f.status.Decision.Unlock()
	for _, key := range e.change.units {
		f.recorder.update(key, func(prev *plan.Status) (plan.Status, bool) { return e.change.status(key, prev), true })
	}
	f.status.Record(append(e.records, fateRecords(e.change.before, e.state, f.now())...)...)
	f.status.Announce(e.events...)
	f.attachments.record(e.state)
	f.queueMaps.record(e.state, e.change.merged, f.today())
	f.status.Revise(func(rev *reconciler.Revision) {
		rev.Commit, rev.InForce, rev.Frozen = e.state.Main, e.state.InForce, ""
		rev.Held, rev.HeldMore = e.state.Held, 0
		if more := len(e.state.Held) - maxHeld; more > 0 {
			rev.Held, rev.HeldMore = slices.Clone(e.state.Held[:maxHeld]), more
		}
	})
	f.inForce.set(e.state)
	f.inForce.setFrozen("")
	if e.pauseCause != "" {
		f.recordPause(e.state, e.pauseCause)
	}
}

// approval is the command that a decision carries out, with the plans that it
// approved.
type approval struct {
	commit string // of main, that the command names
	pull   int    // that the commit merged; 0: none
	by     string // login
	plans  map[schema.Key]string
}

// review returns the review of a unit that the command changes.
func (a *approval) review(key schema.Key, stopped bool) *plan.UnitReview {
	return &plan.UnitReview{Pull: a.pull, Meant: a.plans[key], By: a.by, Stopped: stopped}
}
