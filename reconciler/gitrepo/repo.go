package gitrepo

import (
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

// Options configure the repository of an estate and Berth's commits.
type Options struct {
	URL    string // https, ssh, or http to this machine; without credentials
	Dir    string // directory of the mirror; used by one process at a time
	Branch string // the branch that people merge to; empty: main

	// StatusURL is a separate repository for berth/status, for an estate whose
	// status must not be visible to readers of the estate. Empty: the estate's
	// repository.
	StatusURL string

	Auth       AuthFunc // for URL; nil: no credentials
	StatusAuth AuthFunc // for StatusURL; Auth is not sent there
	KnownHosts string   // file that pins SSH host keys; needed for ssh URLs
	AllowHTTP  bool     // plain http to other machines; only for closed networks

	// Sign signs the raw bytes of commits on berth/status and berth/in-force. Nil:
	// unsigned. Commits on berth/main are unsigned, because every daemon must
	// compose identical ones.
	Sign func(raw []byte) ([]byte, error)

	AuthorName  string // of Berth's commits; empty: Berth
	AuthorEmail string // empty: berth@localhost

	// Timeout bounds one call to the remote. A first fetch has ten times as long.
	// Zero: one minute.
	Timeout time.Duration

	// MaxPull bounds the pack size in bytes of one pull request head. Zero: 256
	// MiB.
	MaxPull int64

	// Tenant marks a tenant's repository: only Branch is read, its history may be
	// rewritten, and MaxPull bounds one fetch.
	Tenant bool
	// Composer composes the estate from Branch and the tenants' repositories. Nil:
	// the estate is Branch.
	Composer Composer

	Log *slog.Logger     // nil: no log
	Now func() time.Time // time of commits; nil: time.Now
}

// Repo is one estate. It is safe for concurrent use. Calls to the remote run one
// at a time.
type Repo struct {
	*merger
	Options Options
	who     string // "Name <mail>" of commits
	main    *remote
	status  *remote // same as main, or the remote of StatusURL
	local   string  // Git directory of a local view; else empty

	composer Composer // nil: the estate is Options.Branch alone

	lock *os.File // held while this process uses the mirror

	// remoteBusy holds one token. Its holder may talk to the remote and move local
	// refs.
	remoteBusy chan struct{}

	use      scratchUse
	refusals map[string]refusal // by ref; guarded by remoteBusy

	verified plumbing.Hash // verified in-force tip; guarded by remoteBusy
	moves    moves         // of in-force; guarded by remoteBusy

	statusBranch *statusbranch.Branch
}

var _ reconciler.Repo = (*Repo)(nil)

// Open opens or creates the mirror in o.Dir. It does not contact the remote, so
// it works while the remote is down. Close releases the directory.
func Open(_ context.Context, o Options) (*Repo, error) {
	if o.Branch == "" {
		o.Branch = "main"
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.MaxPull == 0 {
		o.MaxPull = defaultMaxPull
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sign == nil {
		o.Sign = func(raw []byte) ([]byte, error) { return raw, nil }
	}
	if err := plumbing.NewBranchReferenceName(o.Branch).Validate(); err != nil || o.Branch == "berth" || strings.HasPrefix(o.Branch, "berth/") {
		return nil, fmt.Errorf("branch %q cannot hold an estate; berth/* is Berth's own", o.Branch)
	}
	r := &Repo{merger: newMerger(&object.Reader{Log: o.Log}), Options: o, who: object.Identity(o.AuthorName, o.AuthorEmail), composer: o.Composer, remoteBusy: make(chan struct{}, 1), refusals: map[string]refusal{}}
	var err error
	if r.main, err = newRemote(o.URL, o.Auth, o); err != nil {
		return nil, err
	}
	r.status = r.main
	r.openStatus()
	if o.StatusURL != "" && o.StatusURL != o.URL {
		if r.status, err = newRemote(o.StatusURL, o.StatusAuth, o); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	if r.lock, err = lockDir(o.Dir); err != nil {
		return nil, err
	}
	if err := r.openMirror(); err != nil {
		return nil, errors.Join(err, r.lock.Close())
	}
	return r, nil
}

// openMirror opens or creates the mirror and an empty scratch store, and removes
// the leftovers of a crash.
func (r *Repo) openMirror() error {
	mirror, scratch := MirrorDir(r.Options.Dir), filepath.Join(r.Options.Dir, "scratch.git")
	if old := filepath.Join(r.Options.Dir, "mirror.old"); !object.FileExists(mirror) && object.FileExists(old) {
		if err := os.Rename(old, mirror); err != nil { // crash during a replacement
			return err
		}
	}
	for _, name := range []string{"mirror.new", "mirror.old", "scratch.git", "scratch.new", "scratch.old", "scratch.gone"} {
		if err := os.RemoveAll(filepath.Join(r.Options.Dir, name)); err != nil {
			return err
		}
	}
	if err := object.InitStore(mirror); err != nil { // another file is in its place; a cache can be deleted
		if err := errors.Join(os.RemoveAll(mirror), object.InitStore(mirror)); err != nil {
			return err
		}
	}
	if err := object.ClearLeft(mirror); err != nil {
		return err
	}
	if err := object.InitStore(scratch); err != nil {
		return err
	}
	r.Mirror, r.Scratch = object.OpenStore(mirror), object.OpenStore(scratch)
	r.use.since = r.Options.Now()
	r.branches = r.seenCommits
	var kept Tips
	for name := range r.places(&kept) {
		h, err := r.Mirror.Ref(name)
		if err == nil && !h.IsZero() {
			_, err = r.RootEntries(h)
		}
		if err != nil {
			r.Damaged("open mirror", err)
		}
	}
	return nil
}

// lockDir locks the directory for this process. The kernel releases the lock when
// the process ends.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("mirror %s is in use by another process: stop it, or give this one a directory of its own", dir), f.Close())
	}
	return f, nil
}

// Close closes the mirror. The Repo must not be used afterwards.
func (r *Repo) Close() error {
	err := errors.Join(r.Mirror.Close(), r.Scratch.Close())
	if r.Older != nil {
		err = errors.Join(err, r.Older.Close())
	}
	if r.lock != nil {
		// Closing alone is not enough: a git program that is just starting holds a
		// copy of the descriptor.
		err = errors.Join(err, syscall.Flock(int(r.lock.Fd()), syscall.LOCK_UN), r.lock.Close())
	}
	if r.local != "" {
		err = errors.Join(err, os.RemoveAll(r.Scratch.Dir))
	}
	return err
}

// acquire waits for the right to talk to the remote.
func (r *Repo) acquire(ctx context.Context) (release func(), err error) {
	if r.local != "" {
		return nil, errReadOnly
	}
	select {
	case r.remoteBusy <- struct{}{}:
		return func() { <-r.remoteBusy }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// errReadOnly means that a local view was used for an operation that needs a
// remote.
var errReadOnly = errors.New("this is a view of a local repository: it has no remote and is never written to")
