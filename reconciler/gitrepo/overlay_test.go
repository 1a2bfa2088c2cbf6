package gitrepo

import (
	"fmt"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/require"

	"berth/reconciler/gitrepo/object"
	"berth/schema"
)

// The cost of a directory grows with its entries plus its changes, not with their
// product. Each read of an escaped name allocates, so allocations count the
// reads.
func TestOverlayCostIsLinear(t *testing.T) {
	r, err := Open(t.Context(), Options{URL: "http://127.0.0.1:1/never-asked", Dir: t.TempDir()})
	require.NoError(t, err)
	defer r.Close() //nolint:errcheck // a test's
	cost := func(n int) float64 {
		var set object.Batch
		blob := set.Add(plumbing.BlobObject, []byte("x\n"))
		var entries, want []object.Entry
		var over object.Overlay
		for i := range n {
			e := object.Entry{Mode: schema.ModePlain, Name: fmt.Sprintf(`odd\%d`, i), ID: blob}
			entries = append(entries, e)
			if i%2 == 0 {
				over.Remove(object.PathName(e.Name))
			} else {
				want = append(want, e)
			}
		}
		tree := set.Add(plumbing.TreeObject, object.EncodeTree(entries))
		require.NoError(t, r.Mirror.AddPack(set.Pack()))
		left := object.Hash(plumbing.TreeObject, object.EncodeTree(want))
		return testing.AllocsPerRun(1, func() {
			got, err := r.ApplyOverlay(tree, &over, &object.Batch{})
			require.NoError(t, err)
			require.Equal(t, left, got)
		})
	}
	few, many := cost(100), cost(1000)
	require.Less(t, many, 20*few, "the cost is linear in the number of entries")
}
