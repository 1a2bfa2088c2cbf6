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

// heldChange returns an estate with a held second version of an instance. It also
// returns a forged commit for in-force with all of main, in Berth's format.
func heldChange(t *testing.T, r *gitrepo.Repo, s *gittest.Server) (main, tip, forged string) {
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

// Berth refuses a commit that another writer pushed to berth/in-force while it
// runs, even on top of its own commit and with files of main only.
func TestForeignMoveOfInForceIsRefused(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	dir := t.TempDir()
	in := func(o *gitrepo.Options) { o.Dir = dir }
	r := open(t, s, in)
	main, tip, forged := heldChange(t, r, s)
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
	require.ErrorIs(t, err, reconciler.ErrConflict, "the forged commit is not overwritten")
	refused("after a push of its own that was refused")

	// The commit of another leader is still visible.
	status, err := open(t, s).WriteStatus(t.Context(), "", batch(1, main, unit("physics", "lhc", "train", plan.PhaseRunning)))
	require.NoError(t, err)
	next := s.MustCommit(t, "main", gittest.Commit{Message: "v3", Files: map[string]string{"platform/x": "y"}})
	tips, err := r.Fetch(t.Context())
	require.ErrorIs(t, err, reconciler.ErrRewritten)
	require.Equal(t, reconciler.Tips{Main: next, InForce: tip, Status: status}, tips)

	// A new mirror does not accept the forged commit either.
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "mirror.git/objects")))
	for range 3 {
		_, _ = tryContents(t.Context(), r, next)
		refused("damaged")
	}

	require.NoError(t, s.SetRef("refs/heads/berth/in-force", tip))
	require.Equal(t, tip, fetch(t, r).InForce, "the branch is accepted after its repair")
	tip, err = r.WriteInForce(t.Context(), tip, reconciler.InForce{Commit: next})
	require.NoError(t, err)
	require.Equal(t, tip, fetch(t, r).InForce)
}

// An operator accepts such a commit by a restart or with Accept.
func TestForeignInForceIsAcceptedByOperator(t *testing.T) {
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
			main, tip, forged := heldChange(t, r, s)
			tips, err := r.Fetch(t.Context())
			require.ErrorIs(t, err, reconciler.ErrRewritten)
			require.Equal(t, tip, tips.InForce)
			r = take(t, r, s, dir, main)
			require.Equal(t, forged, fetch(t, r).InForce)
			require.Equal(t, "train v2\n", contents(t, r, forged)[instancePath])
		})
	}
}

// A push of the previous leader may arrive after the first fetch and is accepted.
// A later foreign push is refused.
func TestLatePushOfPreviousLeaderIsAccepted(t *testing.T) {
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

// An own push with a lost response is recognized.
func TestInForcePushWithLostResponse(t *testing.T) {
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
	calls = 1 // the push; then the remote cannot be read
	_, err = r.WriteInForce(t.Context(), one, reconciler.InForce{Commit: next})
	require.ErrorContains(t, err, "not known")
	calls = 1000
	two := s.Tip("berth/in-force")
	require.NotEqual(t, one, two)
	require.Equal(t, two, fetch(t, r).InForce)
	require.Equal(t, "train v2\n", contents(t, r, two)[instancePath])
}
