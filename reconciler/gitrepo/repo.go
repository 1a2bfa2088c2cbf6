package gitrepo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
	"berth/reconciler/gitrepo/statusbranch"
)

// Repo is one estate. It is safe for concurrent use. Calls to the remote run one
// at a time.
type Repo struct {
	*Fetcher
	*pulls
	*statusbranch.Branch
	lock *os.File // held while this process uses the mirror
}

var _ reconciler.Repo = (*Repo)(nil)

// Open opens or creates the mirror in o.Dir. It does not contact the remote, so
// it works while the remote is down. Close releases the directory.
func Open(_ context.Context, o Options) (*Repo, error) {
	o.Branch = cmp.Or(o.Branch, "main")
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	o.MaxPull = cmp.Or(o.MaxPull, defaultMaxPull)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sign == nil {
		o.Sign = func(raw []byte) ([]byte, error) { return raw, nil }
	}
	if err := plumbing.NewBranchReferenceName(o.Branch).Validate(); err != nil || o.Branch == "berth" ||
		strings.HasPrefix(o.Branch, "berth/") {
		return nil, fmt.Errorf("branch %q cannot hold an estate; berth/* is Berth's own", o.Branch)
	}
	main, err := newRemote(o.URL, o.Auth, o)
	if err != nil {
		return nil, err
	}
	status := main
	if o.Status.URL != "" && o.Status.URL != o.URL {
		if status, err = newRemote(o.Status.URL, o.Status.Auth, o); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, err
	}
	turn := make(turn, 1)
	f := newFetcher(&object.Reader{Log: o.Log}, o, main, status, turn)
	if err := f.openMirror(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Repo{
		Fetcher: f, lock: lock,
		pulls: &pulls{
			history: f.history, options: o, remote: main, turn: turn, seen: f.seen, refusals: f.refusals,
			scratch: &scratch{history: f.history, options: o, since: o.Now()},
		},
		Branch: statusbranch.New(f.Reader, statusbranch.Options{
			Sign: o.Sign, Now: o.Now, Acquire: turn.acquire, Copy: statusCopy(o.Dir),
			Publish: func(ctx context.Context, old, tip plumbing.Hash, set *object.Batch) error {
				return publish(ctx, f.Reader, status, reconciler.BranchStatus, old, tip, set)
			},
		}),
	}, nil
}

// lockDir locks the directory for this process. The kernel releases the lock when
// the process ends.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(lockFile(dir), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("mirror %s is in use by another process: stop it, or give this one a directory of its own", dir),
			f.Close())
	}
	return f, nil
}

// Close closes the mirror. The Repo must not be used afterwards.
func (r *Repo) Close() error {
	r.Branch.Close()
	err := errors.Join(r.Mirror.Close(), r.Scratch.Close())
	if r.Older != nil {
		err = errors.Join(err, r.Older.Close())
	}
	// Closing alone is not enough: a git program that is just starting holds a copy
	// of the descriptor.
	return errors.Join(err, syscall.Flock(int(r.lock.Fd()), syscall.LOCK_UN), r.lock.Close())
}

// Fetch updates the mirror and returns the tips of the branches. With an error it
// returns the previous tips. A branch is updated only completely and only by a
// fast-forward.
//
// reconciler.ErrRewritten means that main, in-force or status does not descend
// from its last known tip, or that in-force has files that main never had. It
// also means that another process moved in-force while this process runs, even by
// a fast-forward to files of main; a new process accepts that. The error persists
// until the remote is repaired or an operator calls Accept.
// reconciler.ErrNotFound means that the remote has no main.
func (r *Repo) Fetch(ctx context.Context) (reconciler.Tips, error) {
	release, err := r.Fetcher.turn.acquire(ctx)
	if err != nil {
		return reconciler.Tips{}, err
	}
	defer release()
	tips, err := r.fetch(ctx)
	r.scratch.renew(ctx)
	return tips.public(), err
}

// Accept updates the branches to the remote's tips although history was
// rewritten. The operator names main's commit, so that only a reviewed commit is
// accepted.
func (r *Repo) Accept(ctx context.Context, main string) (reconciler.Tips, error) {
	want, err := object.ParseID(main)
	if err != nil {
		return reconciler.Tips{}, err
	}
	release, err := r.Fetcher.turn.acquire(ctx)
	if err != nil {
		return reconciler.Tips{}, err
	}
	defer release()
	tips, err := r.accept(ctx, want)
	return tips.public(), err
}

// Shadowed returns no files, because the estate has one repository.
func (r *Repo) Shadowed(context.Context, string, string) ([]string, error) { return nil, nil }

func statusCopy(dir string) string { return filepath.Join(dir, "status-copy") }

func lockFile(dir string) string { return filepath.Join(dir, "lock") }
