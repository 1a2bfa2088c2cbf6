package fair_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/fair"
)

func ownerOf(item string) string {
	owner, _, _ := strings.Cut(item, "/")
	return owner
}

func TestOwnersTakeTurns(t *testing.T) {
	q := fair.NewQueue(ownerOf)
	push := func(items ...string) {
		for _, i := range items {
			q.Push(i)
		}
	}
	pop := func(n int) (out []string) {
		for range n {
			out = append(out, q.Pop())
		}
		return out
	}
	push("a/1", "a/2", "a/3", "a/4", "b/1", "c/1", "c/2")
	require.Equal(t, []string{"a/1", "b/1", "c/1", "a/2"}, pop(4))
	push("b/2", "a/5")
	require.Equal(t, 5, q.Len())
	require.Equal(t, []string{"c/2", "a/3", "b/2", "a/4", "a/5"}, pop(5))
	require.Zero(t, q.Len())
	q.Touch("b/3")
	require.Zero(t, q.Len(), "it does not wait")
	push("b/3")
	require.Equal(t, []string{"b/3"}, pop(1))
}

// An item whose owner becomes known while it waits takes its turn with the owner's others.
func TestItemsMoveToTheirOwner(t *testing.T) {
	owner := map[int]string{}
	q := fair.NewQueue(func(n int) string { return owner[n] })
	for n := range 100 {
		q.Push(n)
	}
	for n := range 100 {
		owner[n] = "eve"
	}
	owner[99] = "ada"
	for n := range 100 {
		q.Touch(n)
	}
	require.Equal(t, 100, q.Len())
	var order []int
	for q.Len() > 0 {
		order = append(order, q.Pop())
	}
	require.Len(t, order, 100)
	require.Equal(t, []int{0, 99, 1, 2}, order[:4])
}

// An owner whose item may not go yet delays no other, and keeps its turn. A removed item costs its owner no turn.
func TestItemsThatMayNotGoKeepTheirTurn(t *testing.T) {
	q := fair.NewQueue(ownerOf)
	for _, i := range []string{"a/1", "a/2", "b/1", "b/2", "c/1"} {
		q.Push(i)
	}
	next := func(without string) string {
		i, _ := q.PopIf(func(owner, _ string) bool { return owner != without })
		return i
	}
	require.Equal(t, "b/1", next("a"))
	require.True(t, q.Remove("a/1"))
	require.False(t, q.Remove("a/1"))
	require.Equal(t, "a/2", next(""))
	require.Equal(t, "c/1", next(""))
	_, ok := q.PopIf(func(owner, _ string) bool { return owner != "b" })
	require.False(t, ok)
	require.Equal(t, 1, q.Len())
	require.Equal(t, "b/2", next(""))
	_, ok = q.PopIf(func(string, string) bool { return true })
	require.False(t, ok)
}

// The items that PushFirst added are taken alone, by the turns of their owners, and the others keep theirs.
func TestFirstItemsAreTakenAlone(t *testing.T) {
	q := fair.NewQueue(ownerOf)
	for _, i := range []string{"a/1", "b/1", "c/1"} {
		q.Push(i)
	}
	for _, i := range []string{"c/0", "b/0", "b/00"} {
		q.PushFirst(i)
	}
	var order []string
	for {
		i, ok := q.PopFirstIf(func(string, string) bool { return true })
		if !ok {
			break
		}
		order = append(order, i)
	}
	require.Equal(t, []string{"b/0", "c/0", "b/00"}, order)
	require.Equal(t, 3, q.Len())
	require.Equal(t, []string{"a/1", "c/1", "b/1"}, []string{q.Pop(), q.Pop(), q.Pop()})
}
