package gitrepo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"berth/reconciler/gitrepo/object"
)

// Limits of the scratch store. It is replaced when it reaches one of them.
const (
	scratchAge    = time.Hour
	scratchPacks  = 100
	scratchMerges = 2000
	scratchPulls  = 4 // factor of Options.MaxPull, in bytes
)

// scratch replaces the scratch store. The store holds the objects that no branch
// contains: heads of pull requests and the trees of merges. Anyone who can open a
// pull request can add objects. So it is separate from the mirror, and is
// replaced when it is old or large. The previous store stays readable until the
// next replacement, so that running operations can finish.
type scratch struct {
	history *history
	options Options
	since   time.Time // time of the last replacement
	bytes   int64     // bytes fetched since then
}

func scratchDir(dir string) string { return filepath.Join(dir, "scratch.git") }

// scratchDirs returns the directories that a process leaves behind.
func scratchDirs(dir string) (out []string) {
	for _, name := range []string{"scratch.git", "scratch.new", "scratch.old", "scratch.gone"} {
		out = append(out, filepath.Join(dir, name))
	}
	return out
}

// renew replaces the scratch store when it is due. The caller holds the turn. It
// is maintenance: a failure is logged, and the old store stays in use.
func (s *scratch) renew(ctx context.Context) {
	h, now := s.history, s.options.Now()
	merged := h.merged.Load()
	full := s.bytes > scratchPulls*s.options.MaxPull || merged > scratchMerges || h.Scratch.Packs() > scratchPacks
	if !full && now.Sub(s.since) < scratchAge {
		return
	}
	if s.bytes == 0 && merged == 0 && h.Older == nil {
		s.since = now
		return
	}
	gone := filepath.Join(s.options.Dir, "scratch.gone")
	err := os.RemoveAll(gone)
	if err == nil {
		// A long merge must not block all readers behind this writer.
		if !h.Swap.TryLock() {
			return
		}
		err = s.swap(gone)
		h.Swap.Unlock()
	}
	if err == nil {
		s.since, s.bytes = now, 0
		h.merged.Store(0)
		h.merges.Clear()
		err = os.RemoveAll(gone)
	}
	h.LogError(ctx, "scratch store could not be replaced", err)
}

// swap replaces the scratch store by an empty one. The current store becomes the
// older one, and the older one moves to gone.
func (s *scratch) swap(gone string) error {
	h, dir := s.history, s.options.Dir
	fresh, current, older := filepath.Join(dir, "scratch.new"), scratchDir(dir), filepath.Join(dir, "scratch.old")
	if err := errors.Join(os.RemoveAll(fresh), object.InitStore(fresh)); err != nil {
		return err
	}
	var err error
	if h.Older != nil {
		err = errors.Join(h.Older.Close(), os.Rename(older, gone))
		h.Older = nil
	}
	err = errors.Join(err, h.Scratch.Close())
	if err == nil {
		err = os.Rename(current, older)
	}
	if err == nil {
		h.Older = object.OpenStore(older)
		err = os.Rename(fresh, current)
	}
	if err != nil { // git needs a repository here, even after a failure
		err = errors.Join(err, object.InitStore(current))
	}
	h.Scratch = object.OpenStore(current)
	return err
}
