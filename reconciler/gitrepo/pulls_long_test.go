//go:build long

package gitrepo_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
)

// A few bytes may expand beyond the memory of the machine. They must not expand
// in this process, and must not count as a damaged mirror.
func TestLongCompressionBombInPullRequestIsBounded(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	main := fetch(t, open(t, s)).Main
	tree, err := s.Git("rev-parse", main+"^{tree}")
	require.NoError(t, err)
	head := fmt.Sprintf("tree %s\nparent %s\nauthor x <x> 1 +0000\ncommitter x <x> 1 +0000\n\n", tree, main)
	bomb, err := s.GitInput(strings.NewReader(head+strings.Repeat("a", 80<<20)), "hash-object", "-w", "-t", "commit", "--stdin",
		"--literally")
	require.NoError(t, err)
	require.NoError(t, s.SetPull(1, bomb))
	blob := rawCommit(t, s, rawTree(t, s, rawEntry{"100644", "zeros", rawBlob(t, s, strings.Repeat("\x00", 80<<20))}), main)
	require.NoError(t, s.SetPull(2, blob))

	dir := t.TempDir()
	r := open(t, s, func(o *gitrepo.Options) { o.Dir = dir })
	fetch(t, r)
	_, err = r.FetchPull(t.Context(), 1)
	require.ErrorContains(t, err, "pull request 1")
	require.ErrorContains(t, err, "limit")
	require.Empty(t, leftovers(t, dir))
	got, err := r.FetchPull(t.Context(), 2)
	require.NoError(t, err, "the reader of a large file refuses it")
	require.Equal(t, blob, got)

	s.ResetRequests()
	fetch(t, r)
	_, err = r.FetchPull(t.Context(), 1)
	require.Error(t, err)
	require.Zero(t, s.Requests()["POST git-upload-pack"], "neither the mirror nor the head is fetched again")
}

// The scratch store is bounded for any number of pull requests.
func TestLongScratchStoreIsBounded(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	main := s.Tip("main")
	dir := t.TempDir()
	r := open(t, s, func(o *gitrepo.Options) { o.Dir, o.MaxPull = dir, 64<<10 })
	fetch(t, r)
	all := noise(30 * (50 << 10))
	for i := range 30 {
		head := s.MustCommit(t, fmt.Sprint("b", i),
			gittest.Commit{Message: "x", Parent: main, Files: map[string]string{"platform/x": all[i*(50<<10) : (i+1)*(50<<10)]}})
		require.NoError(t, s.SetPull(i+1, head))
		_, err := r.FetchPull(t.Context(), i+1)
		require.NoError(t, err)
		_, _, err = r.Merge(t.Context(), main, head)
		require.NoError(t, err)
	}
	total := int64(0)
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			info, err := e.Info()
			require.NoError(t, err)
			total += info.Size()
		}
		return err
	}))
	require.Less(t, total, int64(2*5*(64<<10)+(64<<10)), "two stores, each of four pull requests and the last one")
}

// A pack indexed by git is read like any other.
func TestLongLargePackIsIndexedByGit(t *testing.T) {
	t.Parallel()
	files := estateFiles()
	files["platform/blob"] = noise(5 << 20)
	s := gittest.New(t, files)
	r := open(t, s)
	main := fetch(t, r).Main
	files["platform/blob"] = files["platform/blob"][:1<<20]
	snap, err := r.Snapshot(t.Context(), main)
	require.NoError(t, err)
	parts, err := snap.Parts(t.Context())
	require.NoError(t, err)
	got := map[string]string{}
	for _, p := range parts {
		in, err := snap.Files(t.Context(), p)
		require.NoError(t, err)
		for _, f := range in {
			data, _, err := snap.Read(t.Context(), f, 1<<20)
			require.NoError(t, err)
			got[f.Path] = string(data)
		}
	}
	require.True(t, bytes.Equal([]byte(files["platform/blob"]), []byte(got["platform/blob"])))
	require.Len(t, got, len(files))
}
