package status

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
)

// revision.yaml stays readable regardless of the size of a tenant's texts.
func TestRevisionIsBounded(t *testing.T) {
	t.Parallel()
	const documents, notices, digest = 1000, 50, "0123456789abcdef"
	for name, text := range map[string]string{
		"long": strings.Repeat("x", 12<<10), "escaped": strings.Repeat("\x01\U0001F600", 3<<10), "lines": strings.Repeat("x\n", 6<<10),
	} {
		w := newWriter(t, &statusRepo{}, time.Hour)
		var held []schema.Held
		for i := range documents {
			held = append(held, schema.Held{
				Key: schema.InstanceKey("physics", "lhc", fmt.Sprint("i", i)), File: fmt.Sprintf("tenants/physics/%d/%s.yaml", i, text), Reason: "denied",
				Message: text + ": with the trailer " + decide.AckTrailer + ": " + digest,
			})
		}
		was := held[0]
		w.Revise(func(rev *reconciler.Revision) {
			rev.Held, rev.HeldMore, rev.Frozen = held, 7, text
			for i := range notices {
				rev.Notices = append(rev.Notices, fmt.Sprintf("tenant t%d: %s", i, text))
			}
		})
		rev := w.Revision()
		data, err := yaml.Marshal(rev)
		require.NoError(t, err)
		require.Less(t, len(data), reconciler.MaxRevision-4096, name)
		require.Equal(t, documents+7, len(rev.Held)+rev.HeldMore, name)
		require.Greater(t, len(rev.Held), 200, name)
		require.Len(t, rev.Notices, notices)
		require.True(t, strings.HasPrefix(rev.Notices[1], "tenant t1: "))
		require.Equal(t, was, held[0], "the decision in memory is not cut")
		require.Equal(t, digest, decide.AckOf(rev.Held[0]), "the acknowledgement digest survives a restart")
		for i, h := range rev.Held {
			require.Equal(t, CutHeld(held[i]), h, "the loop recognizes it after a restart")
		}
		again := w.count
		w.Revise(func(rev *reconciler.Revision) { rev.Held, rev.HeldMore, rev.Frozen = held, 7, text })
		require.Equal(t, again, w.count, "nothing changed")
	}
}

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
