package boundary

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"berth/schema/queue"
)

var traceForm = regexp.MustCompile(`^[0-9a-f]{32}$`)

// TraceID is the W3C trace id of a correlation id: the id itself if it has that form, else the beginning
// of its SHA-256.
func TraceID(correlationID string) string {
	if traceForm.MatchString(correlationID) && strings.Trim(correlationID, "0") != "" {
		return correlationID
	}
	sum := sha256.Sum256([]byte(correlationID))
	return hex.EncodeToString(sum[:16])
}

// Fields are the nine fields of observability (requirement C6) as names and values in turn, in the order
// of CUT. jobID is "" before a job exists.
func Fields(r queue.Resolution, projectID, jobID, correlationID string) []any {
	tenant, _, _ := strings.Cut(projectID, ".")
	return []any{
		"trace_id", TraceID(correlationID),
		"tenant_id", tenant,
		"workspace_id", projectID,
		"job_id", jobID,
		"slurm_adapter", r.Adapter,
		"slurm_contract_version", r.ContractVersion,
		"requested_queue_name", r.RequestedQueue,
		"resolved_queue_name", r.ResolvedQueue,
		"used_fallback", r.UsedFallback,
	}
}
