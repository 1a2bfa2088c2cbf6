package loop

import (
	"context"
	"maps"
	"slices"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/reconciler/provenance"
	"berth/schema"
	"berth/schema/authority"
)

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
	hookRules   hookRules
	last        *enforced // nil: this process has put nothing in force
}

// putInForce places members, finds the changed units and their commits, and carries
// out the effects.
func (f *enforcer) putInForce(ctx context.Context, c decidedChange) error {
	c.placedAt = f.status.Version()
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
	f.loadRules(ctx, c.next)
	f.carryOut(c.effects())
	f.last = &enforced{memory, c.units}
	return nil
}

// causes returns the commit of main that changed each unit.
func (f *enforcer) causes(ctx context.Context, c *decidedChange, memory plan.Memory) (map[schema.Key]string, error) {
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

// changedUnits lists, sorted, the units that a decision changes, and those without
// a status. With last, only units that can have changed are compared.
func changedUnits(old, next *reconciler.State, memory plan.Memory, last *enforced) []schema.Key {
	var keys []schema.Key
	for k := range unitsToCompare(old, next, memory, last) {
		if isChanged(old, next, memory.Get(k), k) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, schema.Key.Compare)
	return keys
}

// unitsToCompare returns the units that a decision can have changed: without old or last, all of them.
func unitsToCompare(old, next *reconciler.State, memory plan.Memory, last *enforced) map[schema.Key]bool {
	keys := map[schema.Key]bool{}
	if old == nil || last == nil {
		for k := range next.Effective.All() {
			keys[k] = true
		}
		for k := range memory.All() {
			keys[k] = true
		}
		return keys
	}
	for k := range schema.Differing(old.Effective, next.Effective) {
		keys[k] = true
	}
	for k := range plan.ChangedPlacement(old.Placement, next.Placement) {
		keys[k] = true
	}
	for k := range plan.ChangedMemory(last.memory, memory) {
		keys[k] = true
	}
	for _, k := range last.units { // their statuses may be lost again
		keys[k] = true
	}
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
	if f.status.Version() != e.change.placedAt { // next may miss a node that became free or ready
		f.queues.add(reconciler.Item{Task: reconciler.TaskPlace})
	}
	f.status.SetRules(e.state.Desired.HookRules())
	for _, key := range e.change.units {
		f.recorder.update(key, func(prev *plan.Status) (plan.Status, bool) { return e.change.status(key, prev), true })
	}
	f.status.Record(append(e.records, fateRecords(e.change.before, e.state, f.now())...)...)
	f.status.Announce(e.events...)
	f.attachments.record(e.state)
	f.queueMaps.record(e.state, e.change.merged, f.today())
	f.hookRules.record(e.state, e.change.origin)
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

// recordPause records the condition Suspended of every instance, as a commit paused
// or resumed the estate. It is called under the decision lock, so that the statuses
// and events of one pause are written together.
func (f *enforcer) recordPause(st *reconciler.State, commit string) {
	for key := range f.status.Units().All() {
		f.update(key, func(prev *plan.Status) (next plan.Status, ok bool) {
			if prev == nil {
				return next, false
			}
			return withCondition(*prev, suspendedCondition(st, prev, st.Unit(key), commit)), true
		})
	}
}
