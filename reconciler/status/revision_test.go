package status

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
)

// An unreadable revision is never treated as an empty one: events and the audit chain
// do not start again.
func TestUnreadableRevisionStopsWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		put(w, phase(plan.PhaseRunning))
		require.NoError(t, w.Flush(t.Context()))
		was := repo.trees[repo.tip-1]

		spoil := func(why string) {
			repo.mu.Lock()
			defer repo.mu.Unlock()
			next := was
			if why != "" {
				next.Revision = reconciler.Revision{}
			}
			next.Unread = why
			repo.trees = append(repo.trees, next)
			repo.batches = append(repo.batches, reconciler.StatusBatch{})
			repo.tip++
		}
		spoil("larger than 1048576 bytes")
		require.ErrorContains(t, w.Fetched(t.Context(), repo.id()), "larger than 1048576 bytes")
		n := len(repo.batches)
		put(w, phase(plan.PhaseStopped))
		time.Sleep(time.Minute)
		require.Len(t, repo.batches, n)
		require.ErrorContains(t, w.lastErr, "revision.yaml")
		other := newWriter(t, repo, time.Second)
		require.ErrorContains(t, other.Lead(t.Context()), "commit its last readable version from the history")
		require.Len(t, repo.batches, n)
		require.NotErrorIs(t, w.lastErr, ErrDeposed)

		spoil("") // the file is restored
		time.Sleep(time.Minute)
		require.NoError(t, w.Flush(t.Context()))
		require.EqualValues(t, len(repo.events()), repo.trees[repo.tip-1].Revision.Sequence)
		require.NoError(t, other.Lead(t.Context()))
		require.ErrorIs(t, stopped(w, stop), ErrDeposed)
	})
}

// stopped returns the error of a writer that has a change to write, in a bubble.
func stopped(w *Writer, stop func() error) error {
	put(w, phase(plan.PhaseRunning))
	time.Sleep(time.Minute)
	return stop()
}
