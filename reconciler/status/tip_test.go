package status

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
)

// Who follows the tip wakes with each commit that is on the remote, and with the end of leadership (requirement E7).
func TestTipIsFollowed(t *testing.T) {
	_, _, leads := newWriter(t, &statusRepo{}, time.Second).FollowTip()
	require.False(t, leads, "before leadership")
	synctest.Test(t, func(t *testing.T) {
		w, stop := startWriter(t, &statusRepo{}, time.Second)
		first, moved, leads := w.FollowTip()
		require.True(t, leads)
		w.Announce(plan.Event{EventID: "e1", EventType: "x", OccurredAt: time.Now()})
		<-moved
		second, moved, leads := w.FollowTip()
		require.True(t, leads)
		require.NotEqual(t, first, second)
		require.Equal(t, w.Tip(), second)
		require.NoError(t, stop())
		<-moved
		_, _, leads = w.FollowTip()
		require.False(t, leads)
	})
}
