package gitrepo

// TreesRead returns the number of cached directories: all directories read, while
// they are few.
func (r *Repo) TreesRead() int { return r.Trees.Len() }

// Forget clears the object cache of the mirror, so that the next reads access the
// disk.
func (r *Repo) Forget() { r.Mirror.Recent.Clear() }
