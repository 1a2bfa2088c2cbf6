package loop

import (
	"cmp"
	"encoding/json"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

// newEvent is an event in its envelope. attempt tells apart what happens to one
// thing more than once at one revision.
func newEvent(t event.Type, about schema.Key, revision string, attempt int, correlationID string, payload any, now time.Time) plan.Event {
	data, err := json.Marshal(payload)
	if err != nil {
		panic(err) // package event's payloads are strings and booleans
	}
	return plan.Event{
		EventID:       event.ID(t, about, revision, attempt),
		EventType:     string(t),
		OccurredAt:    now.UTC(),
		Version:       event.Version,
		CorrelationID: correlationID,
		Payload:       data,
	}
}

// transition is the event that the step of a unit from prev to next announces,
// if any (requirement A8). A transition that is made again after a crash is the
// same event.
func transition(prev, next *plan.Status, now time.Time) (plan.Event, bool) {
	if prev != nil && prev.Phase == next.Phase {
		return plan.Event{}, false
	}
	d, ok := event.Of(next.Key.Kind, string(next.Phase))
	if !ok {
		return plan.Event{}, false
	}
	return newEvent(d.Type, next.Key, next.Revision, next.Attempt, next.CorrelationID, event.Instance{
		OrgID:             next.Key.Tenant,
		ProjectID:         next.Key.ProjectID(),
		AppSlug:           next.App,
		AppInstanceID:     schema.ID(next.UID, next.Key),
		ResourceName:      next.Key.ResourceName(),
		Status:            string(next.Phase),
		OperatingMode:     next.OperatingMode,
		ControlPlaneScope: next.ControlPlaneScope,
		RuntimeBackend:    next.RuntimeBackend,
		Revision:          next.Revision,
		FailureReason:     next.FailureReason,
		RequestedBy:       next.RequestedBy,
	}, now), true
}

// thingTransition is transition for what is no unit. What the payload tells
// besides identity and phase is taken from the fields of the same name in
// Detail, such as app_slug; "attempt" there tells apart what happens more than
// once at one revision.
func thingTransition(prev, next *plan.ThingStatus, now time.Time) (plan.Event, bool) {
	if prev != nil && prev.Phase == next.Phase {
		return plan.Event{}, false
	}
	d, ok := event.Of(next.Key.Kind, next.Phase)
	if !ok {
		return plan.Event{}, false
	}
	var again struct {
		Attempt    int    `json:"attempt"`
		RuntimeUID string `json:"shared_runtime_uid"`
	}
	detail(next, &again)
	id := schema.ID(next.UID, next.Key)
	var payload any
	switch p := d.Payload.(type) {
	case event.Artifact:
		detail(next, &p)
		p.OrgID, p.ProjectID, p.ArtifactID = next.Key.Tenant, next.Key.ProjectID(), id
		p.ResourceName = next.Key.ResourceName()
		p.Status, p.Revision = next.Phase, next.Revision
		payload = p
	case event.SharedRuntime:
		detail(next, &p)
		p.OrgID, p.SharedRuntimeID, p.ResourceName = next.Key.Tenant, id, next.Key.ResourceName()
		p.Status, p.Revision = next.Phase, next.Revision
		payload = p
	case event.Attachment:
		detail(next, &p)
		p.OrgID, p.SharedRuntimeID, p.AttachmentID = next.Key.Tenant, cmp.Or(again.RuntimeUID, next.Key.Parent), id
		p.ResourceName = next.Key.ResourceName()
		p.Status, p.Revision = next.Phase, next.Revision
		payload = p
	default:
		return plan.Event{}, false
	}
	return newEvent(d.Type, next.Key, next.Revision, again.Attempt, next.CorrelationID, payload, now), true
}

// detail reads what of s.Detail has the names of into's fields. What is of
// another shape there is not taken: memory is never trusted to be well formed.
func detail(s *plan.ThingStatus, into any) {
	_ = json.Unmarshal(s.Detail, into)
}

// entitlementUpdated is the event of an entitlement that came into force,
// changed, or was taken away (enabled false).
func entitlementUpdated(key schema.Key, enabled bool, by, revision, correlationID string, now time.Time) plan.Event {
	return newEvent(event.EntitlementUpdated, key, revision, 0, correlationID, event.Entitlement{
		OrgID: key.Tenant, ProjectID: key.ProjectID(), AppSlug: key.Name,
		Enabled: enabled, UpdatedBy: by, Revision: revision,
	}, now)
}
