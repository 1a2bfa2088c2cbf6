package boundary

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
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

// Fields are the nine fields of observability (requirement C6), in the order of CUT. jobID is "" before
// there is a job.
func Fields(r queue.Resolution, by queue.Caller, jobID string) []slog.Attr {
	tenant, _, _ := strings.Cut(by.ProjectID, ".")
	return []slog.Attr{
		slog.String("trace_id", TraceID(by.CorrelationID)),
		slog.String("tenant_id", tenant),
		slog.String("workspace_id", by.ProjectID),
		slog.String("job_id", jobID),
		slog.String("slurm_adapter", r.Adapter),
		slog.String("slurm_contract_version", r.ContractVersion),
		slog.String("requested_queue_name", r.RequestedQueue),
		slog.String("resolved_queue_name", r.ResolvedQueue),
		slog.Bool("used_fallback", r.UsedFallback),
	}
}
