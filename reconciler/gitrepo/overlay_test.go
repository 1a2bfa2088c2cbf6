package gitrepo

import (
	"fmt"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/require"

	"berth/schema"
)

// TestOverlayLooksAtEachEntryOnce: what a directory costs grows with its
// entries and with what is said about them, not with one times the other. The
// path of an odd name is made anew each time it is looked at, so that looks can
// be counted by allocations.
func TestOverlayLooksAtEachEntryOnce(t *testing.T) {
	r, err := Open(t.Context(), Options{URL: "http://127.0.0.1:1/never-asked", Dir: t.TempDir()})
	require.NoError(t, err)
	defer r.Close() //nolint:errcheck // a test's
	cost := func(n int) float64 {
		var set objectSet
		blob := set.add(plumbing.BlobObject, []byte("x\n"))
		var entries, want []entry
		var over overlay
		for i := range n {
			e := entry{schema.ModePlain, fmt.Sprintf(`odd\%d`, i), blob}
			entries = append(entries, e)
			if i%2 == 0 {
				over.remove(pathName(e.name))
			} else {
				want = append(want, e)
			}
		}
		tree := set.add(plumbing.TreeObject, encodeTree(entries))
		require.NoError(t, r.mirror.put(set.pack()))
		left := hashObject(plumbing.TreeObject, encodeTree(want))
		return testing.AllocsPerRun(1, func() {
			got, err := r.applyOverlay(tree, &over, &objectSet{})
			require.NoError(t, err)
			require.Equal(t, left, got)
		})
	}
	few, many := cost(100), cost(1000)
	require.Less(t, many, 20*few, "ten times as many entries are ten times the work")
}
