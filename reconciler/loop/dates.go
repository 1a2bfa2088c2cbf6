package loop

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"berth/reconciler"
	"berth/reconciler/provenance"
)

const (
	// maxDated bounds the commits of main that are searched for dates. Older dates are
	// unknown.
	maxDated = 10_000
	// datedAtOnce bounds the commits of one run, so that units do not wait.
	datedAtOnce = 50
	// maxVersions bounds the versions of a document whose date is kept. The version in
	// force may be older than main's.
	maxVersions = 8
)

// dates finds the dates of documents from the commits of main.
type dates struct {
	inForce *inForce
	repo    reconciler.Repo
	log     *slog.Logger

	// Used by the dates task only, of which one runs at a time.
	to      string              // commit of main up to which commits were listed
	pending []reconciler.Commit // not read yet, newest first
	gone    map[string]bool     // paths with a date that main does not have

	mu     sync.Mutex
	byPath map[string]*dated
}

// dated holds the creation date of a document and its last versions, oldest first.
type dated struct {
	created  time.Time // zero: before the oldest commit that was read
	versions []version
}

type version struct {
	blob string
	at   time.Time
}

func newDates(f *inForce, repo reconciler.Repo, log *slog.Logger) *dates {
	return &dates{inForce: f, repo: repo, log: log, byPath: map[string]*dated{}, gone: map[string]bool{}}
}

// find returns the time when a document was added to main, and when it got the content
// of this blob; the zero time if unknown.
func (d *dates) find(path, blob string) (created, updated time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.byPath[path]
	if one == nil {
		return created, updated
	}
	for _, v := range slices.Backward(one.versions) {
		if v.blob == blob {
			return one.created, v.at
		}
	}
	return one.created, updated
}

// add adds the changes of a commit. Commits are added oldest first.
func (d *dates) add(c reconciler.Commit, paths []reconciler.PathChange) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range paths {
		if !provenance.InEstate(p.Path) {
			continue
		}
		one := d.byPath[p.Path]
		delete(d.gone, p.Path)
		switch {
		case p.To == "": // a held deletion stays in force
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
		d.byPath[p.Path] = one
	}
}

// reset forgets everything.
func (d *dates) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to, d.pending = "", nil
	clear(d.byPath)
	clear(d.gone)
}

// dropGone forgets the paths that neither main nor berth/in-force has. differs is
// the difference between the two.
func (d *dates) dropGone(differs []reconciler.PathChange) {
	inForce := make(map[string]bool, len(differs))
	for _, p := range differs {
		inForce[p.Path] = p.To != ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for path := range d.gone {
		if !inForce[path] {
			delete(d.byPath, path)
			delete(d.gone, path)
		}
	}
}

// reconcile reads some of the commits of main that were not read yet.
func (d *dates) reconcile(ctx context.Context, _ reconciler.Item) (again time.Duration, err error) {
	st := d.inForce.current()
	if st == nil {
		return 0, nil
	}
	if err := d.list(ctx, st.Main); err != nil {
		return 0, err
	}
	for range min(datedAtOnce, len(d.pending)) {
		last := len(d.pending) - 1
		c := d.pending[last]
		paths, err := provenance.Touched(ctx, d.repo, c)
		switch {
		case errors.Is(err, reconciler.ErrUnreadable):
			d.log.Warn("dates of a commit's changes unknown", "commit", reconciler.Short(c.ID), "error", err)
		case err != nil:
			return 0, err
		}
		d.add(c, paths)
		d.pending = d.pending[:last]
	}
	if len(d.pending) > 0 {
		return soon, nil
	}
	if len(d.gone) == 0 || d.to != st.Main {
		return 0, nil
	}
	differs, err := d.repo.Diff(ctx, st.Main, st.InForce)
	if errors.Is(err, reconciler.ErrUnreadable) {
		return 0, nil // tried again with the next decision
	}
	if err == nil {
		d.dropGone(differs)
	}
	return 0, err
}

// list lists the commits up to main that were not listed yet.
func (d *dates) list(ctx context.Context, main string) error {
	if len(d.pending) > 0 || d.to == main {
		return nil
	}
	commits, err := d.repo.Log(ctx, d.to, main, maxDated)
	isJoined := len(commits) > 0 && len(commits[len(commits)-1].Parents) > 0 && commits[len(commits)-1].Parents[0] == d.to
	if d.to != "" && (errors.Is(err, reconciler.ErrNotFound) || err == nil && !isJoined) {
		d.reset() // main has another history, or too many new commits
		commits, err = d.repo.Log(ctx, "", main, maxDated)
	}
	if err == nil {
		d.pending, d.to = commits, main
	}
	return err
}
