package status

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/schema/usage"
)

// RecordUsage returns once the remote has the days and closings, which are in one commit. While the remote is
// down, what waits is written in order.
func TestUsageIsRecordedOnTheRemote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		day := func(jobs ...int) (days []usage.Day) {
			d := usage.Day{Cluster: "c", Date: "2026-11-01"}
			for _, id := range jobs {
				d.Records = append(d.Records, usage.Record{Job: usage.Job{Cluster: "c", JobID: id}})
			}
			return append(days, d)
		}
		closed := []usage.Closing{{Cluster: "c", Day: "2026-11-01"}}
		repo.setDown(errors.New("down"))
		for i, closings := range [][]usage.Closing{nil, closed} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			require.ErrorContains(t, w.RecordUsage(ctx, day(1, 2, 3), closings), "down", i)
			require.ErrorContains(t, w.FlushUsage(ctx), "down")
			cancel()
		}
		repo.setDown(nil)
		require.NoError(t, w.FlushUsage(t.Context()))
		require.NoError(t, w.FlushUsage(t.Context()), "nothing waits")
		require.NoError(t, w.RecordUsage(t.Context(), day(1), nil))
		require.NoError(t, w.RecordUsage(t.Context(), nil, nil))
		require.NoError(t, stop())
		var written [][]usage.Day
		for _, b := range repo.batches {
			if len(b.Usage) > 0 {
				written = append(written, b.Usage)
				require.Len(t, b.Closings, len(b.Usage)-1)
			}
		}
		require.Equal(t, [][]usage.Day{append(day(1, 2, 3), day(1, 2, 3)...), day(1)}, written)
	})
}
