package pulls

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A result that a user asks for while it is published is published again: what was
// published before the request is not known.
func TestResultRequestedWhilePublishedIsPublishedAgain(t *testing.T) {
	t.Parallel()
	for what, asked := range map[string]int{"it": 7, "everything": 0, "another": 8} {
		q := newPublishQueue()
		x := &publication{target: target{pull: 7}, head: "abc"}
		require.True(t, q.add(x))
		require.True(t, q.isOn("abc"))
		got, _ := q.next(time.Now(), 0)
		require.Same(t, x, got)
		q.request(asked)
		require.Equal(t, what != "another", x.again, what)
		q.done(x, true)
		got, _ = q.next(time.Now(), 0)
		if what == "another" {
			require.Nil(t, got)
			require.False(t, q.add(&publication{target: target{pull: 7}, head: "abc"}))
			continue
		}
		require.Same(t, x, got, what)
		q.done(x, true)
		got, _ = q.next(time.Now(), 0)
		require.Nil(t, got, what)
		require.False(t, q.isOn("abc"))
	}
}

func TestGroupsAreKnownUntilTheyAreGone(t *testing.T) {
	t.Parallel()
	const ref = "refs/heads/queue/main/pr-7"
	q := newPublishQueue()
	require.Equal(t, []string{ref}, q.setGroups(map[string]string{ref: "abc"}))
	require.True(t, q.isOn("abc"))
	require.True(t, q.add(&publication{target: target{ref: ref}, head: "abc"}))
	require.Empty(t, q.setGroups(map[string]string{ref: "abc"}), "its result waits")
	require.Empty(t, q.setGroups(nil))
	require.False(t, q.knows(target{ref: ref}))
	require.False(t, q.isOn("abc"))
}

// A merge queue goes first, then new and requested results, then the others; newer
// pull requests before older ones.
func TestMergeQueueIsPublishedFirst(t *testing.T) {
	t.Parallel()
	q := newPublishQueue()
	for n := range 5 {
		q.add(&publication{target: target{pull: n + 1}, head: "abc", known: n > 1})
	}
	q.add(&publication{target: target{ref: "b"}})
	q.add(&publication{target: target{ref: "a"}})
	q.request(3)
	var order []string
	for {
		x, _ := q.next(time.Now(), 0)
		if x == nil {
			break
		}
		order = append(order, x.String())
		x.again = false
		q.done(x, true)
	}
	require.Equal(t, []string{"a", "b", "pull request 3", "pull request 2", "pull request 1", "pull request 5", "pull request 4"}, order)
}

// However many results of one author wait, another author's is published next.
func TestAuthorsTakeTurnsAtTheForge(t *testing.T) {
	t.Parallel()
	q := newPublishQueue()
	for n := range 50 {
		q.add(&publication{target: target{pull: n + 2}, author: "eve"})
	}
	var order []int
	take := func() {
		x, _ := q.next(time.Now(), 0)
		order = append(order, x.pull)
		q.done(x, true)
	}
	take()
	q.add(&publication{target: target{pull: 1}, author: "ada"})
	take()
	take()
	q.add(&publication{target: target{pull: 60}, author: "eve"})
	q.add(&publication{target: target{pull: 61}, author: "ada"})
	take()
	take()
	require.Equal(t, []int{51, 1, 50, 61, 60}, order)
}

// Results that are on the remote are published before one that waits for its push.
func TestResultsOnTheRemoteArePublishedFirst(t *testing.T) {
	t.Parallel()
	q := newPublishQueue()
	for n := range 3 {
		q.add(&publication{target: target{pull: n + 1}, author: "eve", recorded: uint64(n + 1)})
	}
	q.add(&publication{target: target{pull: 4}, author: "ada", recorded: 4})
	require.EqualValues(t, 4, q.recorded())
	var order []int
	for _, pushed := range []uint64{2, 4, 4, 4} {
		x, _ := q.next(time.Now(), pushed)
		order = append(order, x.pull)
		q.done(x, true)
	}
	require.Equal(t, []int{2, 4, 3, 1}, order)
	require.Zero(t, q.recorded(), "nobody waits for a push")
}
