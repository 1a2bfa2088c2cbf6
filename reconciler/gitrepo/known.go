package gitrepo

import (
	"slices"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
)

// maxKnown is how many entries of directories a generation of knownTrees holds,
// some hundred bytes each at the most.
const maxKnown = 100_000

// knownTrees keeps directories that were read lately, so that of two trees that
// share most directories only what differs is read: in two generations, the older
// one dropped when the younger is full. What a hash names never changes. Safe for
// concurrent use; the zero value is empty.
type knownTrees struct {
	mu         sync.Mutex
	young, old map[plumbing.Hash][]entry
	entries    int // of young, and one for each directory
}

// get is a directory's entries, for the caller to keep.
func (k *knownTrees) get(h plumbing.Hash) ([]entry, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	entries, ok := k.young[h]
	if !ok {
		if entries, ok = k.old[h]; ok {
			k.put(h, entries)
		}
	}
	return slices.Clone(entries), ok
}

// add keeps a copy of a directory's entries, unless there are too many.
func (k *knownTrees) add(h plumbing.Hash, entries []entry) {
	if len(entries) > maxKnown/10 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.put(h, slices.Clone(entries))
}

func (k *knownTrees) put(h plumbing.Hash, entries []entry) {
	if k.young == nil || k.entries+len(entries)+1 > maxKnown {
		k.old, k.young, k.entries = k.young, map[plumbing.Hash][]entry{}, 0
	}
	if _, twice := k.young[h]; !twice {
		k.entries += len(entries) + 1
	}
	k.young[h] = entries
}
