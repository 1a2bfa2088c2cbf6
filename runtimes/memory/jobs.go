package memory

import (
	"context"
	"fmt"
	"strconv"

	"berth/reconciler/plan"
	"berth/runtimes"
)

// Submit implements runtimes.Jobs. The job counts as completed at once and is not run.
func (r *Runtime) Submit(ctx context.Context, u *plan.Unit, stamp runtimes.Stamp, spec runtimes.JobSpec) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("submit %s: %w", spec.Name, err)
	}
	control, ok := u.Control()
	if !ok {
		return "", fmt.Errorf("submit %s: the unit has no control plane", spec.Name)
	}
	var id int
	err := r.world.step(stamp, u.Instance.Key, control.Node, "submit "+spec.Name, func(u *unit) {
		u.NextJob++
		id = u.NextJob
	})
	if err != nil {
		return "", err
	}
	return strconv.Itoa(id), nil
}

// Job implements runtimes.Jobs.
func (r *Runtime) Job(_ context.Context, u *plan.Unit, id string) (runtimes.Job, error) {
	w := r.world
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := strconv.Atoi(id)
	if known := w.units[u.Instance.Key]; err != nil || known == nil || n < 1 || n > known.NextJob {
		return runtimes.Job{}, fmt.Errorf("%s has no job %q", u.Instance.Key, id)
	}
	return runtimes.Job{ID: id, State: runtimes.JobCompleted, Detail: "not run: this runtime has no hosts"}, nil
}

var _ runtimes.Jobs = (*Runtime)(nil)
