package loop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/schema"
)

// operationsOf returns the operations on a unit. A new one has the revision of the status.
func operationsOf(st *reconciler.State, s *plan.Status, now time.Time) []plan.Operation {
	all := plan.Operations(st.Effective.Operations(s.Key), s.Operations, now)
	for i := range all {
		if o := &all[i]; !o.IsRequest && o.Revision == "" {
			o.Revision, o.CorrelationID = s.Revision, s.CorrelationID
		}
	}
	return all
}

// newOperations returns the documents in force whose operations a unit's status does not have.
func newOperations(st *reconciler.State, s *plan.Status, key schema.Key) []*schema.MemberOperation {
	docs := st.Effective.Operations(key)
	if s == nil {
		return docs
	}
	return slices.DeleteFunc(slices.Clone(docs), func(d *schema.MemberOperation) bool {
		return slices.ContainsFunc(s.Operations, func(o plan.Operation) bool { return !o.IsRequest && o.ID == d.ID() })
	})
}

// operationKey returns the key of an operation on a unit.
func operationKey(unit schema.Key, name string) schema.Key {
	k := schema.Key{Kind: schema.KindMemberOperation, Tenant: unit.Tenant, Project: unit.Project, Name: name}
	if unit.Kind == schema.KindSharedRuntime {
		k.Parent = unit.Name
	}
	return k
}

// samePending reports whether the same operations are to be done: plans then are the same.
func samePending(a, b []plan.Operation) bool {
	return slices.EqualFunc(plan.Pending(a), plan.Pending(b),
		func(x, y plan.Operation) bool { return x.ActionID() == y.ActionID() && x.From == y.From })
}

// correlations returns the correlation ids of operations by the id in their actions.
func correlations(all []plan.Operation) map[string]string {
	out := map[string]string{}
	for _, o := range all {
		out[o.ActionID()] = o.CorrelationID
	}
	return out
}

// operationStatuses returns the operations for the unit's status, with why the requested ones wait.
func (v unitView) operationStatuses() []plan.Operation {
	out := slices.Clone(v.operations)
	why := ""
	switch {
	case v.paused != "":
		why = "Berth is paused: " + v.paused
	case v.pending:
		return out
	case len(v.plan.Blocked) > 0:
		why = v.plan.Blocked[0].Message
	}
	for i := range out {
		if out[i].Phase == plan.OperationRequested {
			out[i].Message = why
		}
	}
	return out
}

// startOperations notes that the actions of a plan are about to be executed.
func (v *unitView) startOperations(p plan.Plan, now time.Time) {
	v.operations = slices.Clone(v.operations)
	for _, a := range p.Actions {
		i := operationIndex(v.operations, a)
		if i < 0 || v.operations[i].Phase != plan.OperationRequested {
			continue
		}
		o := &v.operations[i]
		o.Phase, o.Message, o.From, o.Started = plan.OperationRunning, "", a.Node, now.UTC().Truncate(time.Second)
	}
}

// operationIndex returns the index of the operation that an action carries out, or -1.
func operationIndex(all []plan.Operation, a plan.Action) int {
	return slices.IndexFunc(all, func(o plan.Operation) bool { return a.Operation != nil && o.ActionID() == a.Operation.ID })
}

// settleOperations notes the outcomes of operations, and returns those of the other actions: a failed
// operation does not make its unit fail.
func (v *unitView) settleOperations(p plan.Plan, outcomes []plan.Outcome, now time.Time) (others []plan.Outcome) {
	for n, out := range outcomes {
		a := p.Actions[n]
		if a.Operation == nil {
			others = append(others, out)
			continue
		}
		i := operationIndex(v.operations, a)
		if i < 0 || v.operations[i].IsFinished() {
			continue // withdrawn meanwhile
		}
		o := &v.operations[i]
		switch leaves := a.Verb == plan.Replace || a.Verb == plan.Remove; {
		case out.State == plan.Failed:
			o.Finish(plan.OperationFailed, out.Error, now)
		case out.State != plan.Done:
			o.Message = out.Error
		case leaves:
			o.Message = "" // the rest of the plan moves the member
		default:
			o.Finish(plan.OperationDone, "", now)
		}
	}
	return others
}

// finishOperations finishes the operations whose effect the observation shows, and those that can
// never have one.
func (v *unitView) finishOperations(now time.Time) {
	u := v.observed.Unit
	if v.observed.Presence != plan.Present || !v.observed.Complete || u == nil || v.want == nil {
		return
	}
	after := &plan.Unit{Effective: *v.want, Members: v.members()}
	v.operations = slices.Clone(v.operations)
	for i := range v.operations {
		o := &v.operations[i]
		if o.IsFinished() {
			continue
		}
		name := o.Spec.Member
		m, isMember := u.Member(name)
		at := slices.IndexFunc(v.observed.Members, func(s plan.MemberState) bool { return s.Name == name })
		why := plan.Refusal(*o, u, after)
		switch {
		case why != "":
			o.Finish(plan.OperationFailed, why, now)
		case o.Verb() == plan.Remove && !isMember && at < 0:
			o.Finish(plan.OperationDone, name+" is no longer a member", now)
		case o.Verb() == plan.Replace && o.From != "" && isMember && m.Node != o.From && at >= 0 && v.observed.Members[at].Node == m.Node &&
			v.observed.Members[at].State == plan.Running:
			o.Finish(plan.OperationDone, fmt.Sprintf("%s moved from %s to %s", name, o.From, m.Node), now)
		}
	}
}

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

