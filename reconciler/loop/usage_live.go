package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"berth/reconciler"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/usage"
)

// liveUsage reads what jobs used until now, for people who ask. It writes nothing. Closed days never change, so it reads
// each once.
type liveUsage struct {
	*usageCollector
	closed sync.Map // of clusterDay to []usage.DaySum, for the last liveDays days
}

// clusterDay is a day of a cluster.
type clusterDay struct{ cluster, day string }

// liveTimeout bounds a reading of accounting for people who wait.
const liveTimeout = 30 * time.Second

// liveDays is the number of days that are shown, with today.
const liveDays = 31

// LiveUsage returns what jobs used of a unit on the last 31 days. The open days are read from its accounting, as the
// collection reads them, with what jobs that run used until now; if that fails, they are as last written. The error is
// that of an unknown unit, or of unreadable records.
func (r *Reconciler) LiveUsage(ctx context.Context, unit schema.Key) (usage.LiveUsage, error) {
	got, err := r.liveUsage.read(ctx, unit)
	if err != nil {
		r.o.Log.Warn("recorded usage of a unit unreadable", "unit", unit.String(), "error", err)
	}
	return got, err
}

func (l *liveUsage) read(ctx context.Context, unit schema.Key) (out usage.LiveUsage, err error) {
	began, prev := l.now().UTC(), l.status.Unit(unit)
	reader, ok := l.repo.(reconciler.UsageReader)
	if prev == nil || !ok || l.inForce.current() == nil {
		return out, fmt.Errorf("%s is unknown", unit)
	}
	meter := l.meters[newView(l.inForce.current(), prev, began).backend()]
	if meter == nil {
		return usage.LiveUsage{Reason: "its backend has no accounting"}, nil
	}
	closed, err := reader.ClosedUsage(ctx, l.status.Tip())
	if err != nil {
		return out, fmt.Errorf("read which days are closed: %w", err)
	}
	m := metered{prev: prev, cluster: meter.Cluster(unit)}
	m.first = max(dayAfter(closed[m.cluster]), prev.BegunOn)
	from := began.AddDate(0, 0, 1-liveDays).Format(time.DateOnly)
	if out.Days, err = l.closedDays(ctx, m, from); err != nil {
		return out, err
	}
	records, reason := l.openDaysNow(ctx, m)
	out.ObservedAt, out.Reason = began, reason
	if reason != "" {
		if records, err = l.recorded(ctx, m, m.first); err != nil {
			return out, err
		}
		out.ObservedAt = writtenUntil(m, records)
	}
	records = slices.DeleteFunc(records, func(r usage.Record) bool { return r.Day < from })
	out.Days = append(out.Days, usage.DaySums(records, false)...)
	return out, ctx.Err()
}

// writtenUntil returns until when the written usage of a unit is known: each run that ended before is in it. It is zero if no day is
// closed and no record written.
func writtenUntil(m metered, open []usage.Record) time.Time {
	until, _ := time.Parse(time.DateOnly, m.first) // zero if it is unknown
	for i := range open {
		if end := open[i].Ended; end.After(until) && open[i].Corrects == "" {
			until = end
		}
	}
	return until.UTC()
}

// openDaysNow reads the open days of a unit from its accounting, or returns why it cannot.
func (l *liveUsage) openDaysNow(ctx context.Context, m metered) (records []usage.Record, reason string) {
	meter, ok := l.meterOf(m.prev)
	if !ok {
		return nil, "the unit is stopped or being changed"
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	open, err := l.readOpenDays(ctx, m, meter, true)
	switch {
	case errors.Is(err, runtimes.ErrWaiting):
		return nil, "accounting does not have all that ended yet"
	case err != nil:
		l.unitLog(m.prev).Warn("usage of a unit not read; the last written one is shown", "error", err)
		return nil, "accounting does not answer"
	}
	return slices.Concat(slices.Collect(maps.Values(open.days))...), ""
}

// closedDays returns the sums of the closed days of a unit from a day on.
func (l *liveUsage) closedDays(ctx context.Context, m metered, from string) (sums []usage.DaySum, err error) {
	for at := range l.closed.Range {
		if at.(clusterDay).day < from {
			l.closed.Delete(at)
		}
	}
	for day := from; day < m.first; day = dayAfter(day) {
		of, ok := l.closed.Load(clusterDay{m.cluster, day})
		if !ok {
			if err := l.readClosedDays(ctx, m, day); err != nil {
				return nil, err
			}
			of, ok = l.closed.Load(clusterDay{m.cluster, day})
		}
		if ok { // else the day became too old meanwhile
			sums = append(sums, of.([]usage.DaySum)...)
		}
	}
	return sums, nil
}

// readClosedDays reads the closed days of a unit from a day on, and keeps their sums. It has the records of one day at a
// time.
func (l *liveUsage) readClosedDays(ctx context.Context, m metered, from string) error {
	var records []usage.Record
	keepTo := func(next string) { // keeps the sums of from, and none for later days before next
		sums := usage.DaySums(records, true)
		for ; from < next; from = dayAfter(from) {
			l.closed.Store(clusterDay{m.cluster, from}, sums)
			sums = nil
		}
		records = records[:0]
	}
	for rec, err := range l.recordsOf(ctx, m, from) {
		if err != nil {
			return err
		}
		if rec.Day >= m.first {
			break
		}
		if rec.Day > from {
			keepTo(rec.Day)
		}
		records = append(records, rec)
	}
	keepTo(m.first)
	return ctx.Err()
}
