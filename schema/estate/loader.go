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

// Options are what a Loader needs to know beyond the core's definitions.
type Options struct {
	// Backends maps a runtime_backend to CUE source that defines #Config, the
	// closed definition of an instance's spec.config, and #Parameters, that of
	// a version's manifest.parameters (runtimes.Backend.ConfigCUE). Defaults
	// belong into #Parameters: a version's parameters lie under an instance's
	// config, and what #Config filled in would hide them.
	Backends map[string]string
}

// Loader reads snapshots. It remembers what it read by content, so that a
// snapshot costs what differs from earlier ones. Safe for concurrent use.
type Loader struct {
	backends map[string]string
	reader   *load.Reader
	reading  chan struct{} // one for each file that is being read
	docs     *cache[docKey, *load.Document]
	parts    *cache[partKey, *part]
	projects *cache[projectKey, []project]
	configs  *cache[configKey, []schema.Diagnostic]
	recent   recent
}

type docKey struct {
	path, blob string
	mode       uint32
}

type partKey struct{ name, hash string }

// configKey is a document whose config is judged by a backend's definition.
type configKey struct{ path, blob, backend string }

// Result is what one snapshot says. It is shared between loads of the same
// files and must not be changed.
type Result struct {
	// Desired is what the valid documents declare. What has no finding but
	// needs what is missing or invalid is not in it. Tenants, projects and the
	// platform that declare the same are the same pointers in every Result.
	Desired *schema.Desired
	// Diagnostics is sorted. An error holds its file; see doc.go for the codes.
	Diagnostics []schema.Diagnostic
	// Needs tells, for each file that is not in Desired because of another
	// file, which: missing, invalid, or contradicting it. Sorted.
	Needs map[string][]string
	// Unreadable names the parts of which nothing is known, sorted. They are
	// not in Desired, which says nothing about what they declare.
	Unreadable []string
	// Incomplete says of those that cannot be read for want of objects in the
	// repository which are missing. Each is a schema.ErrIncomplete.
	Incomplete map[string]error

	parts []*standing // by name
	users *accounts
	free  bool // whose claims went first made no difference
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
		docs:     newCache[docKey](100_000, func(d *load.Document) int { return d.Size }),
		parts:    newCache[partKey](5_000, func(p *part) int { return p.size }),
		projects: newCache[projectKey](20_000, weightless[[]project]),
		configs:  newCache[configKey](100_000, weightless[[]schema.Diagnostic]),
	}, nil
}

// Tenant reads the tenant.yaml of a tenant, alone; ok is false if it is not valid. A
// caller needs it to know where a tenant's documents are, before it can read the
// estate.
func (l *Loader) Tenant(ctx context.Context, name string, data []byte) (t *schema.Tenant, ok bool, err error) {
	t, err = l.reader.Tenant(ctx, name, data)
	return t, t != nil, err
}

// Load reads a snapshot. Findings are in the Result; the error is for a
// snapshot of which nothing can be said, and for ctx.
func (l *Loader) Load(ctx context.Context, snap schema.Snapshot) (*Result, error) {
	return l.load(ctx, snap, nil)
}

// LoadOver reads a snapshot in which what inForce has goes before what is new: of
// two documents that cannot stand together, the finding is at the one that is not
// in force.
func (l *Loader) LoadOver(ctx context.Context, snap schema.Snapshot, inForce *Result) (*Result, error) {
	return l.load(ctx, snap, inForce)
}

// Contested says whether documents claim what only one may have, so that LoadOver
// may blame another one.
func (r *Result) Contested() bool { return !r.free }

