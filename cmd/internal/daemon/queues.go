package daemon

import (
	"encoding/json"
	"log/slog"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/queueing"
	"berth/runtimes"
	"berth/runtimes/slurm/boundary"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/event"
	"berth/schema/queue"
	"berth/webhooks/api"
)

// live is what asks and changes the units of the controller that runs. The API outlives controllers.
func (e *estate) live() api.Live {
	d := e.running.Load()
	if d == nil {
		return api.Live{}
	}
	return api.Live{Queues: d.queues, Operations: d.loop, Effect: e.effect}
}

// submitted logs a submission with the nine fields of the boundary (requirement C6).
func (d *controller) submitted(c queueing.Caller, requested string, job queue.Job, err error) {
	view, _ := d.loop.View()
	logSubmission(d.log, view.Desired, c, requested, job, err)
}

// logSubmission logs a submission. A refused one has no resolved queue.
func logSubmission(log *slog.Logger, d *schema.Desired, c queueing.Caller, requested string, job queue.Job, err error) {
	var app string
	var m *schema.QueueMap
	if d != nil {
		app = d.AppOf(c.Instance)
		m = d.QueueMapOf(app, c.Instance.Tenant, c.Instance.Project)
	}
	fields := []any{"correlation_id", c.CorrelationID, "org_id", c.Instance.Tenant, "project_id", c.Instance.ProjectID(), "app_instance_id",
		c.Instance.Name, "app_slug", app}
	resolved := boundary.Attempted(m, requested)
	if err == nil && job.Resolution != nil {
		resolved = *job.Resolution
	}
	fields = append(fields, boundary.Fields(resolved, c.Instance.ProjectID(), job.JobID, c.CorrelationID)...)
	if err != nil {
		log.Info("job not submitted", append(fields, "class", queue.ClassOf(err), "error", err)...)
		return
	}
	log.Info("job submitted", fields...)
}

// queueMapLog returns a function that logs an event of a queue map with the nine fields of the boundary
// (requirement C6): one line for a map, however many projects it serves.
func queueMapLog(log *slog.Logger) func(plan.Event) {
	return func(e plan.Event) {
		var m event.QueueMap
		if err := json.Unmarshal(e.Payload, &m); err != nil {
			log.Error("event of a queue map unreadable", "event_type", e.EventType, "error", err)
			return
		}
		fields := append([]any{
			"correlation_id", e.CorrelationID, "org_id", m.OrgID, "project_id", m.ProjectID, "app_slug", m.AppSlug, "queue_map",
			m.ResourceName, "applies_to", m.AppliesTo, "commit", reconciler.Short(m.Revision),
		}, boundary.ChangeFields(m.Telemetry.Adapter, m.Telemetry.TenantID, m.Telemetry.WorkspaceID, m.Telemetry.TraceID)...)
		rollback := []any{"owner", m.Rollback.Owner, "reason", m.Rollback.Reason, "expires_at", m.Rollback.ExpiresAt, "follow_up",
			m.Rollback.FollowUp, "runbook", m.Rollback.Runbook}
		switch event.Type(e.EventType) {
		case event.QueueModeChanged:
			log.Info("mode of a queue map changed", append(fields, "from", m.PreviousMode, "to", m.Status)...)
		case event.QueueRollbackBegan:
			log.Info("rollback of a queue map began", append(fields, rollback...)...)
		case event.QueueRollbackExpired:
			log.Warn("rollback of a queue map has expired", append(fields, rollback...)...)
		case event.QueueRollbackEnded:
			log.Info("rollback of a queue map ended", append(fields, rollback...)...)
		}
	}
}

// effect records an effect on a unit that runs. The ledger of the host has it before; berth/status gets it
// with the next commit.
func (e *estate) effect(r audit.Record) {
	e.log.Info("effect on a running unit requested", "action", r.Action, "actor", r.Actor, "permission", r.Permission, "correlation_id",
		r.CorrelationID,
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
