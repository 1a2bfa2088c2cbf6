package gitrepo_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
)

// A local branch may be older than the fetched one, so Sides returns both. A
// branch that exists on one side has the same tip on both.
func TestSidesReturnsOwnAndOriginBranches(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	first := s.Tip("main")
	second := s.MustCommit(t, "main", gittest.Commit{Message: "Second", Files: map[string]string{instancePath: "train v2\n"}})
	require.NoError(t, s.SetRef("refs/heads/"+reconciler.BranchInForce, second))
	require.NoError(t, s.SetRef("refs/heads/"+reconciler.BranchStatus, second))
	clone := filepath.Join(t.TempDir(), "clone")
	for _, args := range [][]string{
		{"clone", "-q", s.Dir, clone},
		{"--git-dir", filepath.Join(clone, ".git"), "update-ref", "refs/heads/" + reconciler.BranchInForce, first},
		{"--git-dir", filepath.Join(clone, ".git"), "update-ref", "-d", "refs/remotes/origin/main"},
	} {
		_, err := s.Git(args...)
		require.NoError(t, err)
	}
	r, err := gitrepo.OpenLocal(clone)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	own, origin, err := r.Sides()
	require.NoError(t, err)
	require.Equal(t, reconciler.Tips{Main: second, InForce: first, Status: second}, own)
	require.Equal(t, reconciler.Tips{Main: second, InForce: second, Status: second}, origin)
	require.Equal(t, own, fetch(t, r))
}

// Latest ignores a checked-out berth/status that is older than the fetched one,
// and uses one that is newer.
func TestLatestReturnsSideWithNewerStatus(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	status := "refs/heads/" + reconciler.BranchStatus
	first := s.Tip("main")
	second := s.MustCommit(t, "main", gittest.Commit{Message: "Second", Files: map[string]string{instancePath: "train v2\n"}})
	require.NoError(t, s.SetRef(status, second))
	clone := filepath.Join(t.TempDir(), "clone")
	_, err := s.Git("clone", "-q", s.Dir, clone)
	require.NoError(t, err)
	r, err := gitrepo.OpenLocal(clone)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	set := func(ref, commit string) {
		_, err := s.Git("--git-dir", filepath.Join(clone, ".git"), "update-ref", ref, commit)
		require.NoError(t, err)
	}
	for _, c := range []struct{ name, own, origin, want string }{
		{"only origin's", "", second, second},
		{"own behind", first, second, second},
		{"own ahead", second, first, second},
		{"only its own", first, "", first},
	} {
		for ref, commit := range map[string]string{status: c.own, "refs/remotes/origin/" + reconciler.BranchStatus: c.origin} {
			if commit == "" {
				_, err := s.Git("--git-dir", filepath.Join(clone, ".git"), "update-ref", "-d", ref)
				require.NoError(t, err)
				continue
			}
			set(ref, commit)
		}
		got, err := r.Latest(t.Context())
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, got.Status, c.name)
	}
}
