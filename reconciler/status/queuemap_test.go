package status

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

func queueMapOf(t *testing.T, mode, revision string, isExpired bool, d QueueMapDetail) *plan.ThingStatus {
	detail, err := json.Marshal(d)
	require.NoError(t, err)
	return &plan.ThingStatus{Key: schema.Key{Kind: schema.KindQueueMap, Name: "physics"}, Phase: mode, Revision: revision,
		CorrelationID: "c-" + revision, Detail: detail,
		Conditions: []plan.Condition{{Type: plan.ConditionRollbackExpired, Status: plan.StatusOf(isExpired), Reason: "Any"}}}
}

// Each step of a rollback is one event, in order, with the fields of the telemetry. An expiry has the same id also
// if berth/status is lost, another document has another id, and a repeated status makes no event (requirements C5, C6).
func TestQueueMapEvents(t *testing.T) {
	until := func(day string) *schema.Rollback { return &schema.Rollback{Owner: "ops", ExpiresAt: day} }
	detail := func(blob string, r *schema.Rollback) QueueMapDetail {
		return QueueMapDetail{AppSlug: "batch", AppliesTo: []string{"physics.lattice"}, Contract: "boundary/v1+0123456789ab",
			Declared: blob, Rollback: r}
	}
	real := queueMapOf(t, schema.ModeRealPolicy, "1", false, detail("a", nil))
	back := queueMapOf(t, schema.ModePassthrough, "2", false, detail("b", until("2026-03-02")))
	late := queueMapOf(t, schema.ModePassthrough, "2", true, detail("b", until("2026-03-02")))
	renewed := queueMapOf(t, schema.ModePassthrough, "3", false, detail("c", until("2026-03-09")))
	gone := queueMapOf(t, QueueMapDeleted, "4", false, detail("c", nil))
	types := func(prev, next *plan.ThingStatus) (all []event.Type) {
		for _, e := range QueueMapEvents(prev, next, time.Now()) {
			all = append(all, event.Type(e.EventType))
			require.Equal(t, next.CorrelationID, e.CorrelationID)
		}
		return all
	}
	require.Equal(t, []event.Type{event.QueueModeChanged}, types(nil, real))
	require.Equal(t, []event.Type{event.QueueModeChanged, event.QueueRollbackBegan}, types(real, back))
	require.Equal(t, []event.Type{event.QueueRollbackExpired}, types(back, late))
	require.Empty(t, types(late, late))
	require.Equal(t, []event.Type{event.QueueRollbackBegan}, types(late, renewed))
	require.Equal(t, []event.Type{event.QueueRollbackEnded, event.QueueModeChanged}, types(renewed, real))
	require.Equal(t, []event.Type{event.QueueRollbackEnded, event.QueueModeChanged}, types(renewed, gone))

	id := func(prev, next *plan.ThingStatus) string {
		all := QueueMapEvents(prev, next, time.Now())
		require.Equal(t, string(event.QueueRollbackExpired), all[len(all)-1].EventType)
		return all[len(all)-1].EventID
	}
	afterLoss := queueMapOf(t, schema.ModePassthrough, "7", true, detail("b", until("2026-03-02")))
	require.Equal(t, id(back, late), id(nil, afterLoss))
	require.NotEqual(t, id(back, late), id(renewed, queueMapOf(t, schema.ModePassthrough, "3", true, detail("c", until("2026-03-09")))))

	var p event.QueueMap
	require.NoError(t, json.Unmarshal(QueueMapEvents(real, back, time.Now())[0].Payload, &p))
	require.Equal(t, event.QueueMap{
		OrgID: "physics", ProjectID: "physics.lattice", AppSlug: "batch", ResourceName: "physics", AppliesTo: "physics.lattice",
		Status: "passthrough", PreviousMode: "real-policy", Revision: "2",
		Rollback: event.Rollback{Owner: "ops", ExpiresAt: "2026-03-02"},
		Telemetry: event.Telemetry{TraceID: schema.TraceID("c-2"), TenantID: "physics", WorkspaceID: "physics.lattice",
			Adapter: "passthrough", ContractVersion: "boundary/v1"},
	}, p)
	everybody := queueMapOf(t, schema.ModeStubPolicy, "1", false, QueueMapDetail{})
	require.NoError(t, json.Unmarshal(QueueMapEvents(nil, everybody, time.Now())[0].Payload, &p))
	require.Equal(t, []string{"", "", "", ""}, []string{p.OrgID, p.ProjectID, p.Telemetry.TenantID, p.Telemetry.WorkspaceID},
		"it serves everybody")
}
