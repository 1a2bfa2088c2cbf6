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

// Options say which estate a Repo is, and who writes to it.
type Options struct {
	URL    string // https, ssh, or http to this machine; no credentials in it
	Dir    string // where the mirror is kept; one process at a time
	Branch string // the branch people merge to; empty: main

	// StatusURL is another repository for berth/status, for an estate whose
	// status must not be seen where the estate is. Empty: the same.
	StatusURL string

	Auth       AuthFunc // for URL; nil: none
	StatusAuth AuthFunc // for StatusURL; Auth is not sent there
	KnownHosts string   // file that pins SSH host keys; needed for ssh URLs
	AllowHTTP  bool     // plain http to other machines; only for closed networks

	// Sign signs the raw bytes of commits on berth/status and berth/in-force. Nil:
	// they are not signed. Commits on berth/main never are, as every daemon has to
	// compose the same ones.
	Sign func(raw []byte) ([]byte, error)

	AuthorName  string // of Berth's commits; empty: Berth
	AuthorEmail string // empty: berth@localhost

	// Timeout bounds one call to the remote; a first fetch has ten times as
	// long. Zero: a minute.
	Timeout time.Duration

	// MaxPull bounds what the head of one pull request may bring, in bytes of a
	// pack. Zero: 256 MiB.
	MaxPull int64

	// tenant: only Branch is looked at, it may go anywhere, and what one fetch of
	// it brings is bounded by MaxPull.
	Tenant bool
	// composer composes the estate of Branch and of the repositories of tenants; nil:
	// the estate is Branch.
	Composer Composer

	Log *slog.Logger     // nil: nothing is logged
	Now func() time.Time // time of commits; nil: time.Now
}

// Repo is one estate. It is safe for concurrent use; calls to the remote go one
// after the other.
type Repo struct {
	*merger
	Options Options
	who     string // "Name <mail>" of commits
	main    *remote
	status  *remote // the same as main, or StatusURL's
	local   string  // Git directory of someone's repository that is only looked at; else empty

	composer Composer // nil: the estate is Options.Branch alone

	lock *os.File // held while the mirror is ours

	// remoteBusy holds one token: who has it may talk to the remote and move
	// local refs.
	remoteBusy chan struct{}

	use      scratchUse
	refusals map[string]refusal // by ref; under remoteBusy

	verified plumbing.Hash // in-force tip known to hold only blobs of main; under remoteBusy
	moves    moves         // of in-force; under remoteBusy

	statusBranch *statusbranch.Branch
}

var _ reconciler.Repo = (*Repo)(nil)

// Open takes the mirror in o.Dir into use, or makes one. It does not talk to
// the remote: an estate whose remote is down can be opened. Close gives the
// directory back.
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

// openMirror opens or makes the mirror and an empty scratch store, and clears
// what a crash left beside them.
func (r *Repo) openMirror() error {
	mirror, scratch := MirrorDir(r.Options.Dir), filepath.Join(r.Options.Dir, "scratch.git")
	if old := filepath.Join(r.Options.Dir, "mirror.old"); !object.FileExists(mirror) && object.FileExists(old) {
		if err := os.Rename(old, mirror); err != nil { // a crash while it was replaced
			return err
		}
	}
	for _, name := range []string{"mirror.new", "mirror.old", "scratch.git", "scratch.new", "scratch.old", "scratch.gone"} {
		if err := os.RemoveAll(filepath.Join(r.Options.Dir, name)); err != nil {
			return err
		}
	}
	if err := object.InitStore(mirror); err != nil { // something else is in its place: it is a cache
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

// lockDir takes the directory for this process; the kernel gives it back when
// the process ends, however it ends.
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

// Close gives the mirror's files back. The Repo must not be used afterwards.
func (r *Repo) Close() error {
	err := errors.Join(r.Mirror.Close(), r.Scratch.Close())
	if r.Older != nil {
		err = errors.Join(err, r.Older.Close())
	}
	if r.lock != nil {
		// Unlocked, not only closed: a git program that is being started at this
		// moment holds a copy of the descriptor until it has begun.
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

// errReadOnly: a local view was asked for what needs a remote.
var errReadOnly = errors.New("this is a view of a local repository: it has no remote and is never written to")