// followOperations records the statuses of the operations on a unit by its own status. Two callers
// may follow at a time: the later one takes the newest status.
func (r *recorder) followOperations(prev, next *plan.Status) {
	if prev != nil && prev.Phase == next.Phase && status.EqualJSON(prev.Operations, next.Operations) {
		return
	}
	r.following.Lock()
	defer r.following.Unlock()
	unit := r.status.Unit(next.Key)
	stays := map[schema.Key]bool{}
	if unit != nil && unit.Phase != plan.PhaseDeleted {
		for _, o := range unit.Operations {
			key := operationKey(unit.Key, o.Name)
			stays[key] = true
			r.status.SetResource(r.status.Resource(key), operationStatus(unit, key, o))
		}
	}
	for _, s := range r.status.ResourcesOf(schema.KindMemberOperation) {
		if !stays[s.Key] && isOn(s, next.Key) {
			r.status.RemoveResource(s)
		}
	}
}

// isOn reports whether an operation is on a unit.
func isOn(s *plan.ThingStatus, unit schema.Key) bool {
	var d operationDetail
	status.Detail(s, &d)
	return operationKey(unit, s.Key.Name) == s.Key && (s.Key.Parent != "" || d.Instance == unit.Name)
}

func operationStatus(unit *plan.Status, key schema.Key, o plan.Operation) plan.ThingStatus {
	d := operationDetail{
		AppSlug: unit.App, Member: o.Spec.Member, Operation: o.Spec.Operation, Labels: o.Spec.Labels, Reason: o.Spec.Reason,
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

// RequestOperation asks for an operation on a unit without a document, and returns it once
// berth/status has it. An id that was asked for before returns that operation: it is never done
// twice. The caller has checked the permission. Operation reads the result.
func (r *Reconciler) RequestOperation(ctx context.Context, req plan.OperationRequest) (plan.Operation, error) {
	st := r.inForce.current()
	if st == nil {
		return plan.Operation{}, fmt.Errorf("request operation %s: the state in force is not known yet; try again", req.ID)
	}
	if err := req.Check(st.Unit(req.Unit)); err != nil {
		return plan.Operation{}, err
	}
	sum := sha256.Sum256([]byte(req.Unit.String() + "\n" + req.ID))
	asked := plan.Operation{
		Name: "request-" + hex.EncodeToString(sum[:])[:16], ID: req.ID, IsRequest: true, Spec: req.Spec, Phase: plan.OperationRequested,
		CorrelationID: req.CorrelationID, RequestedBy: req.RequestedBy, Requested: r.o.Now().UTC().Truncate(time.Second),
	}
	var out plan.Operation
	var fault error
	r.units.update(req.Unit, func(prev *plan.Status) (plan.Status, bool) {
		out, fault = asked, nil
		if prev == nil || isNewUnit(prev) {
			fault = fmt.Errorf("request operation %s: %s has no status yet; try again", req.ID, req.Unit)
			return plan.Status{}, false
		}
		if i := slices.IndexFunc(prev.Operations, func(o plan.Operation) bool { return o.IsRequest && o.ID == req.ID }); i >= 0 {
			if out = prev.Operations[i]; !status.EqualJSON(out.Spec, req.Spec) {
				fault = fmt.Errorf("request operation %s: %w (%s %s); use a new id", req.ID, plan.ErrOperationID, out.Spec.Operation,
					out.Spec.Member)
			}
			return plan.Status{}, false
		}
		pending := slices.DeleteFunc(plan.Pending(prev.Operations), func(o plan.Operation) bool { return !o.IsRequest })
		if len(pending) >= plan.MaxPending {
			fault = fmt.Errorf("request operation %s: %w on %s: %d; wait until some are done", req.ID, plan.ErrManyPending, req.Unit,
				len(pending))
			return plan.Status{}, false
		}
		next := *prev
		next.Operations = append(slices.Clone(prev.Operations), asked)
		next.Retry = nil // as with a new revision
		return next, true
	})
	if fault != nil {
		return plan.Operation{}, fault
	}
	if err := r.status.Flush(ctx); err != nil {
		return plan.Operation{}, fmt.Errorf("request operation %s: not recorded yet, and not done before it is: %w", req.ID, err)
	}
	if req.Spec.Operation == schema.OpReplace {
		r.queues.add(reconciler.Item{Task: reconciler.TaskPlace})
	}
	r.queues.addUnit(req.Unit)
	return out, nil
}

// Operation returns an operation that was requested without a document.
func (r *Reconciler) Operation(unit schema.Key, id string) (plan.Operation, bool) {
	s := r.status.Unit(unit)
	if s == nil {
		return plan.Operation{}, false
	}
	i := slices.IndexFunc(s.Operations, func(o plan.Operation) bool { return o.IsRequest && o.ID == id })
	if i < 0 {
		return plan.Operation{}, false
	}
	return s.Operations[i], true
}
