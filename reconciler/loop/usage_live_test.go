package loop

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
	"berth/schema"
	"berth/schema/usage"
)

// living has a unit with a closed day, October 30th, and an open one that is written. On the open day, the accounting has
// a job that ended since, and one that runs.
func living(t *testing.T) (branch *usageBranch, l *liveUsage, meter *meterOf, read func() usage.LiveUsage) {
	branch, c, meter, unit, _ := waitingUsage(t)
	branch.setDown(nil)
	require.NoError(t, c.status.Fetched(t.Context(), "tip"))
	_, ok := c.status.SetUnit(nil, *unit)
	require.True(t, ok)
	require.NoError(t, c.status.Flush(t.Context()))
	branch.closed = map[string]string{"c": "2026-10-30"}
	day := time.Date(2026, 10, 31, 0, 0, 0, 0, time.UTC)
	job := func(id, from, to int) usage.Job {
		at := day.Add(time.Duration(from) * time.Hour)
		return usage.Job{Cluster: "c", JobID: id, Submitted: at, Started: at, Ended: day.Add(time.Duration(to) * time.Hour),
			State: "COMPLETED", Resources: usage.Resources{CPUs: 1}}
	}
	meter.jobs = append(meter.jobs[1:], job(2, 2, 5))
	meter.running = []usage.Job{job(3, 4, 7)}
	l = &liveUsage{usageCollector: c}
	return branch, l, meter, func() usage.LiveUsage {
		t.Helper()
		got, err := l.read(t.Context(), unit.Key)
		require.NoError(t, err)
		return got
	}
}

// hoursOf returns the days of usage with their state and hours.
func hoursOf(days []usage.DaySum) (all []string) {
	for _, d := range days {
		all = append(all, fmt.Sprint(d.Day, " ", d.Closed, " ", d.Jobs, " ", d.CPUSeconds/3600))
	}
	return all
}

// Usage until now is that of the closed days, and that of accounting for the open ones, also of jobs that run. It writes
// nothing. It is what the collection writes once the jobs have ended.
func TestUsageUntilNowIsWhatIsWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		branch, l, meter, read := living(t)
		before, tip := branch.writes, branch.hours()
		got := read()
		require.Equal(t, []string{"2026-10-30 true 1 4", "2026-10-31 false 3 12"}, hoursOf(got.Days))
		require.Equal(t, []any{meter.at, ""}, []any{got.ObservedAt, got.Reason})
		require.Equal(t, []any{1, before, tip}, []any{meter.asked, branch.writes, branch.hours()})

		meter.jobs, meter.running = append(meter.jobs, meter.running...), nil
		require.NoError(t, l.collect(t.Context()))
		require.Equal(t, usage.DaySums(branch.days["2026-10-31"], false), got.Days[1:])
		require.Equal(t, got.Days, read().Days)
	})
}

// If accounting cannot be read, the answer is what was written last, with its time and the reason.
func TestFailedReadingShowsWhatWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		branch, l, meter, read := living(t)
		for reason, err := range map[string]error{
			"accounting does not have all that ended yet": fmt.Errorf("job 7 lacks: %w", runtimes.ErrWaiting),
			"accounting does not answer":                  errors.New("host gpu-1: no route"),
		} {
			meter.err = err
			got := read()
			require.Equal(t, []any{meter.at.Add(-time.Hour), reason}, []any{got.ObservedAt, got.Reason}, "the end of the written job")
			require.Equal(t, []string{"2026-10-30 true 1 4", "2026-10-31 false 1 6"}, hoursOf(got.Days))
		}
		branch.days["2026-10-31"] = nil
		require.Equal(t, "2026-10-31 00:00:00 +0000 UTC", read().ObservedAt.String(), "the end of the closed day")
		l.meters = nil
		require.Equal(t, usage.LiveUsage{Reason: "its backend has no accounting"}, read())
	})
}

// A closed day is read once, however often people ask, and no day is shown after 31 days. Unreadable records are an error,
// and not a day without use.
func TestClosedDaysAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		branch, l, meter, read := living(t)
		branch.reads = nil
		read()
		read()
		require.Equal(t, []string{"2026-10-01", "2026-10-30", "2026-10-30"}, branch.reads)
		meter.at = meter.at.AddDate(0, 0, 30)
		require.Equal(t, []string{"2026-10-31 false 3 12"}, hoursOf(read().Days))
		_, kept := l.closed.Load(clusterDay{"c", "2026-10-30"})
		require.False(t, kept)
		meter.at = meter.at.AddDate(0, 0, 1)
		require.Empty(t, read().Days, "also an open day")
		branch.damaged = errors.New("usage/2026-10-31/physics/c.jsonl:1: not a usage record")
		_, err := l.read(t.Context(), schema.InstanceKey("physics", "lab", "train"))
		require.ErrorIs(t, err, branch.damaged)
	})
}
