package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

const (
	// holdAfter is the time for which a unit is not ready before the rule of a schedule with holds holds it.
	holdAfter = 10 * time.Second
	// holdCooldown is the shortest time between two firings of that rule on a unit.
	holdCooldown = time.Minute
	holdRule     = "hold"
)

func holdFiles() map[string]string {
	return map[string]string{"platform/hooks/" + holdRule + ".yaml": fmt.Sprintf(`apiVersion: berth/v1
kind: HookRule
metadata: {name: %s}
spec:
  when: {condition: {type: Ready, status: "False", for_seconds: %d}}
  then: [{action: {operation: hold}}]
  cooldown_seconds: %d
`, holdRule, holdAfter/time.Second, holdCooldown/time.Second)}
}

// holdOf returns the id of the operation that holds a unit, as its status on berth/status has it; "": none does. The caller has the lock.
func (s *simulation) holdOf(unit schema.Key) string {
	st := last(s.remote.statuses).Units.Get(unit)
	if st == nil {
		return ""
	}
	o, isHeld := plan.Holding(st.Operations)
	if !isHeld {
		return ""
	}
	return o.ActionID()
}

// releases reports whether main has a release of a unit that is not over. The caller has the lock.
func (s *simulation) releases(unit schema.Key) bool {
	return s.want.verb == plan.Release && unitKey(s.want.unit) == unit && !isOver(last(s.remote.statuses).Things[s.want.operation.key()])
}

// ask has the next operation in main take the place of the one before: a hold whose document goes may end. The caller has the lock.
func (s *simulation) ask(o operation) {
	if s.want.verb == plan.Hold {
		s.mayEnd[s.want.operation.key().Name] = true
	}
	s.want.operation = o
	if o.verb == plan.Release {
		s.mayEnd[s.holdOf(unitKey(o.unit))] = true
	}
}

// hold sometimes has people hold a unit that main declares, or release one that is held. The caller has the lock.
func (s *simulation) hold(r *rand.Rand) {
	n, unit := r.IntN(24), r.IntN(instances)
	if n > 4 {
		return
	}
	verb := plan.Release
	if n == 0 {
		verb = plan.Hold
	}
	s.faults[string(verb)]++
	for i := range instances {
		if verb == plan.Release && s.holdOf(unitKey(unit)) == "" {
			unit = i
		}
	}
	if s.want.wishes[unit].exists {
		s.ask(operation{number: s.want.number + 1, unit: unit, verb: verb})
		s.tracef("merge: %s of unit-%d: %s", verb, unit, s.remote.merge(s.want.tree()))
	}
}

// releaseAll has people put back each unit that is held and release it, one after the other. The caller has the lock.
func (s *simulation) releaseAll() {
	for i := range instances {
		switch key := unitKey(i); {
		case s.holdOf(key) == "" || s.releases(key):
		case !s.want.wishes[i].exists:
			s.want.wishes[i] = wish{exists: true}
			s.tracef("merge: unit-%d is put back: %s", i, s.remote.merge(s.want.tree()))
			return
		default:
			s.ask(operation{number: s.want.number + 1, unit: i, verb: plan.Release})
			s.tracef("merge: release of unit-%d: %s", i, s.remote.merge(s.want.tree()))
			return
		}
	}
}

// knownHold returns the hold of a unit that a daemon has read from berth/status, or has written there; "": none. The caller has the lock.
func (s *simulation) knownHold(d *daemon, unit schema.Key) string {
	if len(s.remote.statuses) == 0 || d.epoch < last(s.remote.statuses).Revision.Epoch {
		return ""
	}
	return s.holdOf(unit)
}

// checkHold: a unit that was observed while it was held has no effect until its release (I15).
func (s *simulation) checkHold(e effect) {
	if len(s.remote.statuses) == 0 {
		return
	}
	if id := s.holdOf(e.unit); id != "" && s.checker.held[e.unit] == id && !s.mayEnd[id] {
		s.violate("I15", "%s of %s on %s with epoch %d, although %s holds it", e.action.Verb, e.unit, e.action.Node, e.stamp.Epoch, id)
	}
}

