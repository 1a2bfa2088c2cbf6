package object

import (
	"fmt"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/require"
)

// The tree cache returns the stored values, keeps recently used ones and stays
// within its bound.
func TestTreeCacheIsBounded(t *testing.T) {
	var k Cache[plumbing.Hash, []Entry]
	hash := func(i int) plumbing.Hash { return Hash(plumbing.BlobObject, fmt.Append(nil, i)) }
	_, ok := k.Get(hash(0))
	require.False(t, ok)
	for i := range 3 * cacheWeight / 50 {
		k.Add(hash(i), make([]Entry, 99), 99)
		k.Add(hash(i), make([]Entry, 99), 99) // a second Add must not count twice
		require.LessOrEqual(t, k.weight, cacheWeight)
		require.LessOrEqual(t, len(k.young)+len(k.old), 2*cacheWeight/100)
		got, ok := k.Get(hash(0))
		require.True(t, ok, "a recently used value is kept")
		require.Len(t, got, 99)
	}
	_, ok = k.Get(hash(1))
	require.False(t, ok, "an unused value is dropped")

	k.Add(hash(-1), nil, 0)
	_, ok = k.Get(hash(-1))
	require.True(t, ok, "an empty directory is cached")
	k.Add(hash(-2), make([]Entry, cacheWeight), cacheWeight)
	_, ok = k.Get(hash(-2))
	require.False(t, ok, "a value above the limit is not cached")
}
