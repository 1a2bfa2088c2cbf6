package daemon

import (
	"context"
	"log/slog"

	"berth/reconciler/queueing"
	"berth/runtimes"
	"berth/runtimes/slurm/boundary"
	"berth/schema/audit"
	"berth/schema/queue"
	"berth/webhooks/api"
)

// live is what asks and changes the units of the controller that runs. The API outlives controllers.
func (e *estate) live() api.Live {
	d := e.running.Load()
	if d == nil {
		return api.Live{}
	}
	return api.Live{Queues: loggedQueues{d.queues, d, e.log}, Operations: d.loop, Effect: e.effect}
}

// loggedQueues is a Service whose submissions are logged with the nine fields of the boundary (requirement C6).
type loggedQueues struct {
	*queueing.Service
	d   *controller
	log *slog.Logger
}

// Submit implements api.Queues.
func (q loggedQueues) Submit(ctx context.Context, c queueing.Caller, key string, r queue.Request) (queue.Job, error) {
	job, err := q.Service.Submit(ctx, c, key, r)
	ids := []any{"correlation_id", c.CorrelationID, "org_id", c.Instance.Tenant, "project_id", c.Instance.ProjectID(), "app_instance_id", c.Instance.Name}
	if view, ok := q.d.loop.View(); ok {
		ids = append(ids, "app_slug", view.Desired.AppOf(c.Instance))
	}
	switch resolved := job.Resolution; {
	case err != nil:
		q.log.Info("job not submitted", append(ids, "error", err, "requested_queue_name", r.Queue)...)
	case resolved != nil:
		q.log.Info("job submitted", append(ids, boundary.Fields(*resolved, job.ProjectID, job.JobID, c.CorrelationID)...)...)
	}
	return job, err
}

// effect records an effect on a unit that runs. The ledger of the host has it before; berth/status gets it
// with the next commit.
func (e *estate) effect(r audit.Record) {
	e.log.Info("effect on a running unit requested", "action", r.Action, "actor", r.Actor, "permission", r.Permission, "correlation_id", r.CorrelationID,
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
