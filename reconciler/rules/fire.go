package rules

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

// Record adds events to the history, and returns them with each followed by the firings on it, which are added, too. No rule fires
// on the event of a rule, so the number of firings is bounded by that of events and rules.
func (h *History) Record(rules []*schema.HookRule, events ...plan.Event) []plan.Event {
	var out []plan.Event
	for _, e := range events {
		out = append(out, h.overdue(rules, e)...)
		h.Add(e)
		out = append(out, e)
		for _, r := range rules {
			if firing, ok := h.fire(r, e); ok {
				h.Add(firing)
				out = append(out, firing)
			}
		}
	}
	return out
}

// overdue adds and returns the firings on waits of the resource of an event that ended before: the event itself may be the one that
// comes too late.
func (h *History) overdue(all []*schema.HookRule, e plan.Event) (out []plan.Event) {
	_, _, about, ok := h.read(e)
	for _, r := range all {
		if w, waits := waitOf(r); ok && waits {
			if firing, ok := h.ended(r, w, lastKey{about, w.begin}, e.OccurredAt); ok {
				h.Add(firing)
				out = append(out, firing)
			}
		}
	}
	return out
}

// wait is what a rule waits for: a time after the last event of a type, without a later event of type missing.
type wait struct {
	begin, missing event.Type
	status         string // of begin; "": any
	seconds        int
}

// waitOf returns the wait of a rule on an absence or a condition, or false.
func waitOf(r *schema.HookRule) (w wait, ok bool) {
	switch a, c := r.Spec.When.Absence, r.Spec.When.Condition; {
	case a != nil:
		return wait{begin: event.Type(a.Begin()), missing: event.Type(a.Event), seconds: a.WithinSeconds}, true
	case c != nil: // each later change begins another wait
		return wait{begin: changeOf(c.Type), missing: changeOf(c.Type), status: c.Status, seconds: c.ForSeconds}, true
	}
	return w, false
}

// Due adds and returns the firings on waits that have ended at a time.
func (h *History) Due(all []*schema.HookRule, now time.Time) (out []plan.Event) {
	for _, r := range all {
		w, ok := waitOf(r)
		if !ok {
			continue
		}
		var due []plan.Event
		for key := range h.last {
			if key.typ != w.begin {
				continue
			}
			if firing, ok := h.ended(r, w, key, now); ok {
				due = append(due, firing)
			}
		}
		slices.SortFunc(due, func(a, b plan.Event) int {
			return cmp.Or(a.OccurredAt.Compare(b.OccurredAt), strings.Compare(a.EventID, b.EventID))
		})
		for _, firing := range due {
			h.Add(firing)
		}
		out = append(out, due...)
	}
	return out
}

// ended returns the firing of a rule on a wait that began with the last event of a key. It has the time when the wait ended, or the
// cooldown after the firing before, whenever that is found out. A rule fires once for each wait.
func (h *History) ended(r *schema.HookRule, w wait, begin lastKey, now time.Time) (plan.Event, bool) {
	began := h.last[begin]
	at := began.event.OccurredAt.Add(time.Duration(w.seconds) * time.Second)
	if began.event.EventID == "" || now.Before(at) || !r.Covers(begin.resource.App, begin.resource.Tenant, begin.resource.ProjectID) {
		return plan.Event{}, false
	}
	last := h.fired[firedKey{r.ID(), begin.resource}]
	came := h.last[lastKey{begin.resource, w.missing}]
	if came.number > began.number || w.status != "" && began.status != w.status || last.trigger == began.event.EventID {
		return plan.Event{}, false
	}
	if cooldown := time.Duration(r.Spec.CooldownSeconds) * time.Second; !last.at.IsZero() && at.Sub(last.at).Abs() < cooldown {
		at = last.at.Add(cooldown) // the clock of another daemon may be behind
	}
	if now.Before(at) {
		return plan.Event{}, false
	}
	_, s, about, _ := h.read(began.event)
	firing := firingOf(r, began.event, s, about)
	firing.OccurredAt = at
	return firing, true
}

// fire returns the firing of a rule on the event that was added last.
func (h *History) fire(r *schema.HookRule, e plan.Event) (plan.Event, bool) {
	d, s, about, ok := h.read(e)
	if !ok || d.Type.IsOfRule() || !r.Covers(about.App, about.Tenant, about.ProjectID) {
		return plan.Event{}, false
	}
	last, hasFired := h.fired[firedKey{r.ID(), about}]
	if !h.triggers(r, d, s, about, e.OccurredAt, last.at) {
		return plan.Event{}, false
	}
	cooldown := time.Duration(r.Spec.CooldownSeconds) * time.Second
	if hasFired && e.OccurredAt.Sub(last.at).Abs() < cooldown { // the clock of another daemon may be behind
		return plan.Event{}, false
	}
	return firingOf(r, e, s, about), true
}

