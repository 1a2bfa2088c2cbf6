package boundary

import (
	"strings"

	"berth/schema"
	"berth/schema/queue"
)

// Fields are the nine fields of observability (requirement C6) as names and values in turn, in the order
// of CUT. jobID is "" before a job exists.
func Fields(r queue.Resolution, projectID, jobID, correlationID string) []any {
	tenant, _, _ := strings.Cut(projectID, ".")
	return fields(r, tenant, projectID, jobID, schema.TraceID(correlationID))
}

// Attempted returns the known part of the resolution of a refused submission, without a queue.
func Attempted(m *schema.QueueMap, requested string) queue.Resolution {
	return queue.Resolution{Adapter: string(ModeOf(m)), ContractVersion: ContractVersion, RequestedQueue: requested}
}

// ChangeFields are the nine fields of a change of a map to a mode; "": the map is deleted. tenant and workspace are
// "" if the map serves several. No queue is requested or resolved, and no job is concerned.
func ChangeFields(mode, tenant, workspace, traceID string) []any {
	return fields(queue.Resolution{Adapter: mode, ContractVersion: ContractVersion}, tenant, workspace, "", traceID)
}

func fields(r queue.Resolution, tenant, workspace, jobID, traceID string) []any {
	return []any{
		"trace_id", traceID,
		"tenant_id", tenant,
		"workspace_id", workspace,
		"job_id", jobID,
		"slurm_adapter", r.Adapter,
		"slurm_contract_version", r.ContractVersion,
		"requested_queue_name", r.RequestedQueue,
		"resolved_queue_name", r.ResolvedQueue,
		"used_fallback", r.UsedFallback,
	}
}
