package loop

import "berth/reconciler"

// fairQueue is a queue whose owners take turns: an owner with many items delays the items of
// another owner by one at a time. The items of one owner keep their order. It is a
// workqueue.Queue, and as such needs no lock.
type fairQueue struct {
	ownerOf func(reconciler.Item) string
	turns   []string // the owners with items, in the order of their turns
	items   map[string][]reconciler.Item
	len     int
}

func newFairQueue(ownerOf func(reconciler.Item) string) *fairQueue {
	return &fairQueue{ownerOf: ownerOf, items: map[string][]reconciler.Item{}}
}

// Touch does nothing: an item that is added again keeps its place.
func (q *fairQueue) Touch(reconciler.Item) {}

// Push adds an item.
func (q *fairQueue) Push(i reconciler.Item) {
	owner := q.ownerOf(i)
	if len(q.items[owner]) == 0 {
		q.turns = append(q.turns, owner)
	}
	q.items[owner] = append(q.items[owner], i)
	q.len++
}

// Len returns the number of items.
func (q *fairQueue) Len() int { return q.len }

// Pop removes an item, of which there has to be one.
func (q *fairQueue) Pop() reconciler.Item {
	owner := q.turns[0]
	q.turns = q.turns[1:]
	of := q.items[owner]
	item := of[0]
	if len(of) > 1 {
		q.items[owner] = of[1:]
		q.turns = append(q.turns, owner)
	} else {
		delete(q.items, owner)
	}
	q.len--
	return item
}
