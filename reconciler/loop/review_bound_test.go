package loop

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// A flood of pull requests that change nothing takes no review away that counts.
func TestReviewsThatChangeNothingGoFirst(t *testing.T) {
	w := newWriter(nil, time.Second, slog.New(slog.DiscardHandler), time.Now)
	units := []plan.ReviewedUnit{{Key: schema.InstanceKey("physics", "lab", "train"), Digest: "d"}}
	w.intend(7, plan.Shown{Head: "h", Key: "k", Units: units})
	w.wasShown(7, plan.Shown{Head: "h", Key: "k", Units: units})
	for i := range maxReviews + 10 {
		w.intend(100+i, plan.Shown{Head: "x", Key: "k"})
	}
	require.Len(t, w.reviews.of, maxReviews)
	require.NotNil(t, w.review(7))
	require.Nil(t, w.reviews.of[100], "the oldest of the others")
}

// The plan of a command counts for applyKept. Afterwards nothing is kept of a pull
// request that held nothing else.
func TestPlansOfCommandsAreForgotten(t *testing.T) {
	now := time.Now()
	w := newWriter(nil, time.Second, slog.New(slog.DiscardHandler), func() time.Time { return now })
	w.reviews.put(plan.Review{Pull: 3, Shown: plan.Shown{Key: "shown"}})
	for _, pull := range []int{1, 3} {
		w.showApply(pull, plan.ApplyShown{Commit: "c", Digest: "d", Told: now})
	}
	shown, _ := w.applyShown("c", "d", now)
	require.True(t, shown)
	now = now.Add(applyKept + time.Minute)
	shown, since := w.applyShown("c", "d", now)
	require.False(t, shown || since)
	w.showApply(2, plan.ApplyShown{Commit: "e", Digest: "f", Told: now})
	require.Nil(t, w.reviews.of[1])
	require.True(t, w.reviews.gone[1])
	require.NotNil(t, w.reviews.of[3], "what was shown there is still compared")
	shown, _ = w.applyShown("e", "f", now)
	require.True(t, shown)
}
