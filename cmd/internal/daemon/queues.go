package daemon

import (
	"context"
	"fmt"

	"berth/reconciler/plan"
	"berth/reconciler/queueing"
	"berth/runtimes"
	"berth/runtimes/slurm/boundary"
	"berth/schema/audit"
	"berth/schema/queue"
	"berth/webhooks/api"
)

// liveQueues asks the queues of the controller that runs. It outlives controllers, as the API does.
type liveQueues struct{ e *estate }

var _ api.Queues = liveQueues{}

// queues returns the service of the controller that runs.
func (l liveQueues) service() (*queueing.Service, error) {
	if d := l.e.running.Load(); d != nil {
		return d.queues, nil
	}
	return nil, fmt.Errorf("%w: the estate is starting", queue.ErrUnavailable)
}

func ask[T any](l liveQueues, f func(*queueing.Service) (T, error)) (T, error) {
	s, err := l.service()
	if err != nil {
		var none T
		return none, err
	}
	return f(s)
}

// Submit implements api.Queues.
func (l liveQueues) Submit(ctx context.Context, c queueing.Caller, key string, r queue.Request) (queue.Job, error) {
	job, err := ask(l, func(s *queueing.Service) (queue.Job, error) { return s.Submit(ctx, c, key, r) })
	ids := []any{"correlation_id", c.CorrelationID, "org_id", c.Instance.Tenant, "project_id", c.Instance.ProjectID(), "app_instance_id", c.Instance.Name}
	if view, ok := l.e.view(); ok {
		ids = append(ids, "app_slug", view.Desired.AppOf(c.Instance))
	}
	switch resolved := job.Resolution; {
	case err != nil:
		l.e.log.Info("job not submitted", append(ids, "error", err, "requested_queue_name", r.Queue)...)
	case resolved != nil:
		l.e.log.Info("job submitted", append(ids, boundary.Fields(*resolved, job.ProjectID, job.JobID, c.CorrelationID)...)...)
	}
	return job, err
}

// Jobs implements api.Queues.
func (l liveQueues) Jobs(ctx context.Context, c queueing.Caller) ([]queue.Job, error) {
	return ask(l, func(s *queueing.Service) ([]queue.Job, error) { return s.Jobs(ctx, c) })
}

// Job implements api.Queues.
func (l liveQueues) Job(ctx context.Context, c queueing.Caller, ref queue.Ref) (queue.Job, error) {
	return ask(l, func(s *queueing.Service) (queue.Job, error) { return s.Job(ctx, c, ref) })
}

// Cancel implements api.Queues.
func (l liveQueues) Cancel(ctx context.Context, c queueing.Caller, ref queue.Ref) (queue.Job, error) {
	return ask(l, func(s *queueing.Service) (queue.Job, error) { return s.Cancel(ctx, c, ref) })
}

// Output implements api.Queues.
func (l liveQueues) Output(ctx context.Context, c queueing.Caller, ref queue.Ref, limit int) (queue.Output, error) {
	return ask(l, func(s *queueing.Service) (queue.Output, error) { return s.Output(ctx, c, ref, limit) })
}

// Nodes implements api.Queues.
func (l liveQueues) Nodes(ctx context.Context, c queueing.Caller) ([]queue.Node, error) {
	return ask(l, func(s *queueing.Service) ([]queue.Node, error) { return s.Nodes(ctx, c) })
}

// RequestOperation implements api.Operations.
func (l liveQueues) RequestOperation(ctx context.Context, r plan.OperationRequest) (plan.Operation, error) {
	d := l.e.running.Load()
	if d == nil {
		return plan.Operation{}, fmt.Errorf("%w: the estate is starting", queue.ErrUnavailable)
	}
	return d.loop.RequestOperation(ctx, r)
}

// effect records an effect on a queue. The ledger of the host has it before; berth/status gets it with
// the next commit.
func (e *estate) effect(r audit.Record) {
	e.log.Info("queue changed or output read", "action", r.Action, "actor", r.Actor, "permission", r.Permission, "correlation_id", r.CorrelationID,
		"org_id", r.OrgID, "project_id", r.ProjectID, "app_slug", r.AppSlug, "app_instance_id", r.Key.Name)
	if d := e.running.Load(); d != nil {
		d.loop.Audit(r)
	}
}

// queuesOf returns the runtimes whose units queue jobs.
func queuesOf(live map[string]runtimes.Runtime) map[string]runtimes.Queue {
	queues := map[string]runtimes.Queue{}
	for backend, r := range live {
		if q, ok := r.(runtimes.Queue); ok {
			queues[backend] = q
		}
	}
	return queues
}

// stamp is what this daemon leads with.
func (d *controller) stamp() (runtimes.Stamp, bool) {
	epoch, leader := d.loop.Leadership()
	return runtimes.Stamp{Epoch: epoch, Leader: leader}, epoch > 0 && d.ready()
}
