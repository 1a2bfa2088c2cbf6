package gitrepo

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
)

// A repeated merge starts no program. It is made again if the store with its tree
// is gone.
func TestMergeResultsAreCached(t *testing.T) {
	server := gittest.New(t, map[string]string{"a": "1\n"})
	r, err := Open(t.Context(), Options{URL: server.URL, Dir: t.TempDir(), PullRefs: reconciler.PullRefs{Head: gittest.PullRef}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	for n, files := range map[int]map[string]string{1: {"b": "1\n"}, 2: {"a": "2\n"}} {
		require.NoError(t, server.SetRef("refs/heads/topic", server.Tip("main")))
		require.NoError(t, server.SetPull(n, server.MustCommit(t, "topic", gittest.Commit{Message: "topic", Files: files})))
	}
	base := server.MustCommit(t, "main", gittest.Commit{Message: "main", Files: map[string]string{"a": "3\n"}})
	_, err = r.Fetch(t.Context())
	require.NoError(t, err)
	heads := map[int]string{}
	merge := func(n int) (string, []string, int64) {
		if heads[n], err = r.FetchPull(t.Context(), n); err != nil {
			require.NoError(t, err)
		}
		before := r.merged.Load()
		tree, conflicts, err := r.Merge(t.Context(), base, heads[n])
		require.NoError(t, err)
		return tree, conflicts, r.merged.Load() - before
	}
	tree, conflicts, ran := merge(1)
	require.Empty(t, conflicts)
	require.EqualValues(t, 1, ran)
	again, _, ran := merge(1)
	require.Equal(t, tree, again)
	require.Zero(t, ran)
	_, conflicts, ran = merge(2)
	require.Equal(t, []string{"a"}, conflicts)
	require.EqualValues(t, 1, ran)
	conflicts[0] = "scribbled"
	_, conflicts, ran = merge(2)
	require.Equal(t, []string{"a"}, conflicts, "the caller may modify the result")
	require.Zero(t, ran)

	for range 2 { // two replacements remove the first store
		r.Swap.Lock()
		require.NoError(t, r.scratch.swap(filepath.Join(r.Options.Dir, "scratch.gone")))
		r.Swap.Unlock()
	}
	again, _, ran = merge(1)
	require.Equal(t, tree, again)
	require.EqualValues(t, 1, ran)
	_, err = r.Snapshot(t.Context(), again)
	require.NoError(t, err)
}
