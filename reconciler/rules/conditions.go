package rules

import (
	"encoding/json"
	"slices"
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

// Changes returns an event for each condition that a rule names and that has another status than the log has last. Before the first
// one, only a status that a rule names is a change.
func (h *History) Changes(all []*schema.HookRule, of Conditions, now time.Time) (out []plan.Event) {
	about := Resource{Kind: of.Key.Kind, Tenant: of.Key.Tenant, ProjectID: of.Key.ProjectID(), App: of.App, Name: of.Key.ResourceName()}
	seen := map[string]bool{} // types that have their event
	for _, r := range all {
		c := r.Spec.When.Condition
		if c == nil || seen[c.Type] || !slices.Contains(c.Kinds(), about.Kind) || !r.Covers(about.App, about.Tenant, about.ProjectID) {
			continue
		}
		var is plan.Condition
		if i := slices.IndexFunc(of.List, func(is plan.Condition) bool { return string(is.Type) == c.Type }); i >= 0 {
			is = of.List[i]
		}
		last, isKnown := h.last[lastKey{about, changeOf(c.Type)}]
		_, was, _, _ := h.read(last.event)
		if isKnown && was.Status == string(is.Status) || !isKnown && c.Status != string(is.Status) {
			continue
		}
		seen[c.Type] = true
		out = append(out, changed(about, c.Type, is, of, now))
	}
	return out
}

// changed returns the event of a condition that has another status than before.
func changed(about Resource, condition string, is plan.Condition, of Conditions, now time.Time) plan.Event {
	data, err := json.Marshal(event.Condition{
		OrgID: about.Tenant, ProjectID: about.ProjectID, AppSlug: about.App, ResourceKind: string(about.Kind), ResourceName: about.Name,
		Condition: condition, Status: string(is.Status), Reason: string(is.Reason), Revision: of.Revision,
	})
	if err != nil {
		panic(err) // strings only
	}
	return plan.Event{EventID: event.ID(event.ConditionChanged, of.Key, condition, int(now.UnixMilli())),
		EventType: string(event.ConditionChanged), OccurredAt: now.UTC(), Version: event.Version, CorrelationID: of.CorrelationID, Payload: data}
}
