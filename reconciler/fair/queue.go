package fair

import "slices"

// Queue is a queue whose owners take turns: an owner with many items delays the items of
// another owner by one at a time. The items of one owner keep their order. It is a
// workqueue.Queue, and as such needs no lock.
type Queue[T comparable] struct {
	ownerOf func(T) string
	turns   []string       // the owners with items, in the order of their turns
	items   map[string][]T // some may have another owner now, or were removed, and are left out
	first   map[string][]T // as items, and before them
	owner   map[T]string   // of each item that waits
}

// NewQueue makes a queue. ownerOf returns the owner of an item.
func NewQueue[T comparable](ownerOf func(T) string) *Queue[T] {
	return &Queue[T]{ownerOf: ownerOf, items: map[string][]T{}, first: map[string][]T{}, owner: map[T]string{}}
}

// Touch is called when an item is added again. It keeps its place, unless its owner is another
// one by now.
func (q *Queue[T]) Touch(i T) {
	if was, waits := q.owner[i]; waits && was != q.ownerOf(i) {
		q.Push(i)
	}
}

// Push adds an item.
func (q *Queue[T]) Push(i T) { q.add(q.items, i) }

// PushFirst adds an item before those of its owner that Push adds.
func (q *Queue[T]) PushFirst(i T) { q.add(q.first, i) }

func (q *Queue[T]) add(to map[string][]T, i T) {
	owner := q.ownerOf(i)
	q.owner[i] = owner
	if len(q.items[owner])+len(q.first[owner]) == 0 {
		q.turns = append(q.turns, owner)
	}
	to[owner] = append(to[owner], i)
}

// Remove removes an item. It returns false if the item does not wait.
func (q *Queue[T]) Remove(i T) bool {
	_, waits := q.owner[i]
	delete(q.owner, i)
	return waits
}

// Len returns the number of items.
func (q *Queue[T]) Len() int { return len(q.owner) }

// Pop removes an item, of which there has to be one.
func (q *Queue[T]) Pop() T {
	item, _ := q.PopIf(func(string, T) bool { return true })
	return item
}

// PopIf removes the next item that may go now. An owner whose next item may not keeps its turn. ok is
// false if no item may go.
func (q *Queue[T]) PopIf(may func(owner string, item T) bool) (item T, ok bool) {
	return q.pop(true, may)
}

// PopFirstIf is PopIf for the items that PushFirst added. Owners without such an item are skipped.
func (q *Queue[T]) PopFirstIf(may func(owner string, item T) bool) (item T, ok bool) {
	return q.pop(false, may)
}

func (q *Queue[T]) pop(all bool, may func(owner string, item T) bool) (item T, ok bool) {
	for n := 0; n < len(q.turns); {
		owner := q.turns[n]
		from := q.first
		q.trim(from, owner)
		if len(from[owner]) == 0 && all {
			from = q.items
			q.trim(from, owner)
		}
		switch {
		case len(from[owner]) == 0 && !all:
			n++
			continue
		case len(from[owner]) == 0:
			q.turns = slices.Delete(q.turns, n, n+1)
			continue
		case !may(owner, from[owner][0]):
			n++
			continue
		}
		item = from[owner][0]
		q.shift(from, owner)
		delete(q.owner, item)
		q.turns = slices.Delete(q.turns, n, n+1)
		if len(q.items[owner])+len(q.first[owner]) > 0 {
			q.turns = append(q.turns, owner)
		}
		return item, true
	}
	return item, false
}

// trim removes the items at the front that do not wait for this owner any more.
func (q *Queue[T]) trim(from map[string][]T, owner string) {
	for len(from[owner]) > 0 {
		if now, waits := q.owner[from[owner][0]]; waits && now == owner {
			return
		}
		q.shift(from, owner)
	}
}

func (q *Queue[T]) shift(from map[string][]T, owner string) {
	if from[owner] = from[owner][1:]; len(from[owner]) == 0 {
		delete(from, owner)
	}
}
