package inspect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A month is closed only once it is over, also for a unit that is gone.
func TestMonthIsClosedOnceItIsOver(t *testing.T) {
	during, after := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC), time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		now    time.Time
		isGone bool
		last   string
		want   bool
	}{{during, true, "2026-11-25", false}, {after, true, "2026-11-25", true}, {after, false, "2026-11-29", false}, {after, false, "2026-11-30", true}, {during, false, "2026-11-30", false}} {
		require.Equal(t, c.want, isClosed("2026-11-30", c.now, c.isGone, c.last), "%v", c)
	}
}
