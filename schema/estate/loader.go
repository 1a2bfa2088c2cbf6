package estate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"runtime"
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
	// Releases maps a runtime_backend to the versions that it knows. One without an
	// entry allows every version.
	Releases map[string]schema.Releases
	// Checks maps a runtime_backend to the check of a config beyond its definition.
	Checks map[string]schema.ConfigCheck
	// Trees is how many trees of one name are kept: those of main, in force and of pull requests. 0: 8.
	Trees int
}

// Loader reads snapshots. It caches trees by content, so that a snapshot costs what
// differs from earlier ones. Safe for concurrent use.
type Loader struct {
	backends map[string]string
	checks   map[string]schema.ConfigCheck
	reader   *load.Reader
	reading  chan struct{} // one slot for each file being read
	cache    cache
	recent   recent
	claims   claimIndex
}

// New makes a Loader. The error says which definition does not compile.
func New(opts Options) (*Loader, error) {
	reader, err := load.NewReader(opts.Backends, opts.Releases, opts.Checks)
	if err != nil {
		return nil, err
	}
	return &Loader{
		backends: opts.Backends,
		checks:   opts.Checks,
		reader:   reader,
		cache:    cache{most: cmp.Or(opts.Trees, mostTrees)},
		reading:  make(chan struct{}, 2*min(runtime.GOMAXPROCS(0), 4)),
	}, nil
}

// WithEmptyCache returns a Loader with the same definitions that has read nothing yet. Compiling the definitions is
// most of what a Loader costs.
func (l *Loader) WithEmptyCache() *Loader {
	return &Loader{backends: l.backends, checks: l.checks, reader: l.reader, cache: cache{most: l.cache.most},
		reading: make(chan struct{}, cap(l.reading))}
}

// ConfigFacts returns what the runtime of v reads in the complete config of a unit.
func (l *Loader) ConfigFacts(v *schema.AppVersion, config json.RawMessage) schema.ConfigFacts {
	if check := l.checks[v.Spec.RuntimeBackend]; check != nil {
		return check(v, config)
	}
	return schema.ConfigFacts{}
}

// Tenant reads only the tenant.yaml of a tenant; ok is false if it is invalid. A caller
// needs it to locate the tenant's documents before reading the estate.
func (l *Loader) Tenant(ctx context.Context, name string, data []byte) (t *schema.Tenant, ok bool, err error) {
	t, err = l.reader.Tenant(ctx, name, data)
	return t, t != nil, err
}

// trees reads the listed trees, or takes them from the cache. An unreadable tree has an
// error instead, an excess if it is above its bound.
func (l *Loader) trees(ctx context.Context, snap schema.Snapshot, listed []schema.Part) ([]*tree, []error) {
	trees, errs := make([]*tree, len(listed)), make([]error, len(listed))
	var unknown []int // indices of listed
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

// tree reads a tree, and stops once it is above its bound. A tree on which the reader
// panics is unreadable.
func (l *Loader) tree(ctx context.Context, snap schema.Snapshot, listed schema.Part) (t *tree, err error) {
	limit, uses := boundOf(listed.Name), l.cache.of(listed.Name)
	defer func() {
		if recover() != nil {
			t, err = nil, errPanic
		}
		if isExcess(err) {
			l.cache.add(&tree{name: listed.Name, id: listed.Hash, excess: err, content: &content{}})
		}
	}()
	files, err := snap.Files(ctx, listed)
	if err != nil {
		return nil, err
	}
	if err := limit.check(len(files), 0); err != nil {
		return nil, err
	}
	docs, missing := uses.documents(files)
	var size atomic.Int64
	for _, doc := range docs {
		if doc != nil {
			size.Add(int64(doc.Size))
		}
	}
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
		t.id = "" // used only for its documents, which need not be read again
	}
	l.cache.add(t)
	return t, err
}

// errPanic: reading a part panicked. The part is refused, so that it does not stop the
// daemon after every restart.
var errPanic = errors.New("the reader failed on this file: please report it, and write it differently")

// ErrUnreadable: a part of the snapshot has unknown content.
var ErrUnreadable = errors.New("a part of the estate cannot be read")

// CacheStats counts the hits and misses of a Loader's cache.
type CacheStats struct {
	Hits, Misses int // trees from the cache, and trees read
	Bytes        int // text of the trees in the younger generation
}

// CacheStats returns the counts since the Loader was made.
func (l *Loader) CacheStats() CacheStats {
	l.cache.mu.Lock()
	defer l.cache.mu.Unlock()
	return CacheStats{l.cache.hits, l.cache.misses, l.cache.weight}
}
