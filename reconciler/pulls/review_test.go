package pulls

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
)

// reviewStatus keeps records of pull requests in memory.
type reviewStatus struct {
	Status
	of map[int]*plan.Review
}

func (s reviewStatus) Reviews() map[int]*plan.Review { return maps.Clone(s.of) }

func (s reviewStatus) UpdateReview(pull int, change func(*plan.Review) *plan.Review) uint64 {
	if v := change(s.of[pull]); v != nil {
		s.of[pull] = v
	} else {
		delete(s.of, pull)
	}
	return 0
}

// The plan of a command counts for applyKept. Afterwards nothing is kept of a pull
// request that held nothing else.
func TestPlansOfCommandsAreForgotten(t *testing.T) {
	now := time.Now()
	status := reviewStatus{of: map[int]*plan.Review{3: {Pull: 3, Shown: plan.Shown{Key: "shown"}}}}
	r := reviews{status, func() time.Time { return now }}
	for _, pull := range []int{1, 3} {
		r.showApply(pull, plan.ApplyShown{Commit: "c", Digest: "d", At: now})
	}
	shown, _ := r.applyShown("c", "d", now)
	require.True(t, shown)
	now = now.Add(applyKept + time.Minute)
	shown, since := r.applyShown("c", "d", now)
	require.False(t, shown || since)
	r.showApply(2, plan.ApplyShown{Commit: "e", Digest: "f", At: now})
	require.Nil(t, status.of[1])
	require.NotNil(t, status.of[3], "what was shown there is still compared")
	shown, _ = r.applyShown("e", "f", now)
	require.True(t, shown)
}
