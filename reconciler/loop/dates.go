package loop

import (
	"berth/reconciler"
	"berth/reconciler/provenance"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// maxDated is how many commits of main are looked back at for when documents
	// came. What came before is not told.
	maxDated = 10_000
	// datedAtOnce is how many in one go: units wait for none of it.
	datedAtOnce = 50
	// maxVersions is how many of a document's last versions have their time kept:
	// what is in force may be an older one than main's.
	maxVersions = 8
)

// dates are when the documents of main came there, as the commits that brought
// them say.
type dates struct {
	// The dates task's own: the commit of main up to which commits were listed, and
	// those not looked at yet, newest first.
	to      string
	pending []reconciler.Commit
	gone    map[string]bool // paths of entries that main does not have

	mu sync.Mutex
	of map[string]*dated // by path
}

// dated is when a document came, and its last versions did, oldest first.
type dated struct {
	created  time.Time // zero: before what is looked back at
	versions []version
}

type version struct {
	blob string
	at   time.Time
}

// find is when a document came to main, and when it became what it is as this blob;
// the zero time where that is not known.
func (d *dates) find(path, blob string) (created, updated time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.of[path]
	if one == nil {
		return created, updated // and what is gone nobody asks for
	}
	for _, v := range slices.Backward(one.versions) {
		if v.blob == blob {
			return one.created, v.at
		}
	}
	return one.created, updated
}

// note takes in what a commit changed, which comes after what was taken in before.
func (d *dates) note(c reconciler.Commit, paths []reconciler.PathChange) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of, d.gone = map[string]*dated{}, map[string]bool{}
	}
	for _, p := range paths {
		one := d.of[p.Path]
		if !provenance.InEstate(p.Path) {
			continue
		}
		delete(d.gone, p.Path)
		switch {
		case p.To == "": // what is held stays in force meanwhile
			if one != nil {
				d.gone[p.Path] = true
			}
			continue
		case p.From == "":
			one = &dated{created: c.When}
		case one == nil:
			one = &dated{}
		}
		one.versions = append(one.versions, version{p.To, c.When})
		one.versions = slices.Delete(one.versions, 0, max(0, len(one.versions)-maxVersions))
		d.of[p.Path] = one
	}
}

// forget begins anew.
func (d *dates) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to, d.pending, d.of, d.gone = "", nil, nil, nil
}

// drop takes away what main does not have, but for what differs from it in force.
func (d *dates) drop(differs []reconciler.PathChange) {
	held := make(map[string]bool, len(differs))
	for _, p := range differs {
		held[p.Path] = p.To != ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for path := range d.gone {
		if !held[path] {
			delete(d.of, path)
			delete(d.gone, path)
		}
	}
}

// date takes in some of the commits of main that were not yet; again is not zero
// where there are more.
func (r *Reconciler) date(ctx context.Context) (again time.Duration, err error) {
	d, st := &r.dates, r.current()
	if st == nil {
		return 0, nil
	}
	if len(d.pending) == 0 && d.to != st.Main {
		commits, err := r.o.Repo.Log(ctx, d.to, st.Main, maxDated)
		known := len(commits) > 0 && len(commits[len(commits)-1].Parents) > 0 && commits[len(commits)-1].Parents[0] == d.to
		if d.to != "" && (errors.Is(err, reconciler.ErrNotFound) || err == nil && !known) {
			d.forget() // main went elsewhere, or more came than is looked back at
			commits, err = r.o.Repo.Log(ctx, "", st.Main, maxDated)
		}
		if err != nil {
			return 0, err
		}
		d.pending, d.to = commits, st.Main
	}
	for range min(datedAtOnce, len(d.pending)) {
		last := len(d.pending) - 1
		c := d.pending[last]
		paths, err := provenance.Touched(ctx, r.o.Repo, c)
		switch {
		case errors.Is(err, reconciler.ErrUnreadable): // its times are not told, others are
			r.o.Log.Warn("cannot tell when what a commit changed came", "commit", short(c.ID), "error", err)
		case err != nil:
			return 0, err
		}
		d.note(c, paths)
		d.pending = d.pending[:last]
	}
	if len(d.pending) > 0 {
		return time.Millisecond, nil
	}
	if len(d.gone) == 0 || d.to != st.Main {
		return 0, nil
	}
	differs, err := r.o.Repo.Diff(ctx, st.Main, st.InForce)
	if errors.Is(err, reconciler.ErrUnreadable) {
		return 0, nil // it stays until it can be told
	}
	if err == nil {
		d.drop(differs)
	}
	return 0, err
}
