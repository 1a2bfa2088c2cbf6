package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/schema"
)

// Reader reads objects of the mirror and of the scratch store. It is safe for
// concurrent use.
type Reader struct {
	Log *slog.Logger

	// Swap guards the directories of the stores on disk. Git programs and readers
	// hold it shared; a replacement of a store holds it exclusively.
	Swap    sync.RWMutex
	Mirror  *Store
	Scratch *Store // pull request heads and trees of merges
	Older   *Store // the previous scratch store, read only; may be nil

	Trees  Cache[plumbing.Hash, []Entry]
	files  Cache[treeAt, []schema.File]    // of parts of the estate
	parts  Cache[plumbing.Hash, *snapshot] // by the tree; of estates with less than 10,000 tenants
	Broken atomic.Bool                     // an object of the mirror is unreadable; the next fetch replaces the mirror
}

// Damaged marks the mirror as damaged; the next Fetch replaces it.
func (r *Reader) Damaged(what string, err error) {
	if !r.Broken.Swap(true) {
		r.Log.Warn("mirror is damaged; the next fetch replaces it", "during", what, "error", err.Error())
	}
}

// object reads a whole object from the mirror or the scratch stores.
func (r *Reader) object(h plumbing.Hash) (plumbing.ObjectType, []byte, error) {
	kind, data, _, err := r.Read(h, MaxObject)
	return kind, data, err
}

func (r *Reader) Read(h plumbing.Hash, limit int) (plumbing.ObjectType, []byte, bool, error) {
	r.Swap.RLock()
	defer r.Swap.RUnlock()
	kind, data, more, err := r.Mirror.Read(h, limit)
	if errors.Is(err, errAbsent) {
		kind, data, more, err = r.Scratch.Read(h, limit)
	}
	if errors.Is(err, errAbsent) && r.Older != nil {
		kind, data, more, err = r.Older.Read(h, limit)
	}
	if err == nil && more && limit == MaxObject {
		err = fmt.Errorf("object %s is larger than %d bytes", h, MaxObject)
	}
	return kind, data, more, err
}

// Commit reads a commit. If the commit is missing, the error is
// reconciler.ErrNotFound.
func (r *Reader) Commit(h plumbing.Hash) (Commit, error) {
	kind, data, err := r.object(h)
	if errors.Is(err, errAbsent) {
		return Commit{}, fmt.Errorf("commit %s: %w; it may have to be fetched", h, reconciler.ErrNotFound)
	}
	if err != nil {
		r.Damaged("read commit", err)
		return Commit{}, err
	}
	if kind != plumbing.CommitObject {
		return Commit{}, fmt.Errorf("%s is a %s, not a commit", h, kind)
	}
	return parseCommit(h, data)
}

// Tree reads a tree. The zero hash is an empty tree. A missing tree is an error
// and never reads as an empty tree.
func (r *Reader) Tree(h plumbing.Hash) ([]Entry, error) {
	entries, err := r.Entries(h)
	return slices.Clone(entries), err // the caller may modify it
}

// Entries is Tree without the copy; the caller must not modify the result.
func (r *Reader) Entries(h plumbing.Hash) ([]Entry, error) {
	if h.IsZero() || h == plumbing.NewHash(emptyTree) {
		return nil, nil
	}
	if known, ok := r.Trees.Get(h); ok {
		return known, nil
	}
	kind, data, more, err := r.Read(h, MaxObject)
	if err != nil && more { // an oversized tree is hostile, not damaged
		return nil, fmt.Errorf("%w: %w", reconciler.ErrUnreadable, err)
	}
	if err != nil {
		r.Damaged("read tree", err)
		return nil, incomplete(err)
	}
	if kind != plumbing.TreeObject {
		return nil, fmt.Errorf("%w: %s is a %s, not a tree", reconciler.ErrUnreadable, h, kind)
	}
	entries, err := ParseTree(data)
	if err == nil {
		r.Trees.Add(h, entries, len(entries))
	}
	return entries, err
}

