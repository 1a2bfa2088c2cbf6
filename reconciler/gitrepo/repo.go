package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"golang.org/x/sync/singleflight"

	"berth/reconciler"
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
	tenant bool
	// composer: the estate is composed of Branch and of what tenants have in
	// repositories of their own.
	composer *composer

	Log *slog.Logger     // nil: nothing is logged
	Now func() time.Time // time of commits; nil: time.Now
}

// Repo is one estate. It is safe for concurrent use; calls to the remote go one
// after the other.
type Repo struct {
	options Options
	who     string // "Name <mail>" of commits
	main    *remote
	status  *remote // the same as main, or StatusURL's
	local   string  // Git directory of someone's repository that is only looked at; else empty

	composer *composer // nil: the estate is Options.Branch alone

	lock    *os.File // held while the mirror is ours
	gitOnce func() error

	// remoteBusy holds one token: who has it may talk to the remote and move
	// local refs.
	remoteBusy chan struct{}

	// swap guards the stores' places on disk: git processes and readers hold it
	// shared, replacing one holds it alone.
	swap    sync.RWMutex
	mirror  *store
	scratch *store // heads of pull requests, and trees that merging made
	older   *store // the scratch store before, to be read only; nil: none

	use      scratchUse
	merges   merges
	bases    known[[2]string, string] // of two commits, their best common ancestor
	patches  known[string, string]    // by what git was asked
	refusals map[string]refusal       // by ref; under remoteBusy

	trees    knownTrees
	reading  singleflight.Group // of trees
	files    knownFiles
	broken   atomic.Bool   // something in the mirror could not be read: fetch anew
	verified plumbing.Hash // in-force tip known to hold only blobs of main; under remoteBusy
	moves    moves         // of in-force; under remoteBusy

	statusMu sync.Mutex
	index    *statusIndex // what berth/status holds at one tree; nil: not read yet
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
	r := &Repo{options: o, who: identity(o), composer: o.composer, remoteBusy: make(chan struct{}, 1), refusals: map[string]refusal{}}
	var err error
	if r.main, err = newRemote(o.URL, o.Auth, o); err != nil {
		return nil, err
	}
	r.status = r.main
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
	mirror, scratch := MirrorDir(r.options.Dir), filepath.Join(r.options.Dir, "scratch.git")
	if old := filepath.Join(r.options.Dir, "mirror.old"); !fileExists(mirror) && fileExists(old) {
		if err := os.Rename(old, mirror); err != nil { // a crash while it was replaced
			return err
		}
	}
	for _, name := range []string{"mirror.new", "mirror.old", "scratch.git", "scratch.new", "scratch.old", "scratch.gone"} {
		if err := os.RemoveAll(filepath.Join(r.options.Dir, name)); err != nil {
			return err
		}
	}
	if err := initStore(mirror); err != nil { // something else is in its place: it is a cache
		if err := errors.Join(os.RemoveAll(mirror), initStore(mirror)); err != nil {
			return err
		}
	}
	if err := clearLeft(mirror); err != nil {
		return err
	}
	if err := initStore(scratch); err != nil {
		return err
	}
	r.mirror, r.scratch = openStore(mirror), openStore(scratch)
	r.use.since = r.options.Now()
	r.gitOnce = sync.OnceValue(checkGit)
	var kept tips
	for name := range r.places(&kept) {
		h, err := r.mirror.ref(name)
		if err == nil && !h.IsZero() {
			_, err = r.rootEntries(h)
		}
		if err != nil {
			r.damaged("open mirror", err)
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
	err := errors.Join(r.mirror.close(), r.scratch.close())
	if r.older != nil {
		err = errors.Join(err, r.older.close())
	}
	if r.lock != nil {
		// Unlocked, not only closed: a git program that is being started at this
		// moment holds a copy of the descriptor until it has begun.
		err = errors.Join(err, syscall.Flock(int(r.lock.Fd()), syscall.LOCK_UN), r.lock.Close())
	}
	if r.local != "" {
		err = errors.Join(err, os.RemoveAll(r.scratch.dir))
	}
	return err
}

// identity is the author of Berth's commits, made safe for a commit header.
func identity(o Options) string {
	clean := func(s, fallback string) string {
		s = strings.TrimSpace(strings.Map(func(c rune) rune {
			if c < 0x20 || strings.ContainsRune("<>", c) {
				return -1
			}
			return c
		}, s))
		if s == "" {
			return fallback
		}
		return s
	}
	return clean(o.AuthorName, "Berth") + " <" + clean(o.AuthorEmail, "berth@localhost") + ">"
}

// acquire waits for the right to talk to the remote.
func (r *Repo) acquire(ctx context.Context) (release func(), err error) {
	if r.local != "" {
		return nil, errors.New("this is a view of a local repository: there is no remote to talk to")
	}
	select {
	case r.remoteBusy <- struct{}{}:
		return func() { <-r.remoteBusy }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// damaged notes that the mirror cannot be trusted; the next Fetch replaces it.
func (r *Repo) damaged(what string, err error) {
	if !r.broken.Swap(true) {
		r.options.Log.Warn("mirror is damaged; the next fetch replaces it", "during", what, "error", err.Error())
	}
}

// object reads an object from the mirror, or from the scratch store.
func (r *Repo) object(h plumbing.Hash) (plumbing.ObjectType, []byte, error) {
	kind, data, _, err := r.read(h, maxObject)
	return kind, data, err
}

func (r *Repo) read(h plumbing.Hash, limit int) (plumbing.ObjectType, []byte, bool, error) {
	r.swap.RLock()
	defer r.swap.RUnlock()
	kind, data, more, err := r.mirror.read(h, limit)
	if errors.Is(err, errAbsent) {
		kind, data, more, err = r.scratch.read(h, limit)
	}
	if errors.Is(err, errAbsent) && r.older != nil {
		kind, data, more, err = r.older.read(h, limit)
	}
	if err == nil && more && limit == maxObject {
		err = fmt.Errorf("object %s is larger than %d bytes", h, maxObject)
	}
	return kind, data, more, err
}

// commit reads a commit. One that is not there is reconciler.ErrNotFound.
func (r *Repo) commit(h plumbing.Hash) (commit, error) {
	kind, data, err := r.object(h)
	if errors.Is(err, errAbsent) {
		return commit{}, fmt.Errorf("commit %s: %w; it may have to be fetched", h, reconciler.ErrNotFound)
	}
	if err != nil {
		r.damaged("read commit", err)
		return commit{}, err
	}
	if kind != plumbing.CommitObject {
		return commit{}, fmt.Errorf("%s is a %s, not a commit", h, kind)
	}
	return parseCommit(h, data)
}

// tree reads a tree. The zero hash is an empty one. That a tree somebody refers
// to is not there is damage, never emptiness.
func (r *Repo) tree(h plumbing.Hash) ([]entry, error) {
	entries, err := r.listed(h)
	return slices.Clone(entries), err // for the caller to change
}

// listed is tree for who changes nothing in it.
func (r *Repo) listed(h plumbing.Hash) ([]entry, error) {
	if h.IsZero() || h == plumbing.NewHash(emptyTree) {
		return nil, nil
	}
	if known, ok := r.trees.get(h); ok {
		return known, nil
	}
	// Who reads ahead and who compares go the same way: one reads, both have it.
	entries, err, _ := r.reading.Do(string(h[:]), func() (any, error) { return r.list(h) })
	return entries.([]entry), err
}

// list reads a directory and keeps it.
func (r *Repo) list(h plumbing.Hash) ([]entry, error) {
	if known, ok := r.trees.get(h); ok {
		return known, nil // somebody has, just now
	}
	kind, data, more, err := r.read(h, maxObject)
	if err != nil && more { // somebody made it so
		return nil, fmt.Errorf("%w: %w", reconciler.ErrUnreadable, err)
	}
	if err != nil {
		r.damaged("read tree", err)
		return nil, incomplete(err)
	}
	if kind != plumbing.TreeObject {
		return nil, fmt.Errorf("%w: %s is a %s, not a tree", reconciler.ErrUnreadable, h, kind)
	}
	entries, err := parseTree(data)
	if err == nil {
		r.trees.add(h, entries, len(entries))
	}
	return entries, err
}

// root is the tree of a commit or tree id; the zero hash for "".
func (r *Repo) root(id string) (plumbing.Hash, error) {
	h, err := parseOptionalID(id)
	if err != nil || h.IsZero() || id == emptyTree {
		return h, err
	}
	kind, data, err := r.object(h)
	if errors.Is(err, errAbsent) {
		return h, fmt.Errorf("commit %s: %w; it may have to be fetched", h, reconciler.ErrNotFound)
	}
	if err != nil {
		r.damaged("read commit", err)
		return h, err
	}
	switch kind {
	case plumbing.TreeObject:
		return h, nil
	case plumbing.CommitObject:
		c, err := parseCommit(h, data)
		return c.tree, err
	}
	return h, fmt.Errorf("%s is a %s, neither commit nor tree", id, kind)
}

// rootEntries reads the root tree of a commit.
func (r *Repo) rootEntries(h plumbing.Hash) ([]entry, error) {
	c, err := r.commit(h)
	if err != nil {
		return nil, err
	}
	return r.tree(c.tree)
}

// errReadOnly is what writing to a local view gives.
var errReadOnly = errors.New("this is a view of a local repository: it is never written to")

// logError logs an error that nobody is handed.
func (r *Repo) logError(ctx context.Context, what string, err error) {
	if err != nil && !errors.Is(err, io.EOF) {
		r.options.Log.ErrorContext(ctx, what, "error", err.Error())
	}
}