// load reads a snapshot in which the claims of another go before new ones.
func (l *Loader) load(ctx context.Context, snap schema.Snapshot, held *Result) (*Result, error) {
	listed, err := snap.Parts(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the estate: %w", err)
	}
	listed = slices.DeleteFunc(slices.Clone(listed), func(p schema.Part) bool { return !ours(p) })
	id := identify(listed)
	if r := l.recent.find(id, held); r != nil {
		return r, nil
	}
	parts, errs := l.read(ctx, snap, listed)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e := &estate{Result: &Result{
		Desired: &schema.Desired{Platform: &schema.Platform{}, Tenants: make(map[string]*schema.TenantEstate, len(parts))},
		Needs:   map[string][]string{},
	}, loader: l, held: held, base: l.recent.last()}
	settled := true // what cannot be read may be, next time
	for i, p := range listed {
		if errs[i] != nil {
			settled = settled && isExcess(errs[i])
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
		e.parts = append(e.parts, &standing{part: parts[i]})
	}
	if err := e.check(ctx); err != nil {
		return nil, err
	}
	if settled {
		l.recent.add(id, held, e.Result)
	}
	return e.Result, nil
}

// ours says whether a part is for Berth to judge: what stands in the root is
// not, unless it is one of our directories misspelt.
func ours(p schema.Part) bool {
	top, _, _ := strings.Cut(p.Name, "/")
	folded := strings.ToLower(top)
	return top == "platform" || top == "tenants" || p.Dir && (folded == "platform" || folded == "tenants")
}

// read reads the parts listed, or finds them read. What cannot be read has an
// error instead, an excess if it is too much.
func (l *Loader) read(ctx context.Context, snap schema.Snapshot, listed []schema.Part) ([]*part, []error) {
	parts, errs := make([]*part, len(listed)), make([]error, len(listed))
	var unknown []int // of listed
	for i, p := range listed {
		if got, ok := l.parts.get(partKey{p.Name, p.Hash}); ok {
			parts[i], errs[i] = got, got.excess
		} else {
			unknown = append(unknown, i)
		}
	}
	_ = parallel.Each(len(unknown), func(n int) error { // none returns an error
		i := unknown[n]
		parts[i], errs[i] = l.part(ctx, snap, listed[i])
		return nil
	})
	return parts, errs
}

// part reads a part, of which no more is read than it takes to know that it is
// too much. One on which the reader panics is one that cannot be read.
func (l *Loader) part(ctx context.Context, snap schema.Snapshot, listed schema.Part) (p *part, err error) {
	key, limit := partKey{listed.Name, listed.Hash}, boundOf(listed.Name)
	defer func() {
		if recover() != nil {
			p, err = nil, errPanic
		}
		if isExcess(err) {
			l.parts.add(key, &part{name: listed.Name, excess: err})
		}
	}()
	files, err := snap.Files(ctx, listed)
	if err != nil {
		return nil, err
	}
	if err := limit.check(len(files), 0); err != nil {
		return nil, err
	}
	docs, old := make([]*load.Document, len(files)), l.recent.part(listed.Name)
	var missing []int // of files
	var size atomic.Int64
	same := old.reader()
	for i, f := range files {
		doc, ok := same(f)
		if !ok {
			doc, ok = l.docs.get(docKey{f.Path, f.Blob, f.Mode})
		}
		if docs[i] = doc; !ok {
			missing = append(missing, i)
		} else if doc != nil {
			size.Add(int64(doc.Size))
		}
	}
	err = parallel.Each(len(missing), func(n int) (err error) {
		i := missing[n]
		if err := limit.check(0, int(size.Load())); err != nil {
			return nil // told below
		}
		l.reading <- struct{}{}
		defer func() { <-l.reading }()
		f := files[i]
		docs[i], err = l.reader.Read(ctx, f, func(max int) ([]byte, bool, error) { return snap.Read(ctx, f, max) })
		if docs[i] != nil {
			size.Add(int64(docs[i].Size))
		}
		return err
	})
	over := limit.check(len(files), int(size.Load()))
	if over == nil {
		for _, i := range missing { // what was read need not be again, whatever was not
			if doc := docs[i]; doc != nil {
				l.docs.add(docKey{doc.File.Path, doc.File.Blob, doc.File.Mode}, doc)
			}
		}
	}
	if err = cmp.Or(err, over); err != nil {
		return nil, err
	}
	p = &part{name: listed.Name, files: files}
	p.hold(docs, old)
	l.parts.add(key, p)
	return p, nil
}

// errPanic: reading a part panicked. The part is refused, so that it does not stop the
// daemon after every restart.
var errPanic = errors.New("the reader failed on this file: please report it, and write it differently")

// ErrUnreadable: nothing is known of a part of the snapshot.
var ErrUnreadable = errors.New("a part of the estate cannot be read")