// checkEndsOfHolds: a hold ends by a release, by the end of its document, or with its unit (I15).
func (s *simulation) checkEndsOfHolds(n int) {
	for i := range instances {
		key := unitKey(i)
		id, was := s.holdOf(key), s.checker.holds[key]
		st := s.remote.statuses[n].Units.Get(key)
		if was != "" && was != id && !s.mayEnd[was] && st != nil && st.Phase != plan.PhaseDeleted {
			s.violate("I15", "the hold %s of %s ended without a release", was, key)
		}
		if id != was && s.releases(key) {
			s.mayEnd[id] = true
		}
		if s.checker.holds[key] = ""; st != nil {
			if o, _ := plan.Holding(st.Operations); o.Phase == plan.OperationRunning { // else another one may run instead
				s.checker.holds[key] = id
			}
		}
	}
}

// lasting is a condition that a rule waits for.
type lasting struct {
	change event.Condition // last
	id     string
	at     time.Time
	fired  bool      // on this change
	last   time.Time // time of the last firing
}

// due returns when the wait ends, if the condition lasts.
func (l *lasting) due() (at time.Time, ok bool) {
	at = l.at.Add(holdAfter)
	if !l.last.IsZero() && at.Sub(l.last).Abs() < holdCooldown {
		at = l.last.Add(holdCooldown)
	}
	return at, l.change.Status == "False"
}

// checkConditions: by the event log alone, the rule on a condition fires once for each change that lasts (I13).
func (s *simulation) checkConditions(e plan.Event) {
	var p struct {
		event.Rule
		Condition string `json:"condition"`
		Status    string `json:"status"`
	}
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		s.violate("I13", "event %s: %v", e.EventID, err)
		return
	}
	l := s.checker.lasting[p.ResourceName]
	if l == nil {
		l = &lasting{}
		s.checker.lasting[p.ResourceName] = l
	}
	typ := event.Type(e.EventType)
	if typ == event.RuleFired && p.Rule.Rule == holdRule {
		switch due, ok := l.due(); {
		case p.TriggerID != l.id || l.fired:
			s.violate("I13", "rule %s fired on change %s of %s; the last change is %s, fired before: %t", holdRule, p.TriggerID, p.ResourceName,
				l.id, l.fired)
		case !ok || !e.OccurredAt.Equal(due):
			s.violate("I13", "rule %s fired on %s at %s; due: %t at %s", holdRule, p.ResourceName, e.OccurredAt, ok, due)
		}
		l.fired, l.last = true, e.OccurredAt
		return
	}
	isChange := typ == event.ConditionChanged && p.Condition == string(plan.ConditionReady)
	isEnd := typ == event.InstanceDeleted
	if !isChange && !isEnd {
		return
	}
	if due, ok := l.due(); ok && !l.fired && !e.OccurredAt.Before(due) {
		s.violate("I13", "rule %s did not fire on change %s of %s, which lasted until %s", holdRule, l.id, p.ResourceName, e.OccurredAt)
	}
	l.change, l.id, l.at, l.fired = event.Condition{Status: p.Status}, e.EventID, e.OccurredAt, false
	if isEnd {
		l.change.Status = ""
	}
}

// effectMayFail reports whether the effect of a rule may fail: a hold fails if main does not have the unit.
func effectMayFail(p event.Rule) bool {
	return p.Effect == string(plan.Hold) && strings.Contains(p.FailureReason, "unit in force")
}

// forgetHolds plants the fault that a daemon does not read the holds of units.
func (s *simulation) forgetHolds(units plan.Memory) plan.Memory {
	for _, st := range units.All() {
		if _, isHeld := plan.Holding(st.Operations); isHeld {
			next := *st
			next.Operations = slices.DeleteFunc(slices.Clone(st.Operations), func(o plan.Operation) bool { return o.Verb() == plan.Hold })
			units = units.With(&next)
		}
	}
	return units
}
