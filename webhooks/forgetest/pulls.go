package forgetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
)

func (s *suite) permission(t *testing.T) {
	may := func(login string) reconciler.Permission {
		t.Helper()
		p, err := s.c().Permission(t.Context(), login)
		require.NoError(t, err)
		return p
	}
	for _, p := range []reconciler.Permission{reconciler.CanRead, reconciler.CanWrite, reconciler.CanAdmin, reconciler.CanWrite,
		reconciler.NoPermission} {
		s.Permit("carla", p)
		require.Equal(t, p, may("carla"), "the current permission")
	}
	for _, nobody := range []string{"nobody-of-that-name", "", "..", "../../../user", "a/b", "a?b", "a%2fb", "a b", "ä"} {
		require.Equal(t, reconciler.NoPermission, may(nobody), nobody)
	}
}

func (s *suite) pulls(t *testing.T) {
	one, fork, gone := s.Open(false), s.Open(true), s.Open(false)
	for _, want := range []reconciler.PullRequest{one, fork} {
		got, err := s.c().Pull(t.Context(), want.Number)
		require.NoError(t, err)
		require.False(t, got.Updated.IsZero())
		want.Updated = got.Updated
		require.Equal(t, want, got)
	}
	require.False(t, one.Fork)
	require.True(t, fork.Fork)
	s.Close(gone.Number)
	open := map[int]bool{}
	list, err := s.c().OpenPulls(t.Context())
	require.NoError(t, err)
	for i, pr := range list {
		require.True(t, pr.Open)
		require.Equal(t, pr.Number == fork.Number, pr.Fork && pr.Number >= one.Number)
		require.True(t, i == 0 || list[i-1].Number < pr.Number, "by number")
		open[pr.Number] = true
	}
	require.True(t, open[one.Number] && open[fork.Number] && !open[gone.Number])

	s.Approve(one.Number, "bob")
	who, err := s.c().Approvers(t.Context(), one)
	require.NoError(t, err)
	require.Equal(t, []string{"bob"}, who)
	s.Push(one.Number)
	now, err := s.c().Pull(t.Context(), one.Number)
	require.NoError(t, err)
	require.NotEqual(t, one.Head, now.Head)
	who, err = s.c().Approvers(t.Context(), now)
	require.NoError(t, err)
	require.Empty(t, who, "that was of another head")

	commit := s.Merge(one.Number)
	brought, err := s.c().PullsOf(t.Context(), commit)
	require.NoError(t, err)
	require.Len(t, brought, 1)
	require.Equal(t, []any{one.Number, true, false, commit},
		[]any{brought[0].Number, brought[0].Merged, brought[0].Open, brought[0].MergeCommit})
	require.NoError(t, s.c().Comment(t.Context(), one.Number, reconciler.Comment{Rollout: text("queued")}),
		"a merged one is spoken of still")
}

func (s *suite) missing(t *testing.T) {
	const none = 99_999
	_, err := s.c().Pull(t.Context(), none)
	require.ErrorIs(t, err, reconciler.ErrNotFound)
	require.ErrorIs(t, s.c().Comment(t.Context(), none, reconciler.Comment{Plan: text("p")}), reconciler.ErrNotFound)
	_, err = s.c().CommandsOf(t.Context(), none)
	require.ErrorIs(t, err, reconciler.ErrNotFound)
	_, err = s.c().CommandsOf(t.Context(), 0)
	require.ErrorIs(t, err, reconciler.ErrNotFound)
	require.Error(t, s.c().Report(t.Context(), strings.Repeat("f", 40), check(plan.CheckPlan, "k", plan.Success, 0)), "no such commit")
}
