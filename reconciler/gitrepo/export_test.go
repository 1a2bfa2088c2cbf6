package gitrepo

// TreesRead is the number of directories that were read, as long as they are few.
func (r *Repo) TreesRead() int { return r.Trees.Len() }

// Forget removes the objects of the mirror from memory, so that the next read of
// each needs the disk.
func (r *Repo) Forget() { r.Mirror.Recent.Clear() }
