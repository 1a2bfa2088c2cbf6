package reconciler

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
