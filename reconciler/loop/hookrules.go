package loop

import (
	"encoding/json"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/schema"
)

// hookRuleInForce is the phase of the status of a rule.
const hookRuleInForce = "in_force"

// hookRules records who brought each rule in force: its actions need that user's permissions when it fires (requirement E8).
// Only the goroutine of the estate's task uses it.
type hookRules struct{ *recorder }

// hookRuleDetail is what the status of a rule says beside its phase.
type hookRuleDetail struct {
	Declared    string `json:"declared"`               // blob of the document
	RequestedBy string `json:"requested_by,omitempty"` // who brought this version of it; "": unknown
}

// record records the rules in force, and removes the statuses of the others. The user of a version that an earlier decision brought
// stays.
func (h hookRules) record(st *reconciler.State, o origin) {
	stays := map[schema.Key]bool{}
	for _, r := range st.Desired.HookRules() {
		stays[r.Key] = true
		prev := h.status.Resource(r.Key)
		if detailOf(prev).Declared == r.Blob {
			continue
		}
		user := o.requesters[r.Key]
		if o.approval != nil {
			user = o.approval.by
		}
		data, err := json.Marshal(hookRuleDetail{r.Blob, user})
		if err == nil {
			data, err = schema.CanonicalJSON(data)
		}
		if err != nil {
			panic(err) // strings only
		}
		s := plan.ThingStatus{APIVersion: schema.APIVersion, Kind: string(r.Key.Kind) + "Status", Key: r.Key, UID: r.UID,
			Phase: hookRuleInForce, Detail: data}
		s.Revision, s.CorrelationID = st.Main, reconciler.CorrelationID(st.Main)
		l := &conditionList{revision: st.Main}
		l.set(plan.ConditionReady, true, plan.ReasonInForce, "")
		s.Conditions = l.list
		h.status.SetResource(prev, s) // nobody else records rules
	}
	for _, s := range h.status.ResourcesOf(schema.KindHookRule) {
		if !stays[s.Key] {
			h.status.RemoveResource(s)
		}
	}
}

// detailOf returns the detail of the status of a rule, which may be nil.
func detailOf(s *plan.ThingStatus) (d hookRuleDetail) {
	if s != nil {
		status.Detail(s, &d)
	}
	return d
}
