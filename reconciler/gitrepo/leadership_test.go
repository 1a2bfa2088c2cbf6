package gitrepo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
)

// Two processes that make the same commit in the same second push the same id.
// Only the push that moved the branch succeeds; the other is a conflict.
func TestIdenticalPushOfAnotherProcessIsAConflict(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	second := time.Unix(1_800_000_000, 0)
	same := func(o *gitrepo.Options) { o.Now = func() time.Time { return second } }
	first, other := open(t, s, same), open(t, s, same)
	main := fetch(t, first).Main
	fetch(t, other)

	b := batch(1, main, unit("physics", "lhc", "train", plan.PhaseRunning))
	tip, err := first.WriteStatus(t.Context(), "", b)
	require.NoError(t, err)
	require.Equal(t, tip, s.Tip(reconciler.BranchStatus))
	_, err = other.WriteStatus(t.Context(), "", b)
	require.ErrorIs(t, err, reconciler.ErrConflict, "status")

	inForce := reconciler.InForce{Commit: main, Epoch: 3}
	_, err = first.WriteInForce(t.Context(), "", inForce)
	require.NoError(t, err)
	_, err = other.WriteInForce(t.Context(), "", inForce)
	require.ErrorIs(t, err, reconciler.ErrConflict, "in-force")

	// After a lost response, the own push still succeeds.
	s.SetFaults(gittest.Faults{DropReplies: 1})
	fetch(t, other)
	next, err := other.WriteStatus(t.Context(), tip, batch(2, main))
	require.NoError(t, err)
	require.Equal(t, next, s.Tip(reconciler.BranchStatus))
}
