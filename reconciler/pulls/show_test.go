package pulls

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

// A merge queue goes first, then what is new or was asked for, then what is only
// made sure of; of each the newest first.
func TestOrderOfShowing(t *testing.T) {
	t.Parallel()
	s := newShows()
	for n := range 5 {
		s.add(&showing{target: target{pull: n + 1}, head: "abc", known: n > 1})
	}
	s.add(&showing{target: target{ref: "b"}})
	s.add(&showing{target: target{ref: "a"}})
	s.again(3)
	var order []string
	for {
		x, _ := s.next(time.Now())
		if x == nil {
			break
		}
		order = append(order, x.String())
		x.again = false
		s.done(x, true)
	}
	require.Equal(t, []string{"a", "b", "pull request 3", "pull request 2", "pull request 1", "pull request 5", "pull request 4"}, order)
}
