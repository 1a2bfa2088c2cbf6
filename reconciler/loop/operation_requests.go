package loop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/schema"
	"berth/schema/audit"
)

// RequestOperation asks for an operation on a unit without a document, and returns it once
// berth/status has it. An id that was asked for before returns that operation: it is never done
// twice. The caller has checked the permission. Operation reads the result.
func (r *Reconciler) RequestOperation(ctx context.Context, req plan.OperationRequest) (plan.Operation, error) {
	return r.requestOperation(ctx, req)
}

// requestOperation is RequestOperation, and writes the audit records of a new operation in the same commit as the operation: a
// request that is repeated after a crash is audited once.
func (r *Reconciler) requestOperation(ctx context.Context, req plan.OperationRequest, records ...audit.Record) (plan.Operation, error) {
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
	isNew := false
	if len(records) > 0 { // otherwise a request waits for no decision
		r.status.Decision.Lock()
	}
	r.units.update(req.Unit, func(prev *plan.Status) (next plan.Status, ok bool) {
		next, out, fault = addRequest(prev, req.Unit, asked)
		isNew = fault == nil && len(next.Operations) > len(prev.Operations)
		return next, isNew
	})
	if isNew {
		r.status.Record(records...)
	}
	if len(records) > 0 {
		r.status.Decision.Unlock()
	}
	if fault != nil {
		return plan.Operation{}, fmt.Errorf("request operation %s: %w", req.ID, fault)
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

// addRequest returns the status of a unit with an operation that is asked for, and that operation: the one that the status
// has already under its id, with the status unchanged.
func addRequest(prev *plan.Status, unit schema.Key, asked plan.Operation) (next plan.Status, out plan.Operation, err error) {
	if prev == nil || isNewUnit(prev) {
		return next, out, fmt.Errorf("%s has no status yet; try again", unit)
	}
	next = *prev
	if out, ok := requestOf(prev, asked.ID); ok {
		if !status.EqualJSON(out.Spec, asked.Spec) {
			err = fmt.Errorf("%w (%s %s); use a new id", plan.ErrOperationID, out.Spec.Operation, out.Spec.Member)
		}
		return next, out, err
	}
	pending := slices.DeleteFunc(slices.Clone(prev.Operations), func(o plan.Operation) bool { return !o.IsRequest || o.IsFinished() })
	if len(pending) >= plan.MaxPending {
		return next, out, fmt.Errorf("%w on %s: %d; wait until some are done", plan.ErrManyPending, unit, len(pending))
	}
	next.Operations = append(slices.Clone(prev.Operations), asked)
	next.Retry = nil // as with a new revision
	return next, asked, nil
}

// requestOf returns the operation that was requested under an id.
func requestOf(s *plan.Status, id string) (plan.Operation, bool) {
	i := slices.IndexFunc(s.Operations, func(o plan.Operation) bool { return o.IsRequest && o.ID == id })
	if i < 0 {
		return plan.Operation{}, false
	}
	return s.Operations[i], true
}

// Operation returns an operation that was requested without a document.
func (r *Reconciler) Operation(unit schema.Key, id string) (plan.Operation, bool) {
	s := r.status.Unit(unit)
	if s == nil {
		return plan.Operation{}, false
	}
	return requestOf(s, id)
}
