package daemon

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/composed"
	"berth/reconciler/gitrepo/gittest"
)

func TestRewrittenHistoryIsAcceptedOnce(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, map[string]string{"platform/x": "1"})
	root := s.Tip("main")
	main := s.MustCommit(t, "main", gittest.Commit{Message: "Second", Files: map[string]string{"platform/x": "2"}})
	dir := t.TempDir()
	var log bytes.Buffer
	// start is the daemon's repository after a restart.
	start := func(accept string) *acceptingRepo {
		r, err := composed.OpenComposed(t.Context(), gitrepo.Options{URL: s.URL, Dir: dir}, composed.Composition{})
		require.NoError(t, err)
		return &acceptingRepo{Composed: r, commit: accept, log: slog.New(slog.NewTextHandler(&log, nil))}
	}
	a := start(main)
	tips, err := a.Fetch(t.Context())
	require.NoError(t, err)
	require.Equal(t, main, tips.Main)
	require.Contains(t, log.String(), "history not rewritten")
	inForce, err := a.WriteInForce(t.Context(), "", reconciler.InForce{Commit: main})
	require.NoError(t, err)

	forged := s.MustCommit(t, "main", gittest.Commit{Message: "Rewritten", Parent: root, Files: map[string]string{"platform/x": "3"}})
	_, err = a.Fetch(t.Context())
	require.ErrorIs(t, err, reconciler.ErrRewritten, "it counts at the start only")
	require.NoError(t, a.Close())

	a = start(main)
	tips, err = a.Fetch(t.Context())
	require.ErrorIs(t, err, reconciler.ErrRewritten)
	require.NotErrorIs(t, err, reconciler.ErrConflict)
	require.ErrorContains(t, err, "not at the accepted "+main)
	require.Equal(t, reconciler.Tips{Main: main, InForce: inForce}, tips)
	require.NoError(t, a.Close())

	s.SetFaults(gittest.Faults{Down: true})
	a = start(forged)
	_, err = a.Fetch(t.Context())
	require.Error(t, err)
	s.SetFaults(gittest.Faults{})
	log.Reset()
	tips, err = a.Fetch(t.Context())
	require.NoError(t, err, "the start lasts until the remote answers")
	require.Equal(t, reconciler.Tips{Main: forged, InForce: inForce}, tips)
	for _, id := range []string{main, forged, inForce} {
		require.Contains(t, log.String(), id, "the log has the correlation id of the accepted history")
	}
	_, err = a.WriteInForce(t.Context(), inForce, reconciler.InForce{Commit: forged})
	require.NoError(t, err)

	require.NoError(t, s.SetRef("refs/heads/main", main))
	_, err = a.Fetch(t.Context())
	require.ErrorIs(t, err, reconciler.ErrRewritten)
	require.NoError(t, s.SetRef("refs/heads/main", root))
	_, err = a.Fetch(t.Context())
	require.ErrorIs(t, err, reconciler.ErrRewritten)
	require.NoError(t, a.Close())
}
