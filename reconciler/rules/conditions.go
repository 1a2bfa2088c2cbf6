package rules

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

// changeOf is the key by which a history has the last change of a condition.
func changeOf(condition string) event.Type { return event.ConditionChanged + event.Type(" "+condition) }

// Conditions are those of a unit or a node, as its status has them.
type Conditions struct {
	Key                     schema.Key
	App                     string
	List                    []plan.Condition
	Revision, CorrelationID string
}

// WatchesConditions reports whether one of the rules fires on a condition.
func WatchesConditions(all []*schema.HookRule) bool {
	return slices.ContainsFunc(all, func(r *schema.HookRule) bool { return r.Spec.When.Condition != nil })
}

// about returns the resource that has the conditions.
func (c *Conditions) about() Resource {
	return Resource{Kind: c.Key.Kind, Tenant: c.Key.Tenant, ProjectID: c.Key.ProjectID(), App: c.App, Name: c.Key.ResourceName()}
}

// condition returns the condition of a type. It counts as absent while the unit is paused, held or stopped: that is on request.
func (c *Conditions) condition(typ string) plan.Condition {
	i := slices.IndexFunc(c.List, func(is plan.Condition) bool { return string(is.Type) == typ })
	if i < 0 {
		return plan.Condition{}
	}
	switch c.List[i].Reason {
	case plan.ReasonPaused, plan.ReasonOfPhase(plan.PhaseStopped):
		return plan.Condition{}
	}
	return c.List[i]
}

// Changes returns an event for each condition that a rule names and that has another status than the log has last, and for each in
// the log that no rule names any more, or whose resource is not in of: its status is empty from then on, so that no wait goes on
// unseen. Before the first one, only a status that a rule names is a change.
func (h *History) Changes(all []*schema.HookRule, of []Conditions, now time.Time) (out []plan.Event) {
	types := map[string][]*schema.HookRule{}
	for _, r := range all {
		if c := r.Spec.When.Condition; c != nil {
			types[c.Type] = append(types[c.Type], r)
		}
	}
	watched := map[lastKey]bool{}
	for i := range of {
		c := &of[i]
		about := c.about()
		for typ, by := range types {
			key := lastKey{about, changeOf(typ)}
			is, last := c.condition(typ), h.last[key]
			isNamed := false
			for _, r := range by {
				if slices.Contains(r.Spec.When.Condition.Kinds(), about.Kind) && r.Covers(about.App, about.Tenant, about.ProjectID) {
					watched[key] = true
					isNamed = isNamed || r.Spec.When.Condition.Status == string(is.Status)
				}
			}
			if watched[key] && last.status != string(is.Status) && (last.status != "" || isNamed) {
				out = append(out, changeEvent(about, typ, is, c.Revision, c.CorrelationID, last.event.EventID, now))
			}
		}
	}
	for key, last := range h.last {
		if typ, ok := strings.CutPrefix(string(key.typ), string(changeOf(""))); ok && !watched[key] && last.status != "" {
			out = append(out, changeEvent(key.resource, typ, plan.Condition{}, last.revision, last.event.CorrelationID, last.event.EventID, now))
		}
	}
	slices.SortFunc(out, func(a, b plan.Event) int { return strings.Compare(a.EventID, b.EventID) })
	return out
}

// changeEvent returns the event of a condition that has another status than after the event before. Its id derives from that one, too: a
// clock that was set back gives one time to two changes.
func changeEvent(about Resource, condition string, is plan.Condition, revision, correlationID, before string, now time.Time) plan.Event {
	data, err := json.Marshal(event.Condition{
		OrgID: about.Tenant, ProjectID: about.ProjectID, AppSlug: about.App, ResourceKind: string(about.Kind), ResourceName: about.Name,
		Condition: condition, Status: string(is.Status), Reason: string(is.Reason), Revision: revision,
	})
	if err != nil {
		panic(err) // strings only
	}
	key := schema.Key{Kind: about.Kind, Tenant: about.Tenant, Name: about.ProjectID + "/" + about.Name}
	return plan.Event{EventID: event.ID(event.ConditionChanged, key, condition+" "+before, int(now.UnixMilli())),
		EventType: string(event.ConditionChanged), OccurredAt: now.UTC(), Version: event.Version, CorrelationID: correlationID, Payload: data}
}
