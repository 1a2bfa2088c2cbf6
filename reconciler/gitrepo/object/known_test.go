package object

import (
	"fmt"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/require"
)

// What is known is what was put in, and bounded whatever comes; what is used
// stays.
func TestWhatIsKnownIsBounded(t *testing.T) {
	var k knownTrees
	hash := func(i int) plumbing.Hash { return Hash(plumbing.BlobObject, fmt.Append(nil, i)) }
	_, ok := k.Get(hash(0))
	require.False(t, ok)
	for i := range 3 * maxKnown / 50 {
		k.Add(hash(i), make([]Entry, 99), 99)
		k.Add(hash(i), make([]Entry, 99), 99) // again
		require.LessOrEqual(t, k.weight, maxKnown)
		require.LessOrEqual(t, len(k.young)+len(k.old), 2*maxKnown/100)
		got, ok := k.Get(hash(0))
		require.True(t, ok, "what is used stays")
		require.Len(t, got, 99)
	}
	_, ok = k.Get(hash(1))
	require.False(t, ok, "what is not used goes")

	k.Add(hash(-1), nil, 0)
	_, ok = k.Get(hash(-1))
	require.True(t, ok, "a directory without entries is one")
	k.Add(hash(-2), make([]Entry, maxKnown), maxKnown)
	_, ok = k.Get(hash(-2))
	require.False(t, ok, "one that is too large is read each time")
}
