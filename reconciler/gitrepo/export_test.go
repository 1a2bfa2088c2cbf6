package gitrepo

import "berth/reconciler/gitrepo/object"

// TreesRead returns the number of cached directories: all directories read, while
// they are few.
func (r *history) TreesRead() int { return r.Trees.Len() }

// Forget opens the mirror again without cached objects, so that the next reads
// access the disk.
func (r *history) Forget() {
	r.Swap.Lock()
	defer r.Swap.Unlock()
	_ = r.Mirror.Close() // a damaged mirror may not close
	r.Mirror = object.OpenStore(r.Mirror.Dir)
}
