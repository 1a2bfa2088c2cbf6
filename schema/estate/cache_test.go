package estate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The Loader keeps as many trees of one name as its options say.
func TestLoaderKeepsTreesOfOneName(t *testing.T) {
	for trees, kept := range map[int]bool{0: false, 8: false, 9: true} {
		l, err := New(Options{Trees: trees})
		require.NoError(t, err)
		l = l.WithEmptyCache()
		for _, id := range []string{"0", "1", "2", "3", "4", "5", "6", "7", "8"} {
			l.cache.add(&tree{name: "tenants/physics", id: id, content: &content{}})
		}
		require.Equal(t, kept, l.cache.get("tenants/physics", "0") != nil, "%d trees", trees)
	}
}
