//go:build long

package gitrepo_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
)

func TestLongManyFetchesAndWritesKeepFewPacks(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	dir := t.TempDir()
	r := open(t, s, func(o *gitrepo.Options) { o.Dir = dir })
	main, tip := fetch(t, r).Main, ""
	var err error
	for i := range 60 {
		tip, err = r.WriteStatus(t.Context(), tip, batch(uint64(i+1), main, unit("physics", "lhc", "train", plan.PhaseRunning)))
		require.NoError(t, err)
		if i%20 == 19 {
			main = s.MustCommit(t, "main", gittest.Commit{Message: "x", Files: map[string]string{"platform/x": strings.Repeat("x", i)}})
			require.Equal(t, reconciler.Tips{Main: main, Status: tip}, fetch(t, r))
		}
	}
	packs, err := filepath.Glob(filepath.Join(dir, "mirror.git/objects/pack/*.pack"))
	require.NoError(t, err)
	require.Less(t, len(packs), 60)
	got, err := r.ReadStatus(t.Context(), tip)
	require.NoError(t, err)
	require.Equal(t, uint64(60), got.Revision.Sequence)
	require.Equal(t, "train v1\n", contents(t, r, main)[instancePath])
}
