package status

import (
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

// QueueMapDeleted is the phase of a queue map whose document is gone. It is recorded before the status
// is removed. The other phases are the modes.
const QueueMapDeleted = "deleted"

// QueueMapDetail is the detail of the status of a QueueMap.
type QueueMapDetail struct {
	AppSlug   string           `json:"app_slug"`
	AppliesTo []string         `json:"applies_to,omitempty"`
	Contract  string           `json:"contract,omitempty"`
	Declared  string           `json:"declared"` // blob of the document
	Rollback  *schema.Rollback `json:"rollback,omitempty"`
}

// QueueMapEvents returns the events of a queue map's change from prev, which may be nil, to next, in order: the end
// of a rollback before the mode, and a begin after it (requirement C5). The id of an expiry depends on the document
// alone, so it is the same also if berth/status is lost.
func QueueMapEvents(prev, next *plan.ThingStatus, now time.Time) (out []plan.Event) {
	var was, is QueueMapDetail
	mode := ""
	if prev != nil {
		Detail(prev, &was)
		mode = prev.Phase
	}
	Detail(next, &is)
	announce := func(t event.Type, revision, before string, r *schema.Rollback) {
		out = append(out, NewEvent(t, next.Key, revision, 0, next.CorrelationID, queueMapPayload(next, is, before, r), now))
	}
	if was.Rollback != nil && is.Rollback == nil {
		announce(event.QueueRollbackEnded, next.Revision, "", was.Rollback)
	}
	if mode != next.Phase {
		announce(event.QueueModeChanged, next.Revision, mode, is.Rollback)
	}
	if r := is.Rollback; r != nil {
		if was.Rollback == nil || was.Rollback.ExpiresAt != r.ExpiresAt {
			announce(event.QueueRollbackBegan, next.Revision, "", r)
		}
		if isExpired(next) && (!isExpired(prev) || was.Rollback == nil || was.Rollback.ExpiresAt != r.ExpiresAt) {
			announce(event.QueueRollbackExpired, is.Declared, "", r)
		}
	}
	return out
}

func isExpired(s *plan.ThingStatus) bool {
	return s.Condition(plan.ConditionRollbackExpired).Is(plan.ConditionTrue)
}

func queueMapPayload(s *plan.ThingStatus, d QueueMapDetail, before string, r *schema.Rollback) event.QueueMap {
	p := event.QueueMap{
		AppSlug: d.AppSlug, ResourceName: s.Key.ResourceName(), AppliesTo: strings.Join(d.AppliesTo, ","), Status: s.Phase,
		PreviousMode: before, Revision: s.Revision,
	}
	if len(d.AppliesTo) == 1 {
		tenant, _, inProject := strings.Cut(d.AppliesTo[0], ".")
		if p.OrgID = tenant; inProject {
			p.ProjectID = d.AppliesTo[0]
		}
	}
	if r != nil {
		p.Rollback = event.Rollback{Owner: r.Owner, Reason: r.Reason, ExpiresAt: r.ExpiresAt, FollowUp: r.FollowUp, Runbook: r.Runbook}
	}
	version, _, _ := strings.Cut(d.Contract, "+")
	p.Telemetry = event.Telemetry{TraceID: schema.TraceID(s.CorrelationID), TenantID: p.OrgID, WorkspaceID: p.ProjectID, Adapter: s.Phase,
		ContractVersion: version}
	if s.Phase == QueueMapDeleted {
		p.Telemetry.Adapter = ""
	}
	return p
}
