package status

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// Reviews without units do not displace a review that is compared after a merge.
func TestReviewsWithoutUnitsAreDroppedFirst(t *testing.T) {
	w := newWriter(t, nil, time.Second)
	put := func(v plan.Review) { w.Reviews.Update(v.Pull, func(*plan.Review) *plan.Review { return &v }) }
	put(plan.Review{Pull: 7, Shown: plan.Shown{Head: "h", Key: "k",
		Units: []plan.ReviewedUnit{{Key: schema.InstanceKey("physics", "lab", "train"), Digest: "d"}}}})
	for i := range maxReviews + 10 {
		put(plan.Review{Pull: 100 + i, Next: &plan.Shown{Head: "x", Key: "k"}})
	}
	require.Len(t, w.Reviews.of, maxReviews)
	require.NotNil(t, w.Reviews.of[7])
	require.Nil(t, w.Reviews.of[100], "the oldest other review")
}