// Root returns the tree of a commit or tree id; the zero hash for "".
func (r *Reader) Root(id string) (plumbing.Hash, error) {
	h, err := ParseOptionalID(id)
	if err != nil || h.IsZero() || id == emptyTree {
		return h, err
	}
	kind, data, err := r.object(h)
	if errors.Is(err, errAbsent) {
		return h, fmt.Errorf("commit %s: %w; it may have to be fetched", h, reconciler.ErrNotFound)
	}
	if err != nil {
		r.Damaged("read commit", err)
		return h, err
	}
	switch kind {
	case plumbing.TreeObject:
		return h, nil
	case plumbing.CommitObject:
		c, err := parseCommit(h, data)
		return c.Tree, err
	}
	return h, fmt.Errorf("%s is a %s, neither commit nor tree", id, kind)
}

// RootEntries reads the root tree of a commit.
func (r *Reader) RootEntries(h plumbing.Hash) ([]Entry, error) {
	c, err := r.Commit(h)
	if err != nil {
		return nil, err
	}
	return r.Tree(c.Tree)
}

// LogError logs an error that is not returned to a caller.
func (r *Reader) LogError(ctx context.Context, what string, err error) {
	if err != nil && !errors.Is(err, io.EOF) {
		r.Log.ErrorContext(ctx, what, "error", err.Error())
	}
}

// Lookup returns the entry at a path below tree. The zero entry means that the
// path does not exist.
func (r *Reader) Lookup(tree plumbing.Hash, path string) (Entry, error) {
	at := Entry{Mode: ModeDir, ID: tree}
	for name := range strings.SplitSeq(path, "/") {
		if !at.IsDir() {
			return Entry{}, nil
		}
		entries, err := r.Entries(at.ID)
		if err != nil {
			return Entry{}, err
		}
		i := slices.IndexFunc(entries, func(e Entry) bool { return PathName(e.Name) == name })
		if i < 0 {
			return Entry{}, nil
		}
		at = entries[i]
	}
	return at, nil
}

// Blob reads a plain file of at most limit bytes. For any other entry it returns
// a warning. An error means that the mirror is damaged.
func (r *Reader) Blob(e Entry, limit int) (data []byte, warning string, err error) {
	if e.Mode != schema.ModePlain {
		return nil, "not a plain file", nil
	}
	kind, data, more, err := r.Read(e.ID, limit)
	switch {
	case err != nil && more:
		return nil, fmt.Sprintf("larger than %d bytes", limit), nil
	case err != nil:
		r.Damaged("read status", err)
		return nil, "", err
	case kind != plumbing.BlobObject:
		return nil, "not a file", nil
	case more:
		return nil, fmt.Sprintf("larger than %d bytes", limit), nil
	}
	return data, "", nil
}

// PutScratch stores a pack of objects that no branch refers to.
func (r *Reader) PutScratch(pack []byte) error {
	r.Swap.RLock()
	defer r.Swap.RUnlock()
	return r.Scratch.AddPack(pack)
}

// HasTree reports whether the tree of a merge is still stored. The scratch store
// is emptied from time to time. A conflict has no tree; its id is "".
func (r *Reader) HasTree(id string) bool {
	if id == "" {
		return true
	}
	h, err := ParseID(id)
	if err != nil {
		return false
	}
	r.Swap.RLock()
	defer r.Swap.RUnlock()
	return r.Mirror.Has(h) || r.Scratch.Has(h)
}

// Current reports whether git programs may refer to an object. The older scratch
// store is excluded, because it is deleted before the objects that git creates.
func (r *Reader) Current(h plumbing.Hash) bool {
	r.Swap.RLock()
	defer r.Swap.RUnlock()
	return r.Older == nil || r.Mirror.Has(h) || r.Scratch.Has(h)
}
