package estate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"berth/schema"
	"berth/schema/load"
	"berth/schema/parallel"
)

// Options configure a Loader.
type Options struct {
	// Backends maps a runtime_backend to the CUE source of its definitions, as
	// load.NewReader takes them.
	Backends map[string]string
}

// Loader reads snapshots. It caches trees by content, so that a snapshot costs what
// differs from earlier ones. Safe for concurrent use.
type Loader struct {
	backends map[string]string
	reader   *load.Reader
	reading  chan struct{} // one for each file that is being read
	cache    cache
}

// New makes a Loader. The error says which definition does not compile.
func New(opts Options) (*Loader, error) {
	reader, err := load.NewReader(opts.Backends)
	if err != nil {
		return nil, err
	}
	return &Loader{
		backends: opts.Backends,
		reader:   reader,
		reading:  make(chan struct{}, 2*min(runtime.GOMAXPROCS(0), 4)),
	}, nil
}

// Tenant reads the tenant.yaml of a tenant, alone; ok is false if it is not valid. A
// caller needs it to know where a tenant's documents are, before it can read the
// estate.
func (l *Loader) Tenant(ctx context.Context, name string, data []byte) (t *schema.Tenant, ok bool, err error) {
	t, err = l.reader.Tenant(ctx, name, data)
	return t, t != nil, err
}

// Load reads a snapshot. Findings are in the Result; the error is for a snapshot that
// cannot be read at all, and for ctx.
func (l *Loader) Load(ctx context.Context, snap schema.Snapshot) (*Result, error) {
	return l.load(ctx, snap, nil)
}

// LoadOver reads a snapshot in which documents of inForce take precedence: of two
// documents that contradict each other, the finding is at the one that is not in
// force.
func (l *Loader) LoadOver(ctx context.Context, snap schema.Snapshot, inForce *Result) (*Result, error) {
	return l.load(ctx, snap, inForce)
}

// Contested reports whether two documents claim a name that only one may have, so that
// LoadOver may blame the other one.
func (r *Result) Contested() bool { return !r.free }

// load reads a snapshot in which the claims of another one go before new ones.
func (l *Loader) load(ctx context.Context, snap schema.Snapshot, held *Result) (*Result, error) {
	listed, err := snap.Parts(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the estate: %w", err)
	}
	listed = slices.DeleteFunc(slices.Clone(listed), func(p schema.Part) bool { return !ours(p) })
	trees, errs := l.trees(ctx, snap, listed)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e := &estate{Result: &Result{
		Desired: &schema.Desired{Platform: &schema.Platform{}, Tenants: make(map[string]*schema.TenantEstate, len(trees))},
		Needs:   map[string][]string{},
	}, loader: l, held: held}
	for i, p := range listed {
		if errs[i] != nil {
			e.Unreadable = append(e.Unreadable, p.Name)
			if errors.Is(errs[i], schema.ErrIncomplete) {
				if e.Incomplete == nil {
					e.Incomplete = map[string]error{}
				}
				e.Incomplete[p.Name] = errs[i]
			}
			e.Diagnostics = append(e.Diagnostics, unreadable(p, errs[i]))
			continue
		}
		e.trees = append(e.trees, &standing{tree: trees[i]})
	}
	return e.Result, e.check(ctx)
}

// ours reports whether a part belongs to the estate: other entries of the root do not,
// unless they are a misspelt directory of the estate.
func ours(p schema.Part) bool {
	top, _, _ := strings.Cut(p.Name, "/")
	folded := strings.ToLower(top)
	return top == "platform" || top == "tenants" || p.Dir && (folded == "platform" || folded == "tenants")
}

// trees reads the trees listed, or finds them in the cache. A tree that cannot be
// read has an error instead, an excess if it holds too much.
func (l *Loader) trees(ctx context.Context, snap schema.Snapshot, listed []schema.Part) ([]*tree, []error) {
	trees, errs := make([]*tree, len(listed)), make([]error, len(listed))
	var unknown []int // of listed
	for i, p := range listed {
		if t := l.cache.get(p.Name, p.Hash); t != nil {
			trees[i], errs[i] = t, t.excess
		} else {
			unknown = append(unknown, i)
		}
	}
	l.cache.count(len(listed)-len(unknown), len(unknown))
	_ = parallel.Each(len(unknown), func(n int) error { // none returns an error
		i := unknown[n]
		trees[i], errs[i] = l.tree(ctx, snap, listed[i])
		return nil
	})
	return trees, errs
}

// tree reads a tree, no further than it takes to know that it holds too much. A
// tree on which the reader panics cannot be read.
func (l *Loader) tree(ctx context.Context, snap schema.Snapshot, listed schema.Part) (t *tree, err error) {
	limit, uses := boundOf(listed.Name), l.cache.of(listed.Name)
	defer func() {
		if recover() != nil {
			t, err = nil, errPanic
		}
		if isExcess(err) {
			l.cache.add(&tree{name: listed.Name, id: listed.Hash, excess: err})
		}
	}()
	files, err := snap.Files(ctx, listed)
	if err != nil {
		return nil, err
	}
	if err := limit.check(len(files), 0); err != nil {
		return nil, err
	}
	docs := make([]*load.Document, len(files))
	var missing []int // of files
	var size atomic.Int64
	uses.mu.Lock()
	for i, f := range files {
		if docs[i] = uses.document(f); docs[i] == nil {
			missing = append(missing, i)
		} else {
			size.Add(int64(docs[i].Size))
		}
	}
	uses.mu.Unlock()
	err = parallel.Each(len(missing), func(n int) (err error) {
		if limit.check(0, int(size.Load())) != nil {
			return nil // found below
		}
		l.reading <- struct{}{}
		defer func() { <-l.reading }()
		i := missing[n]
		f := files[i]
		docs[i], err = l.reader.Read(ctx, f, func(max int) ([]byte, bool, error) { return snap.Read(ctx, f, max) })
		if docs[i] != nil {
			size.Add(int64(docs[i].Size))
		}
		return err
	})
	if over := limit.check(len(files), int(size.Load())); over != nil {
		return nil, cmp.Or(err, over)
	}
	t = newTree(listed.Name, listed.Hash, files, docs, uses)
	if err != nil {
		t.id = "" // only for the documents in it, which need not be read again
	}
	l.cache.add(t)
	return t, err
}

// errPanic: reading a part panicked. The part is refused, so that it does not stop the
// daemon after every restart.
var errPanic = errors.New("the reader failed on this file: please report it, and write it differently")

// ErrUnreadable: nothing is known of a part of the snapshot.
var ErrUnreadable = errors.New("a part of the estate cannot be read")
