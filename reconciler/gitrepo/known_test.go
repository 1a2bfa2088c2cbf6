package gitrepo

import (
	"fmt"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/require"
)

// What is kept of directories is theirs, is what was put in, and is bounded
// whatever comes.
func TestKnownTreesAreBounded(t *testing.T) {
	var k knownTrees
	hash := func(i int) plumbing.Hash { return hashObject(plumbing.BlobObject, fmt.Append(nil, i)) }
	_, ok := k.get(hash(0))
	require.False(t, ok)
	for i := range 3 * maxKnown / 50 {
		k.add(hash(i), make([]entry, 99))
		require.LessOrEqual(t, k.entries, maxKnown)
		require.LessOrEqual(t, len(k.young)+len(k.old), 2*maxKnown/100)
		got, ok := k.get(hash(0))
		require.True(t, ok, "what is used stays")
		require.Len(t, got, 99)
		got[0].name = "changed by whoever has it"
	}
	got, ok := k.get(hash(0))
	require.True(t, ok)
	require.Empty(t, got[0].name)
	_, ok = k.get(hash(1))
	require.False(t, ok, "what is not used goes")

	k.add(hash(-1), nil)
	_, ok = k.get(hash(-1))
	require.True(t, ok, "a directory without entries is one")
	k.add(hash(-2), make([]entry, maxKnown))
	_, ok = k.get(hash(-2))
	require.False(t, ok, "one that is too large is read each time")
}
