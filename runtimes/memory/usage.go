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

// ReadUsage implements runtimes.Meter. A unit without a clock has no accounting that answers.
func (r *Runtime) ReadUsage(_ context.Context, s runtimes.Scope, _ runtimes.Stamp, since time.Time) (runtimes.UsageReading, error) {
	at := r.world.clock(s.Key)
	if at.IsZero() {
		return runtimes.UsageReading{}, fmt.Errorf("the accounting of %s does not answer: %w", s.Key, runtimes.ErrWaiting)
	}
	reading := runtimes.UsageReading{At: at}
	for _, j := range r.world.used(s.Key) {
		if !j.Ended.Before(since) {
			reading.Jobs = append(reading.Jobs, j)
		}
	}
	return reading, nil
}

// AccountedDay implements runtimes.Meter.
func (r *Runtime) AccountedDay(_ context.Context, s runtimes.Scope, _ runtimes.Stamp, day time.Time) (cpuSeconds int64, ok bool, err error) {
	for _, j := range r.world.used(s.Key) {
		if j.Day() == day.Format(time.DateOnly) {
			cpuSeconds += j.Elapsed() * int64(j.CPUs)
		}
	}
	return cpuSeconds, !usage.NextDay(day).After(r.world.clock(s.Key)), nil
}