// triggers reports whether a rule fires on an event. Failures that were counted for a firing count for no other one.
func (h *History) triggers(r *schema.HookRule, d event.Definition, s subject, about Resource, at, last time.Time) bool {
	switch w := r.Spec.When; {
	case w.Event != "":
		return string(d.Type) == w.Event
	case w.Threshold != nil:
		return d.Type == event.NodeThresholdExceeded && s.RuleID == r.ID()
	case w.RepeatedFailure != nil && d.IsFailure():
		from := at.Add(-time.Duration(w.RepeatedFailure.WithinSeconds) * time.Second)
		n := 0
		for _, t := range h.failures[about] {
			if t.After(from) && t.After(last) {
				n++
			}
		}
		return n >= w.RepeatedFailure.Count
	}
	return false
}

// firingOf returns the event of a firing. Its id derives from the rule and the event that it fired on.
func firingOf(r *schema.HookRule, e plan.Event, s subject, about Resource) plan.Event {
	p := event.Rule{
		OrgID: about.Tenant, ProjectID: about.ProjectID, AppSlug: about.App, ResourceKind: string(about.Kind), ResourceName: about.Name,
		Rule: r.Key.Name, RuleID: r.ID(), FiringID: event.ID(event.RuleFired, r.Key, r.ID()+" "+e.EventID, 0),
		TriggerID: e.EventID, TriggerType: e.EventType, Effect: r.Effects(), Status: "fired", Revision: s.Revision,
	}
	if a := r.Alert(); a != nil {
		p.Severity, p.Summary = a.Severity, a.Summary
	}
	return envelope(event.RuleFired, p.FiringID, p, e.CorrelationID, e.OccurredAt)
}

// envelope returns an event about a rule.
func envelope(t event.Type, id string, p event.Rule, correlationID string, at time.Time) plan.Event {
	data, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings only
	}
	return plan.Event{EventID: id, EventType: string(t), OccurredAt: at.UTC(), Version: event.Version, CorrelationID: correlationID,
		Payload: data}
}

// Firing returns the payload of the event of a firing.
func Firing(e plan.Event) (p event.Rule, ok bool) {
	ok = e.EventType == string(event.RuleFired) && json.Unmarshal(e.Payload, &p) == nil
	return p, ok
}

// outcomesOf returns the ids of the events that will be the outcomes of a firing. Its alert has none.
func outcomesOf(firing plan.Event, s subject) (ids []string) {
	if s.Effect == "" {
		return nil
	}
	for i := range strings.Count(s.Effect, ", ") + 1 {
		ids = append(ids, outcomeID(s.Rule, firing, i))
	}
	return ids
}

func outcomeID(rule string, firing plan.Event, number int) string {
	return event.ID(event.RuleDone, schema.Key{Kind: schema.KindHookRule, Name: rule}, firing.EventID, number)
}

// Outcome returns the event that says what came of an effect of a firing, the one with that number among those besides alerts.
// reason says why it was not done; "": it was.
func Outcome(firing plan.Event, number int, effect, reason string, at time.Time) plan.Event {
	p, _ := Firing(firing)
	t := event.RuleDone
	p.Effect, p.Status, p.FailureReason = effect, "done", reason
	if reason != "" {
		t, p.Status = event.RuleFailed, "failed"
	}
	return envelope(t, outcomeID(p.Rule, firing, number), p, firing.CorrelationID, at)
}

// addOutcome closes a firing whose effects all have an outcome.
func (h *History) addOutcome(e plan.Event, id string) {
	firing, ok := h.open[id]
	if !ok {
		return
	}
	if h.outcomes[e.EventID]++; h.outcomes[e.EventID] > 1 {
		return // the log has it already
	}
	if slices.ContainsFunc(firing.outcomes, func(id string) bool { return h.outcomes[id] == 0 }) {
		return
	}
	delete(h.open, id)
	for _, id := range firing.outcomes {
		delete(h.outcomes, id)
	}
}

// Pending is a firing with an effect that has no outcome yet.
type Pending struct {
	Firing plan.Event
	Number int // of the effect, among those besides alerts
}

// Pending returns the effects without an outcome, in the order of the firings.
func (h *History) Pending() []Pending {
	var out []Pending
	for _, firing := range h.open {
		for i, id := range firing.outcomes {
			if h.outcomes[id] == 0 {
				out = append(out, Pending{firing.event, i})
			}
		}
	}
	slices.SortFunc(out, func(a, b Pending) int {
		return cmp.Or(a.Firing.OccurredAt.Compare(b.Firing.OccurredAt), strings.Compare(a.Firing.EventID, b.Firing.EventID),
			a.Number-b.Number)
	})
	return out
}

// Count returns how often a rule would have fired on events, given in the order of the log, and on which resources.
func Count(r *schema.HookRule, events []plan.Event) (n int, on []Resource) {
	h, rule := NewHistory(r), []*schema.HookRule{r}
	var all []plan.Event
	for _, e := range events {
		if !event.Type(e.EventType).IsOfRule() { // those are of the rules in force then
			all = append(all, h.Record(rule, e)...)
		}
	}
	for _, f := range append(all, h.Due(rule, h.newest)...) {
		if _, isFiring := Firing(f); !isFiring {
			continue
		}
		n++
		if _, _, about, ok := h.read(f); ok && !slices.Contains(on, about) {
			on = append(on, about)
		}
	}
	return n, on
}
