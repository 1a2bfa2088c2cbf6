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

// The scratch store holds the objects that no branch contains: heads of pull
// requests and the trees of merges. Anyone who can open a pull request can add
// objects. So it is separate from the mirror, and is replaced when it is old or
// large. The previous store stays readable until the next replacement, so that
// running operations can finish.
const (
	scratchAge    = time.Hour
	scratchPacks  = 100
	scratchMerges = 2000
	scratchPulls  = 4 // factor of Options.MaxPull, in bytes

	// StoreAgain is the delay before a head that could not be stored is fetched
	// again.
	StoreAgain = 5 * time.Minute
)

// defaultMaxPull is the default of Options.MaxPull; an estate is text.
const defaultMaxPull = 256 << 20

// scratchUse is the use of the scratch store since its creation.
type scratchUse struct {
	since time.Time
	bytes int64 // bytes fetched
}

// refusal records a head that is not fetched again for a while.
type refusal struct {
	head  plumbing.Hash
	until time.Time
	err   error
}

// renewScratch replaces the scratch store when it is due. The caller holds the
// right to talk to the remote. It is maintenance: a failure is logged, and the
// old store stays in use.
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
	// A long merge must not block all readers behind this writer.
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

// swapScratch replaces the scratch store by an empty one. The current store
// becomes the older one, and the older one moves to gone.
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
	if err != nil { // git needs a repository here, even after a failure
		err = errors.Join(err, object.InitStore(scratch))
	}
	r.Scratch = object.OpenStore(scratch)
	return err
}

// refused returns the error that a head was refused with, if it must not be
// fetched now.
func (r *Repo) refused(ref string, head plumbing.Hash) error {
	was, ok := r.refusals[ref]
	if !ok || was.head != head || !r.Options.Now().Before(was.until) {
		delete(r.refusals, ref)
		return nil
	}
	return was.err
}

// refuse records a refusal, so that a large head is not fetched again for each
// reconcile.
func (r *Repo) refuse(ref string, head plumbing.Hash, long time.Duration, err error) {
	now := r.Options.Now()
	for n, was := range r.refusals {
		if !now.Before(was.until) {
			delete(r.refusals, n)
		}
	}
	r.refusals[ref] = refusal{head, now.Add(long), err}
}

// inMiB formats a number of bytes for people.
func inMiB(n int64) string {
	if n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}
