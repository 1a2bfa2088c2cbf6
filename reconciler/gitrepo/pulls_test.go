package gitrepo_test

import (
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
)

// testClock is a clock that a test sets.
type testClock struct{ past atomic.Int64 }

func (h *testClock) now() time.Time       { return time.Now().Add(time.Duration(h.past.Load())) }
func (h *testClock) turn(d time.Duration) { h.past.Add(int64(d)) }

// noise returns n incompressible bytes.
func noise(n int) string {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{7})
	_, _ = r.Read(b) // never fails
	return string(b)
}

func TestOversizedPullRequestIsRefused(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	main := s.Tip("main")
	huge := s.MustCommit(t, "huge",
		gittest.Commit{Message: "x", Parent: main, Files: map[string]string{"tenants/physics/blob": noise(3 << 20)}})
	small := s.MustCommit(t, "small", gittest.Commit{Message: "x", Parent: main, Files: map[string]string{"platform/x": "y"}})
	require.NoError(t, s.SetPull(1, huge))
	require.NoError(t, s.SetPull(2, small))
	var clock testClock
	dir := t.TempDir()
	r := open(t, s, func(o *gitrepo.Options) { o.Dir, o.MaxPull, o.Now = dir, 1<<20, clock.now })
	fetch(t, r)

	refused := func(posts int, msg string) {
		t.Helper()
		s.ResetRequests()
		_, err := r.FetchPull(t.Context(), 1)
		require.ErrorContains(t, err, "pull request 1")
		require.ErrorContains(t, err, "more than 1 MiB")
		require.ErrorIs(t, err, reconciler.ErrRefused)
		require.Equal(t, posts, s.Requests()["POST git-upload-pack"], msg)
	}
	refused(1, "it is downloaded to see how large it is")
	refused(0, "and not again for each look")
	got, err := r.FetchPull(t.Context(), 2)
	require.NoError(t, err, "the other pull request is fetched")
	require.Equal(t, small, got)
	clock.turn(61 * time.Minute)
	refused(1, "after a while, it is tried again")
	require.NoError(t, s.SetPull(1,
		s.MustCommit(t, "mended", gittest.Commit{Message: "x", Parent: main, Files: map[string]string{"platform/z": "y"}})))
	_, err = r.FetchPull(t.Context(), 1)
	require.NoError(t, err, "a new head is fetched")

	require.False(t, holds(filepath.Join(dir, "mirror.git"), small), "the mirror holds no objects of pull requests")
	require.Empty(t, leftovers(t, dir))
}

func TestScratchStoreIsReplaced(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	head := s.MustCommit(t, "topic", gittest.Commit{Message: "Topic", Files: map[string]string{instancePath: "train v2\n"}})
	main := s.MustCommit(t, "main",
		gittest.Commit{Message: "Meanwhile", Files: map[string]string{"platform/nodes/gpu-2.yaml": "node gpu-2\n"}})
	require.NoError(t, s.SetPull(4, head))
	var clock testClock
	dir := t.TempDir()
	r := open(t, s, func(o *gitrepo.Options) { o.Dir, o.Now = dir, clock.now })
	fetch(t, r)
	merge := func() string {
		t.Helper()
		_, err := r.FetchPull(t.Context(), 4)
		require.NoError(t, err)
		tree, _, err := r.Merge(t.Context(), main, head)
		require.NoError(t, err)
		return tree
	}
	tree := merge()
	want := contents(t, r, tree)

	clock.turn(61 * time.Minute)
	fetch(t, r)
	require.Equal(t, want, contents(t, r, tree), "a running operation can still read the tree")
	_, _, err := r.Merge(t.Context(), main, head)
	require.ErrorIs(t, err, reconciler.ErrNotFound, "no new merge uses the older store")
	require.Equal(t, tree, merge())

	clock.turn(61 * time.Minute)
	fetch(t, r)
	require.Equal(t, want, contents(t, r, tree), "the tree was merged again")
	clock.turn(61 * time.Minute)
	fetch(t, r)
	_, err = r.Snapshot(t.Context(), tree)
	require.ErrorIs(t, err, reconciler.ErrNotFound)
	_, err = r.Snapshot(t.Context(), head)
	require.ErrorIs(t, err, reconciler.ErrNotFound)

	// Repeated replacements leave no stores behind, and the mirror stays.
	var files []int
	for range 5 {
		clock.turn(61 * time.Minute)
		require.Equal(t, tree, merge())
		files = append(files, countFiles(t, dir))
	}
	require.Equal(t, files[1], files[4])
	clock.turn(61 * time.Minute)
	s.ResetRequests()
	fetch(t, r)
	require.Equal(t, map[string]int{"GET git-upload-pack": 1}, s.Requests())
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	require.Equal(t, []string{"lock", "mirror.git", "scratch.git", "scratch.old"}, names)
}

// holds reports whether a repository itself stores an object.
func holds(repo, id string) bool {
	cmd := exec.Command("git", "cat-file", "-e", id)
	cmd.Env = append(cmd.Environ(), "GIT_DIR="+repo)
	return cmd.Run() == nil
}

// leftovers returns the files that an interrupted fetch left below dir.
func leftovers(t *testing.T, dir string) []string {
	var out []string
	for _, pattern := range []string{"*/incoming-*", "*/objects/pack/tmp_*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		out = append(out, found...)
	}
	return out
}
