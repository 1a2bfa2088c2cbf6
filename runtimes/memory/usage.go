package memory

import (
	"context"
	"fmt"
	"strings"
	"time"

	"berth/runtimes"
	"berth/schema"
	"berth/schema/usage"
)

var _ runtimes.Meter = (*Runtime)(nil)

// Cluster implements runtimes.Meter. It is the name of a directory on berth/status.
func (r *Runtime) Cluster(key schema.Key) string {
	return strings.NewReplacer(" ", "_", "/", "_").Replace(key.String())
}

// ReadUsage implements runtimes.Meter. A unit without a clock has no accounting that answers. A job without an end runs,
// since today.
func (r *Runtime) ReadUsage(_ context.Context, s runtimes.Scope, _ runtimes.Stamp, of runtimes.UsageRange) (runtimes.UsageReading, error) {
	at := r.world.clock(s.Key)
	if at.IsZero() {
		return runtimes.UsageReading{}, fmt.Errorf("the accounting of %s does not answer: %w", s.Key, runtimes.ErrWaiting)
	}
	reading := runtimes.UsageReading{At: at}
	for _, j := range r.world.used(s.Key) {
		if j.Ended.IsZero() {
			if !of.ToNow || !at.After(j.Started) {
				continue
			}
			j.Ended = at
		}
		if j.StartDay() >= of.Since.UTC().Format(time.DateOnly) {
			reading.Jobs = append(reading.Jobs, j)
		}
	}
	return reading, nil
}

// AccountedDay implements runtimes.Meter. Each unit has 8 CPUs and 2 GPUs.
func (r *Runtime) AccountedDay(
	_ context.Context, s runtimes.Scope, _ runtimes.Stamp, day time.Time,
) (report usage.DayReport, ok bool, err error) {
	report.Unused = &usage.Unused{IdleCPUs: 8 * 24 * 3600, IdleGPUs: 2 * 24 * 3600}
	for _, j := range r.world.used(s.Key) {
		if j.StartDay() == day.Format(time.DateOnly) {
			report.CPUs += j.Elapsed() * int64(j.CPUs)
			report.Unused.IdleGPUs -= j.Held() * int64(j.GPUs)
		}
	}
	report.Unused.IdleCPUs -= report.CPUs
	return report, !usage.NextDay(day).After(r.world.clock(s.Key)), nil
}
