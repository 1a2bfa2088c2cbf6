package loop

import (
	"encoding/json"
	"sync"
	"time"

	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/schema"
)

// operationDetail is the detail of the status of an operation. Its names are those of the events.
type operationDetail struct {
	AppSlug     string            `json:"app_slug"`
	Instance    string            `json:"instance,omitempty"` // name of it in the project; "": the operation is on a shared runtime
	InstanceID  string            `json:"app_instance_id,omitempty"`
	RuntimeID   string            `json:"shared_runtime_id,omitempty"`
	Member      string            `json:"member_id,omitempty"`
	Operation   string            `json:"operation"`
	Labels      map[string]string `json:"labels,omitempty"`
	Reason      string            `json:"reason"`
	IsRequest   bool              `json:"request,omitempty"`
	RequestedBy string            `json:"requested_by,omitempty"`
	Result      string            `json:"result,omitempty"` // why it waits, or what came of it
	Requested   time.Time         `json:"requested_at,omitzero"`
	Started     time.Time         `json:"started_at,omitzero"`
	Finished    time.Time         `json:"finished_at,omitzero"`
}

// operationStatuses records the statuses of operations. It is safe for concurrent use.
type operationStatuses struct{ following sync.Mutex }

// follow records the statuses of the operations on a unit by its own status. Two callers may follow
// at a time: the later one takes the newest status.
func (o *operationStatuses) follow(all *status.Writer, key schema.Key) {
	o.following.Lock()
	defer o.following.Unlock()
	unit := all.Unit(key)
	stays := map[schema.Key]bool{}
	if unit != nil && unit.Phase != plan.PhaseDeleted {
		for _, one := range unit.Operations {
			at := operationKey(unit.Key, one.Name)
			stays[at] = true
			all.SetResource(all.Resource(at), operationStatus(unit, at, one))
		}
	}
	for _, s := range all.ResourcesOf(schema.KindMemberOperation) {
		if !stays[s.Key] && isOn(s, key) {
			all.RemoveResource(s)
		}
	}
}

func operationStatus(unit *plan.Status, key schema.Key, o plan.Operation) plan.ThingStatus {
	d := operationDetail{
		AppSlug: unit.App, Member: o.Member(), Operation: o.Spec.Operation, Labels: o.Spec.Labels, Reason: o.Spec.Reason,
		IsRequest: o.IsRequest, RequestedBy: o.RequestedBy, Result: o.Message, Requested: o.Requested, Started: o.Started,
		Finished: o.Finished,
	}
	if unit.Key.Kind == schema.KindInstance {
		d.Instance, d.InstanceID = unit.Key.Name, schema.ID(unit.UID, unit.Key)
	} else {
		d.RuntimeID = schema.ID(unit.UID, unit.Key)
	}
	data, err := json.Marshal(d)
	if err != nil {
		panic(err) // strings and times
	}
	s := plan.ThingStatus{
		APIVersion: schema.APIVersion, Kind: string(schema.KindMemberOperation) + "Status", Key: key, Phase: string(o.Phase),
		Revision: o.Revision, CorrelationID: o.CorrelationID, Detail: data,
	}
	if o.ID != o.Name {
		s.UID = o.ID
	}
	ready := plan.Condition{
		Type: plan.ConditionReady, Status: plan.StatusOf(o.Phase == plan.OperationDone), Reason: plan.ReasonOfPhase(o.Phase),
		Message: o.Message, Revision: o.Revision,
	}
	s.Conditions = []plan.Condition{ready}
	return s
}

// isOn reports whether an operation is on a unit.
func isOn(s *plan.ThingStatus, unit schema.Key) bool {
	var d operationDetail
	status.Detail(s, &d)
	return operationKey(unit, s.Key.Name) == s.Key && (s.Key.Parent != "" || d.Instance == unit.Name)
}
