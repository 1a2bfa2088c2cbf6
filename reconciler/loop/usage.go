package loop

import (
	"context"
	"fmt"

	"berth/runtimes"
	"berth/schema"
	"berth/schema/usage"
)

// recordUsage puts what jobs of the unit used onto berth/status before their records at the runtime
// end. Until the remote takes it, the action waits.
func (r *unitRun) recordUsage(ctx context.Context, jobs []usage.Job) error {
	prev := r.view.prev
	unit := usage.Record{
		UnitID: schema.ID(prev.UID, prev.Key), AppSlug: prev.App, CorrelationID: prev.CorrelationID,
		OperatingMode: prev.OperatingMode, ControlPlaneScope: prev.ControlPlaneScope, RuntimeBackend: prev.RuntimeBackend,
	}
	names := map[string]string{}
	for _, a := range prev.Attachments {
		names[a.ProjectID] = a.Name
	}
	var records []usage.Record
	for _, j := range jobs {
		records = append(records, usage.New(prev.Key, unit, j, names))
	}
	flush, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	if err := r.status.RecordUsage(flush, records...); err != nil {
		return fmt.Errorf("the usage of %d jobs is not recorded: %w: %w", len(jobs), err, runtimes.ErrWaiting)
	}
	return nil
}
