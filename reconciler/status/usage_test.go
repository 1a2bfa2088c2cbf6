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

// RecordUsage returns once the remote has the records. While the remote is down, a caller that
// tries again adds nothing.
func TestUsageIsRecordedOnTheRemoteOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		records := []usage.Record{{Job: usage.Job{Cluster: "c", JobID: 1}}, {Job: usage.Job{Cluster: "c", JobID: 2}}}
		repo.setDown(errors.New("down"))
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			require.ErrorContains(t, w.RecordUsage(ctx, records...), "down")
			cancel()
		}
		repo.setDown(nil)
		require.NoError(t, w.RecordUsage(t.Context(), records...))
		require.NoError(t, w.RecordUsage(t.Context()))
		require.NoError(t, stop())
		var written []usage.Record
		for _, b := range repo.batches {
			written = append(written, b.Usage...)
		}
		require.Equal(t, records, written)
	})
}

// A later reading of a part that waits is written as a correction of it, once, also if a caller tries again.
func TestLaterReadingOfWaitingUsageIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
		reading := func(minutes, correction int) usage.Record {
			return usage.Record{Job: usage.Job{Cluster: "c", JobID: 1, Submitted: at, Started: at, Ended: at.Add(time.Duration(minutes) * time.Minute)}, Correction: correction}
		}
		repo.setDown(errors.New("down"))
		for _, minutes := range []int{1, 2, 2, 3} { // each corrects the record 4 of the branch
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			require.ErrorContains(t, w.RecordUsage(ctx, reading(minutes, 5)), "down")
			require.ErrorContains(t, w.FlushUsage(ctx), "down")
			cancel()
		}
		repo.setDown(nil)
		require.NoError(t, w.FlushUsage(t.Context()))
		require.NoError(t, w.FlushUsage(t.Context()), "nothing waits")
		require.NoError(t, stop())
		var written []usage.Record
		for _, b := range repo.batches {
			written = append(written, b.Usage...)
		}
		require.Equal(t, []usage.Record{reading(1, 5), reading(2, 6), reading(3, 7)}, written)
	})
}
