package loop

import "berth/reconciler"

// fairQueue is a queue whose owners take turns: an owner with many items delays the items of
// another owner by one at a time. The items of one owner keep their order. It is a
// workqueue.Queue, and as such needs no lock.
type fairQueue struct {
	ownerOf func(reconciler.Item) string
	turns   []string                     // the owners with items, in the order of their turns
	items   map[string][]reconciler.Item // some may have another owner now, and are left out
	first   map[string][]reconciler.Item // as items, and before them
	owner   map[reconciler.Item]string   // of each item that waits
}

func newFairQueue(ownerOf func(reconciler.Item) string) *fairQueue {
	return &fairQueue{ownerOf: ownerOf, items: map[string][]reconciler.Item{}, first: map[string][]reconciler.Item{},
		owner: map[reconciler.Item]string{}}
}

// Touch is called when an item is added again. It keeps its place, unless its owner is another
// one by now.
func (q *fairQueue) Touch(i reconciler.Item) {
	if was, waits := q.owner[i]; waits && was != q.ownerOf(i) {
		q.Push(i)
	}
}

// Push adds an item.
func (q *fairQueue) Push(i reconciler.Item) { q.add(q.items, i) }

// PushFirst adds an item before those of its owner that Push adds.
func (q *fairQueue) PushFirst(i reconciler.Item) { q.add(q.first, i) }

func (q *fairQueue) add(to map[string][]reconciler.Item, i reconciler.Item) {
	owner := q.ownerOf(i)
	q.owner[i] = owner
	if len(q.items[owner])+len(q.first[owner]) == 0 {
		q.turns = append(q.turns, owner)
	}
	to[owner] = append(to[owner], i)
}

// Len returns the number of items.
func (q *fairQueue) Len() int { return len(q.owner) }

// Pop removes an item, of which there has to be one.
func (q *fairQueue) Pop() reconciler.Item {
	for {
		owner := q.turns[0]
		q.turns = q.turns[1:]
		from := q.first
		if len(from[owner]) == 0 {
			from = q.items
		}
		item := from[owner][0]
		if from[owner] = from[owner][1:]; len(from[owner]) == 0 {
			delete(from, owner)
		}
		if len(q.items[owner])+len(q.first[owner]) > 0 {
			q.turns = append(q.turns, owner)
		}
		if now, waits := q.owner[item]; waits && now == owner {
			delete(q.owner, item)
			return item
		}
	}
}
