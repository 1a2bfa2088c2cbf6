package rules

import (
	"encoding/json"
	"slices"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

const (
	// Window is how far back a rule can look: the longest cooldown and the longest time of repeated failures.
	Window = 7 * 24 * time.Hour
	// maxFailures bounds the failures kept of one resource: the largest count of a rule.
	maxFailures = 1000
	// pruneEvery is the number of events after which events older than Window are forgotten.
	pruneEvery = 4096
)

// Resource is the subject of an event.
type Resource struct {
	Kind                         schema.Kind
	Tenant, ProjectID, App, Name string
}

// History is what rules need to know of the events before. It does not depend on the rules, so a new rule counts the failures that
// were before it. Make it with NewHistory. It is not safe for concurrent use.
type History struct {
	definitions map[event.Type]event.Definition
	failures    map[Resource][]time.Time
	fired       map[firedKey]firing    // last firing of a rule about a resource
	exceeded    map[Crossing]time.Time // thresholds that are exceeded
	open        map[string]openFiring  // by id, until each effect has an outcome
	outcomes    map[string]int         // of the effects of open firings
	kept        map[event.Type]bool    // types whose last event is kept, for the absence of others
	last        map[lastKey]lastEvent
	newest      time.Time
	added       int
}

// openFiring is a firing with the ids of the outcomes of its effects.
type openFiring struct {
	event    plan.Event
	outcomes []string
}

// lastKey is a resource and a type of event.
type lastKey struct {
	resource Resource
	typ      event.Type
}

// lastEvent is the last event of a type about a resource.
type lastEvent struct {
	event    plan.Event
	number   int    // in the order of the log
	status   string // of the change of a condition
	revision string
}

type firedKey struct {
	rule     string
	resource Resource
}

// firing is when a rule fired, and on which event.
type firing struct {
	at      time.Time
	trigger string
}

// Crossing is a rule's threshold and a node.
type Crossing struct{ Rule, Node string }

// NewHistory returns the history of an empty log, for rules whose absences are among those of all.
func NewHistory(all ...*schema.HookRule) *History {
	h := &History{kept: map[event.Type]bool{}, last: map[lastKey]lastEvent{},
		definitions: map[event.Type]event.Definition{}, failures: map[Resource][]time.Time{}, fired: map[firedKey]firing{},
		exceeded: map[Crossing]time.Time{}, open: map[string]openFiring{}, outcomes: map[string]int{}}
	for _, d := range event.Definitions() {
		h.definitions[d.Type] = d
	}
	for _, r := range all {
		if a := r.Spec.When.Absence; a != nil {
			h.kept[event.Type(a.Event)], h.kept[event.Type(a.Begin())] = true, true
		}
	}
	return h
}

// Keeps reports whether the history has what rules need to know. If not, it has to be read again for them.
func (h *History) Keeps(all []*schema.HookRule) bool {
	for t := range NewHistory(all...).kept {
		if !h.kept[t] {
			return false
		}
	}
	return true
}

// subject has the fields of a payload that name its resource, and what an event of a rule is about.
type subject struct {
	OrgID        string `json:"org_id"`
	ProjectID    string `json:"project_id"`
	AppSlug      string `json:"app_slug"`
	ResourceName string `json:"resource_name"`
	ResourceKind string `json:"resource_kind"` // of events about resources of several kinds
	RuleID       string `json:"rule_id"`
	Revision     string `json:"revision"`
	Rule         string `json:"rule"`
	Effect       string `json:"effect"`
	FiringID     string `json:"firing_id"`
	TriggerID    string `json:"trigger_id"`
	Condition    string `json:"condition"`
	Status       string `json:"status"`
}

// read returns the definition and the subject of an event; false: this version of Berth does not know its type or its payload.
func (h *History) read(e plan.Event) (d event.Definition, s subject, about Resource, ok bool) {
	d, ok = h.definitions[event.Type(e.EventType)]
	if !ok || json.Unmarshal(e.Payload, &s) != nil {
		return d, s, about, false
	}
	about = Resource{Kind: d.Kind, Tenant: s.OrgID, ProjectID: s.ProjectID, App: s.AppSlug, Name: s.ResourceName}
	if s.ResourceKind != "" {
		about.Kind = schema.Kind(s.ResourceKind)
	}
	if about.Name == "" { // such as an entitlement
		about.Name = s.ProjectID + "/" + s.AppSlug
	}
	return d, s, about, true
}

// Counts reports whether Add does anything with an event.
func (h *History) Counts(e plan.Event) bool {
	d, ok := h.definitions[event.Type(e.EventType)]
	isThreshold := d.Type == event.NodeThresholdExceeded || d.Type == event.NodeThresholdEnded
	return ok && (d.Type == event.ConditionChanged || d.IsFailure() || h.kept[d.Type] || d.IsEnd() || d.Type.IsOfRule() || isThreshold)
}

// Add adds an event of the log. Events are added in the order of the log.
func (h *History) Add(e plan.Event) {
	if !h.Counts(e) {
		return
	}
	d, s, about, ok := h.read(e)
	if !ok {
		return
	}
	at := e.OccurredAt
	switch {
	case d.Type == event.RuleFired:
		h.fired[firedKey{s.RuleID, about}] = firing{at, s.TriggerID}
		if ids := outcomesOf(e, s); len(ids) > 0 {
			h.open[e.EventID] = openFiring{e, ids}
		}
	case d.Type == event.RuleDone, d.Type == event.RuleFailed:
		h.addOutcome(e, s.FiringID)
	case d.Type == event.NodeThresholdExceeded:
		h.exceeded[Crossing{s.RuleID, s.ResourceName}] = at
	case d.Type == event.NodeThresholdEnded:
		delete(h.exceeded, Crossing{s.RuleID, s.ResourceName})
	case d.Type == event.ConditionChanged:
		d.Type = changeOf(s.Condition)
		h.kept[d.Type] = true
	case d.IsFailure():
		all := append(h.failures[about], at)
		h.failures[about] = all[max(0, len(all)-maxFailures):]
	}
	if h.kept[d.Type] {
		h.last[lastKey{about, d.Type}] = lastEvent{e, h.added, s.Status, s.Revision}
	}
	if d.IsEnd() { // nothing more is expected of it
		for t := range h.kept {
			delete(h.last, lastKey{about, t})
		}
	}
	if at.After(h.newest) {
		h.newest = at
	}
	if h.added++; h.added%pruneEvery == 0 {
		h.prune()
	}
}

// prune forgets what is older than Window. An exceeded threshold and an open firing stay: they end with an event.
func (h *History) prune() {
	from := h.newest.Add(-Window)
	for about, all := range h.failures {
		if all = slices.DeleteFunc(all, from.After); len(all) == 0 {
			delete(h.failures, about)
		} else {
			h.failures[about] = all
		}
	}
	for key, l := range h.last {
		if l.event.OccurredAt.Before(from) {
			delete(h.last, key)
		}
	}
	for key, f := range h.fired {
		if f.at.Before(from) {
			delete(h.fired, key)
		}
	}
}
