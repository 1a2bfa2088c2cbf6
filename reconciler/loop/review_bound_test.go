package loop

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// Many pull requests that change nothing displace no record that is compared after
// a merge.
func TestReviewsThatChangeNothingGoFirst(t *testing.T) {
	w := newWriter(nil, time.Second, slog.New(slog.DiscardHandler), time.Now)
	put := func(v plan.Review) { w.updateReview(v.Pull, func(*plan.Review) *plan.Review { return &v }) }
	put(plan.Review{Pull: 7, Shown: plan.Shown{Head: "h", Key: "k", Units: []plan.ReviewedUnit{{Key: schema.InstanceKey("physics", "lab", "train"), Digest: "d"}}}})
	for i := range maxReviews + 10 {
		put(plan.Review{Pull: 100 + i, Next: &plan.Shown{Head: "x", Key: "k"}})
	}
	require.Len(t, w.reviews.of, maxReviews)
	require.NotNil(t, w.reviews.of[7])
	require.Nil(t, w.reviews.of[100], "the oldest of the others")
}
