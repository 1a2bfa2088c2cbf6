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
