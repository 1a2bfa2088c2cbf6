package parallel_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema/parallel"
)

// TestEach: Each calls the function for all items, also if one fails. It returns the error of that item, and passes its
// panic on to the caller.
func TestEach(t *testing.T) {
	t.Parallel()
	for n := range 100 {
		var sum atomic.Int64
		require.NoError(t, parallel.Each(n, func(i int) error { sum.Add(int64(i) + 1); return nil }))
		require.EqualValues(t, n*(n+1)/2, sum.Load())
	}
	bad := errors.New("bad")
	var done atomic.Int64
	require.ErrorIs(t, parallel.Each(10, func(i int) error {
		done.Add(1)
		if i == 3 || i == 7 {
			return map[int]error{3: bad, 7: errors.New("another")}[i]
		}
		return nil
	}), bad, "the lowest's")
	require.EqualValues(t, 10, done.Load())
	for _, n := range []int{1, 10} {
		done.Store(0)
		require.Panics(t, func() { _ = parallel.Each(n, func(int) error { done.Add(1); panic("broken") }) })
		require.EqualValues(t, n, done.Load())
	}
}
