package loop

import (
	"maps"
	"slices"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
)

// pauseFile pauses the estate while it is in force.
const pauseFile = "platform/pause.yaml"

// decidedChange is a decision to put in force, with the known commits and users behind it.
type decidedChange struct {
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

	placedAt uint64 // version of the statuses from which next was placed
}

// origin names the commits and users of a decision.
type origin struct {
	first        string                // first commit that was decided; "": unknown
	changed      map[schema.Key]string // units that later commits changed, by the last of them
	requesters   map[schema.Key]string // of instances and operations
	acknowledged string                // commit whose deletion was acknowledged later; "": none
	approval     *approval             // command that the decision carries out; nil: none
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

// effects are the effects of a decision. The fields have the order in which carryOut
// carries them out.
type effects struct {
	// Rollouts begin before the statuses that they count are recorded.
	begin  []heldOf
	reopen []string // commits whose ended rollout continues

	// Recorded as one: a reader, and each commit of berth/status, has all of them or
	// none. If a daemon stops after half of them, the next one would undo them.
	change     *decidedChange // makes the statuses of its units
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
func (c *decidedChange) effects() effects {
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
func (c *decidedChange) status(key schema.Key, prev *plan.Status) plan.Status {
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
func (c *decidedChange) commits(revision string, prev *plan.Status) []string {
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
