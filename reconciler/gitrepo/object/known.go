package object

import (
	"sync"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/schema"
)

// maxKnown is how many entries of directories a generation of what is known
// holds, some hundred bytes each.
const maxKnown = 100_000

// Known keeps what was read lately of trees, by what it is of, so that of two that
// share most of it only what differs is read: in two generations, the older one
// dropped when the younger is full. Nobody may change what is in it. Safe for
// concurrent use; the zero value is empty.
type Known[K comparable, V any] struct {
	mu         sync.Mutex
	young, old map[K]weighed[V]
	weight     int // of young
}

type weighed[V any] struct {
	value  V
	weight int
}

// knownTrees are the entries of directories.
type knownTrees = Known[plumbing.Hash, []Entry]

// knownFiles are the files of directories and all below.
type knownFiles = Known[standing, listing]

// standing is a directory where it stands.
type standing struct {
	path string
	tree plumbing.Hash
}

type listing struct {
	files   []schema.File // in the order of the tree
	visited int           // these and directories
}

func (k *Known[K, V]) Get(key K) (V, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.young[key]
	if !ok {
		if v, ok = k.old[key]; ok {
			k.put(key, v)
		}
	}
	return v.value, ok
}

// Add keeps a value of so many entries, unless they are too many.
func (k *Known[K, V]) Add(key K, value V, entries int) {
	if entries > maxKnown/10 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.put(key, weighed[V]{value, entries + 1})
}

func (k *Known[K, V]) put(key K, v weighed[V]) {
	if k.young == nil || k.weight+v.weight > maxKnown {
		k.old, k.young, k.weight = k.young, map[K]weighed[V]{}, 0
	}
	k.weight += v.weight - k.young[key].weight
	k.young[key] = v
}

// Len returns the number of values kept.
func (k *Known[K, V]) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.young) + len(k.old)
}
