package object

import (
	"sync"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/schema"
)

// maxKnown is the number of directory entries in one generation of the cache. An
// entry takes some hundred bytes.
const maxKnown = 100_000

// Known caches values read from trees, so that two similar trees share most
// reads. It has two generations; when the younger is full, the older is dropped.
// Callers must not modify the values. It is safe for concurrent use; the zero
// value is empty.
type Known[K comparable, V any] struct {
	mu         sync.Mutex
	young, old map[K]weighed[V]
	weight     int // sum of the weights in young
}

type weighed[V any] struct {
	value  V
	weight int
}

// knownTrees caches the entries of directories.
type knownTrees = Known[plumbing.Hash, []Entry]

// knownFiles caches the files in directories and all directories below.
type knownFiles = Known[treeAt, listing]

// treeAt is a tree at a path.
type treeAt struct {
	path string
	tree plumbing.Hash
}

type listing struct {
	files   []schema.File // in the order of the tree
	visited int           // number of files and directories
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

// Add stores a value that weighs the given number of entries, unless it is too
// large.
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
