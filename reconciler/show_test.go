package reconciler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Who asks to see something again while it is being shown sees it again: what of it
// came before he asked nobody knows.
func TestAskedForWhileItIsShown(t *testing.T) {
	t.Parallel()
	for what, asked := range map[string]int{"it": 7, "everything": 0, "another": 8} {
		s := newShows()
		x := &showing{target: target{pull: 7}, head: "abc"}
		require.True(t, s.add(x))
		require.True(t, s.on("abc"))
		got, _ := s.next(time.Now())
		require.Same(t, x, got)
		s.again(asked)
		require.Equal(t, what != "another", x.again, what)
		s.done(x, true)
		got, _ = s.next(time.Now())
		if what == "another" {
			require.Nil(t, got)
			require.False(t, s.add(&showing{target: target{pull: 7}, head: "abc"}))
			continue
		}
		require.Same(t, x, got, what)
		s.done(x, true)
		got, _ = s.next(time.Now())
		require.Nil(t, got, what)
		require.False(t, s.on("abc"))
	}
	s := newShows()
	s.listed(map[string]string{"refs/heads/gh-readonly-queue/main/pr-7": "abc"})
	require.True(t, s.on("abc"))
}
