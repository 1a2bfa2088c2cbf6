package loop

import (
	"context"

	"berth/reconciler/plan"
	"berth/schema/audit"
)

// IsWritten reports whether everything that was recorded is on the remote.
func (r *Reconciler) IsWritten() bool { return r.status.IsWritten() }

// ListPulls lists the pull requests, as the task does.
func (r *Reconciler) ListPulls(ctx context.Context) error { return r.pulls.List(ctx) }

// NextPull returns the pull request that would be planned next; no worker may run.
func (r *Reconciler) NextPull() int {
	item, _ := r.queues.plans.Get()
	r.queues.plans.Done(item)
	return item.Pull
}

// RequestAudited is RequestOperation with the audit records of a new operation, as for an action of a rule.
func (r *Reconciler) RequestAudited(ctx context.Context, req plan.OperationRequest, records ...audit.Record) (plan.Operation, error) {
	return r.requestOperation(ctx, req, records...)
}
