package gitrepo

import (
	"berth/reconciler/gitrepo/object"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// The scratch store holds what no branch does: heads of pull requests, and the
// trees that merging makes. Anybody who may open a pull request puts things
// there, so it is kept apart from the mirror and made anew when it is old or
// has grown. What was in it stays readable until the next time, for who is in
// the middle of something; what is needed longer is fetched again.
const (
	scratchAge    = time.Hour
	scratchPacks  = 100
	scratchMerges = 2000
	scratchPulls  = 4 // times Options.MaxPull, in bytes

	// storeAgain is when a head that could not be stored is tried again.
	StoreAgain = 5 * time.Minute
)

// defaultMaxPull is what a pull request may bring: an estate is text.
const defaultMaxPull = 256 << 20

// scratchUse is what became of the scratch store since it was made.
type scratchUse struct {
	since time.Time
	bytes int64 // fetched
}

// refusal remembers a head that is not fetched again for a while.
type refusal struct {
	head  plumbing.Hash
	until time.Time
	err   error
}

// renewScratch makes the scratch store anew if it is time. Who calls it may
// talk to the remote. It is upkeep: that it fails is logged, and the old one
// goes on.
func (r *Repo) renewScratch(ctx context.Context) {
	now := r.Options.Now()
	full := r.use.bytes > scratchPulls*r.Options.MaxPull || r.made.Load() > scratchMerges || r.Scratch.Packs() > scratchPacks
	if !full && now.Sub(r.use.since) < scratchAge {
		return
	}
	if r.use.bytes == 0 && r.made.Load() == 0 && r.Older == nil {
		r.use.since = now
		return
	}
	gone := filepath.Join(r.Options.Dir, "scratch.gone")
	if err := os.RemoveAll(gone); err != nil {
		r.LogError(ctx, "make the scratch store anew", err)
		return
	}
	// A merge that takes long must not make everybody wait behind us.
	if !r.Swap.TryLock() {
		return
	}
	err := r.swapScratch(gone)
	r.Swap.Unlock()
	if err == nil {
		r.use.since, r.use.bytes = now, 0
		r.made.Store(0)
		r.merges.forget()
		err = os.RemoveAll(gone)
	}
	r.LogError(ctx, "make the scratch store anew", err)
}

// swapScratch puts the scratch store aside as the older one, that one to gone,
// and an empty one in its place.
func (r *Repo) swapScratch(gone string) error {
	fresh, scratch, older := filepath.Join(r.Options.Dir, "scratch.new"), r.Scratch.Dir, filepath.Join(r.Options.Dir, "scratch.old")
	if err := errors.Join(os.RemoveAll(fresh), object.InitStore(fresh)); err != nil {
		return err
	}
	var err error
	if r.Older != nil {
		err = errors.Join(r.Older.Close(), os.Rename(older, gone))
		r.Older = nil
	}
	err = errors.Join(err, r.Scratch.Close())
	if err == nil {
		err = os.Rename(scratch, older)
	}
	if err == nil {
		r.Older = object.OpenStore(older)
		err = os.Rename(fresh, scratch)
	}
	if err != nil { // whatever stands there: merging needs a repository
		err = errors.Join(err, object.InitStore(scratch))
	}
	r.Scratch = object.OpenStore(scratch)
	return err
}

// refused says why a head is not fetched.
func (r *Repo) refused(ref string, head plumbing.Hash) error {
	was, ok := r.refusals[ref]
	if !ok || was.head != head || !r.Options.Now().Before(was.until) {
		delete(r.refusals, ref)
		return nil
	}
	return was.err
}

// refuse remembers it, so that what is too large is not fetched for each look.
func (r *Repo) refuse(ref string, head plumbing.Hash, long time.Duration, err error) {
	now := r.Options.Now()
	for n, was := range r.refusals {
		if !now.Before(was.until) {
			delete(r.refusals, n)
		}
	}
	r.refusals[ref] = refusal{head, now.Add(long), err}
}

// inMiB is a number of bytes as people read it.
func inMiB(n int64) string {
	if n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}
