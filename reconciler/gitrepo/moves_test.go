package gitrepo_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
)

// held is an estate of which the second version of an instance is held back,
// and a commit that somebody could put upon it: all of main, as Berth would
// write it.
func held(t *testing.T, r *gitrepo.Repo, s *gittest.Server) (main, tip, forged string) {
	t.Helper()
	before := fetch(t, r).Main
	old, err := r.Diff(t.Context(), "", before)
	require.NoError(t, err)
	main = s.MustCommit(t, "main", gittest.Commit{Message: "v2", Files: map[string]string{instancePath: "train v2\n"}})
	fetch(t, r)
	replace := map[string]string{}
	for _, c := range old {
		if c.Path == instancePath {
			replace[c.Path] = c.To
		}
	}
	tip, err = r.WriteInForce(t.Context(), "", reconciler.InForce{Commit: main, Replace: replace})
	require.NoError(t, err)
	require.Equal(t, tip, fetch(t, r).InForce)

	other := open(t, s)
	fetch(t, other)
	forged, err = other.WriteInForce(t.Context(), tip, reconciler.InForce{Commit: main, CorrelationID: "by-hand"})
	require.NoError(t, err)
	return main, tip, forged
}

// TestInForceMovedByHand: what somebody puts on berth/in-force while Berth runs
// is not taken over in passing, though it stands on what Berth wrote and every
// file of it is main's.
func TestInForceMovedByHand(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	dir := t.TempDir()
	in := func(o *gitrepo.Options) { o.Dir = dir }
	r := open(t, s, in)
	main, tip, forged := held(t, r, s)
	refused := func(why string) {
		tips, err := r.Fetch(t.Context())
		require.ErrorIs(t, err, reconciler.ErrRewritten, why)
		require.ErrorContains(t, err, tip, why)
		require.ErrorContains(t, err, forged, why)
		require.ErrorContains(t, err, "restart", why)
		require.Equal(t, tip, tips.InForce, why)
	}
	refused("first")
	refused("again")
	_, err := r.WriteInForce(t.Context(), tip, reconciler.InForce{Commit: main})
	require.ErrorIs(t, err, reconciler.ErrConflict, "nor is it written over")
	refused("after a push of its own that was refused")

	// That another daemon leads is seen all the same.
	status, err := open(t, s).WriteStatus(t.Context(), "", batch(1, main, unit("physics", "lhc", "train", plan.PhaseRunning)))
	require.NoError(t, err)
	next := s.MustCommit(t, "main", gittest.Commit{Message: "v3", Files: map[string]string{"platform/x": "y"}})
	tips, err := r.Fetch(t.Context())
	require.ErrorIs(t, err, reconciler.ErrRewritten)
	require.Equal(t, reconciler.Tips{Main: next, InForce: tip, Status: status}, tips)

	// Nor does a new mirror let it in.
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "mirror.git/objects")))
	for range 3 {
		_, _ = tryContents(t.Context(), r, next)
		refused("damaged")
	}

	require.NoError(t, s.SetRef("refs/heads/berth/in-force", tip))
	require.Equal(t, tip, fetch(t, r).InForce, "it was put back")
	tip, err = r.WriteInForce(t.Context(), tip, reconciler.InForce{Commit: next})
	require.NoError(t, err)
	require.Equal(t, tip, fetch(t, r).InForce)
}

// Whoever has looked at what was put there takes it over, by a restart or by
// accepting it.
func TestInForceMovedByHandIsTakenOver(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(t *testing.T, r *gitrepo.Repo, s *gittest.Server, dir, main string) *gitrepo.Repo{
		"restarted": func(t *testing.T, r *gitrepo.Repo, s *gittest.Server, dir, _ string) *gitrepo.Repo {
			require.NoError(t, r.Close())
			return open(t, s, func(o *gitrepo.Options) { o.Dir = dir })
		},
		"restarted elsewhere": func(t *testing.T, _ *gitrepo.Repo, s *gittest.Server, _, _ string) *gitrepo.Repo {
			return open(t, s)
		},
		"accepted": func(t *testing.T, r *gitrepo.Repo, _ *gittest.Server, _, main string) *gitrepo.Repo {
			_, err := r.Accept(t.Context(), main)
			require.NoError(t, err)
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := gittest.New(t, estateFiles())
			dir := t.TempDir()
			r := open(t, s, func(o *gitrepo.Options) { o.Dir = dir })
			main, tip, forged := held(t, r, s)
			tips, err := r.Fetch(t.Context())
			require.ErrorIs(t, err, reconciler.ErrRewritten)
			require.Equal(t, tip, tips.InForce)
			r = take(t, r, s, dir, main)
			require.Equal(t, forged, fetch(t, r).InForce)
			require.Equal(t, "train v2\n", contents(t, r, forged)[instancePath])
		})
	}
}

// What a daemon that led before had under way arrives after the next one's first
// look, and is taken over; what is put there later is not.
func TestInForceOfThePredecessor(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	first := open(t, s)
	one, err := first.WriteInForce(t.Context(), "", reconciler.InForce{Commit: fetch(t, first).Main})
	require.NoError(t, err)
	now := time.Now()
	second := open(t, s, func(o *gitrepo.Options) {
		o.Timeout = time.Minute
		o.Now = func() time.Time { return now }
	})
	require.Equal(t, one, fetch(t, second).InForce)
	move := func(tip string) string {
		s.MustCommit(t, "main", gittest.Commit{Message: "next", Files: map[string]string{"platform/x": tip}})
		next, err := first.WriteInForce(t.Context(), tip, reconciler.InForce{Commit: fetch(t, first).Main})
		require.NoError(t, err)
		return next
	}
	two := move(one)
	require.Equal(t, two, fetch(t, second).InForce)
	now = now.Add(3 * time.Minute)
	move(two)
	tips, err := second.Fetch(t.Context())
	require.ErrorIs(t, err, reconciler.ErrRewritten)
	require.Equal(t, two, tips.InForce)
}

// TestInForceLostReply: a push of its own whose answer was lost is its own.
func TestInForceLostReply(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	calls := 1000
	r := open(t, s, func(o *gitrepo.Options) {
		o.Auth = func(context.Context) (gitrepo.Credentials, error) {
			if calls--; calls < 0 {
				return gitrepo.Credentials{}, errors.New("no call is left")
			}
			return gitrepo.Credentials{}, nil
		}
	})
	main := fetch(t, r).Main
	one, err := r.WriteInForce(t.Context(), "", reconciler.InForce{Commit: main})
	require.NoError(t, err)
	next := s.MustCommit(t, "main", gittest.Commit{Message: "v2", Files: map[string]string{instancePath: "train v2\n"}})
	fetch(t, r)

	s.SetFaults(gittest.Faults{DropReplies: 1})
	calls = 1 // the push; then the remote cannot be asked whether it arrived
	_, err = r.WriteInForce(t.Context(), one, reconciler.InForce{Commit: next})
	require.ErrorContains(t, err, "not known")
	calls = 1000
	two := s.Tip("berth/in-force")
	require.NotEqual(t, one, two)
	require.Equal(t, two, fetch(t, r).InForce)
	require.Equal(t, "train v2\n", contents(t, r, two)[instancePath])
}
