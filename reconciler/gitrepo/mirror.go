package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
)

// maxPacks is the number of packs from which small packs are combined. Each fetch
// and each write adds a pack, and a read may have to search all packs.
const maxPacks = 50

// MirrorDir returns the directory of Berth's mirror below Options.Dir. OpenLocal
// can open it like any repository.
func MirrorDir(dir string) string { return filepath.Join(dir, "mirror.git") }

func newMirrorDir(dir string) string { return filepath.Join(dir, "mirror.new") }
func oldMirrorDir(dir string) string { return filepath.Join(dir, "mirror.old") }

// openMirror opens or creates the mirror and an empty scratch store, and removes
// the leftovers of a crash.
func (f *Fetcher) openMirror() error {
	dir := f.Options.Dir
	mirror := MirrorDir(dir)
	if err := endReplacement(dir); err != nil {
		return err
	}
	if err := object.InitStore(mirror); err != nil { // another file is in its place; a cache can be deleted
		if err := errors.Join(os.RemoveAll(mirror), object.InitStore(mirror)); err != nil {
			return err
		}
	}
	if err := errors.Join(object.ClearLeft(mirror), object.InitStore(scratchDir(dir))); err != nil {
		return err
	}
	f.Mirror, f.Scratch = object.OpenStore(mirror), object.OpenStore(scratchDir(dir))
	var kept Tips
	for name := range f.places(&kept) {
		h, err := f.Mirror.Ref(name)
		if err == nil && !h.IsZero() {
			_, err = f.RootEntries(h)
		}
		if err != nil {
			f.Damaged("open mirror", err)
		}
	}
	return nil
}

// endReplacement restores the mirror after a crash during its replacement, and removes what such a crash left.
func endReplacement(dir string) error {
	mirror, old := MirrorDir(dir), oldMirrorDir(dir)
	if !object.FileExists(mirror) && object.FileExists(old) {
		if err := os.Rename(old, mirror); err != nil {
			return err
		}
	}
	for _, left := range append(scratchDirs(dir), newMirrorDir(dir), old) {
		if err := os.RemoveAll(left); err != nil {
			return err
		}
	}
	return nil
}

// repackMirror combines the mirror's small packs when there are many, the
// smallest first, which keeps the total work small. If that keeps
// failing, a later fetch replaces the mirror.
func (f *Fetcher) repackMirror(ctx context.Context) {
	if f.Mirror.Packs() <= maxPacks {
		return
	}
	f.Swap.Lock()
	defer f.Swap.Unlock()
	err := f.checkGit()
	if err == nil {
		var code int
		f.LogError(ctx, "mirror could not be closed", f.Mirror.Close())
		_, code, err = object.Run(ctx, []string{"GIT_DIR=" + f.Mirror.Dir}, "repack", "-q", "-d", "--geometric=2",
			"--no-write-bitmap-index")
		if err == nil && code != 0 {
			err = fmt.Errorf("git repack ended with status %d", code)
		}
		f.Mirror = object.OpenStore(f.Mirror.Dir)
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case f.Mirror.Packs() > 3*maxPacks:
		f.Damaged("repack mirror", err)
	default:
		f.LogError(ctx, "packs of the mirror not combined", err)
	}
}

// replaceMirror fetches all branches into a new mirror and replaces the old one.
// If the remote does not respond, the old mirror stays.
func (f *Fetcher) replaceMirror(ctx context.Context, seen Tips) (Tips, error) {
	start := time.Now()
	dir := newMirrorDir(f.Options.Dir)
	if err := errors.Join(os.RemoveAll(dir), object.InitStore(dir)); err != nil {
		return seen, err
	}
	fresh := newFetcher(&object.Reader{Log: f.Options.Log, Mirror: object.OpenStore(dir), Scratch: f.Scratch, Older: f.Older}, f.Options,
		f.main, f.status, f.turn)
	fresh.moves = f.moves
	now, err := fresh.fill(ctx, f.Mirror, seen)
	if fresh.Broken.Load() || (err != nil && !errors.Is(err, reconciler.ErrRewritten)) {
		return seen, errors.Join(err, fresh.Mirror.Close())
	}
	f.Swap.Lock()
	defer f.Swap.Unlock()
	mirror, old := f.Mirror.Dir, oldMirrorDir(f.Options.Dir)
	// The old mirror may be damaged, so closing it may fail.
	f.LogError(ctx, "old mirror could not be closed", f.Mirror.Close())
	swapped := errors.Join(fresh.Mirror.Close(), os.RemoveAll(old))
	if object.FileExists(mirror) {
		swapped = errors.Join(swapped, os.Rename(mirror, old))
	}
	swapped = errors.Join(swapped, os.Rename(dir, mirror))
	f.Mirror = object.OpenStore(mirror)
	f.merges.Clear()
	if swapped != nil {
		return seen, errors.Join(err, swapped)
	}
	f.Broken.Store(false)
	f.verified, f.moves = fresh.verified, fresh.moves
	f.LogError(ctx, "old mirror could not be removed", os.RemoveAll(old))
	f.Options.Log.InfoContext(ctx, "mirror replaced", "seconds", time.Since(start).Seconds())
	return now, err
}

// fill fetches all branches into an empty mirror. The tips known to the old
// mirror remain known: a new mirror must not accept a rewritten main.
func (f *Fetcher) fill(ctx context.Context, old *object.Store, seen Tips) (Tips, error) {
	for name, h := range f.places(&seen) {
		if !h.IsZero() {
			if err := f.Mirror.SetRef(name, *h); err != nil {
				return seen, err
			}
		}
	}
	if accepted, err := old.Ref(acceptedRef); err == nil && !accepted.IsZero() {
		if err := f.Mirror.SetRef(acceptedRef, accepted); err != nil {
			return seen, err
		}
	}
	return f.update(ctx, seen)
}

// fetch is Repo.Fetch. The caller holds the turn.
func (f *Fetcher) fetch(ctx context.Context) (Tips, error) {
	seen := f.seen()
	if f.Broken.Load() {
		return f.replaceMirror(ctx, seen)
	}
	tips, err := f.update(ctx, seen)
	if f.Broken.Load() && ctx.Err() == nil {
		f.LogError(ctx, "fetch into a damaged mirror failed", err)
		return f.replaceMirror(ctx, seen)
	}
	if err == nil {
		f.repackMirror(ctx)
	}
	return tips, err
}
