package load

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"berth/schema"
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
	paths    *paths
	judges   chan *judge // idle ones; nil: not made yet
	docs     *cache[docKey, *document]
	parts    *cache[partKey, *part]
}

type docKey struct {
	path, blob string
	mode       uint32
}

type partKey struct{ name, hash string }

// Result is what one snapshot says.
type Result struct {
	// Desired is what the valid documents declare. What has no finding but
	// needs what is missing or invalid is not in it.
	Desired *schema.Desired
	// Diagnostics is sorted. An error holds its file; see doc.go for the codes.
	Diagnostics []schema.Diagnostic
	// Documents is the key of each file that stands where a document may.
	Documents map[string]schema.Key
	// Needs tells, for each file that is not in Desired because of another
	// file, which: missing, invalid, or contradicting it. Sorted.
	Needs map[string][]string
	// Unreadable names the parts of which nothing is known, sorted. They are
	// not in Desired, which says nothing about what they declare.
	Unreadable []string

	parts  []*part
	claims claims
	uses   map[string][]string // files that stand on one of several that would do
}

// New makes a Loader. The error says which definition does not compile.
func New(opts Options) (*Loader, error) {
	j, err := newJudge(opts.Backends)
	if err != nil {
		return nil, err
	}
	workers := min(runtime.GOMAXPROCS(0), 4)
	l := &Loader{
		backends: opts.Backends,
		paths:    &paths{all: map[string]string{}},
		judges:   make(chan *judge, workers),
		docs:     newCache[docKey, *document](100_000),
		parts:    newCache[partKey, *part](5_000),
	}
	l.judges <- j
	for range workers - 1 {
		l.judges <- nil
	}
	return l, nil
}

// errBroke: the judge panicked. What it was judging is to be refused; a file
// that broke the daemon would do so after every restart.
var errBroke = errors.New("the reader failed on this file: please report it, and write it differently")

// withJudge runs f with a judge of its own. One that panicked is dropped, and
// the error is errBroke.
func (l *Loader) withJudge(ctx context.Context, f func(*judge) error) (err error) {
	var j *judge
	select {
	case j = <-l.judges:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() {
		if recover() != nil {
			j, err = nil, errBroke
		}
		l.judges <- j
	}()
	if j == nil {
		if j, err = newJudge(l.backends); err != nil {
			return err
		}
	}
	return f(j)
}

// Load reads a snapshot. Findings are in the Result; the error is for a
// snapshot of which nothing can be said, and for ctx.
func (l *Loader) Load(ctx context.Context, snap schema.Snapshot) (*Result, error) {
	return l.load(ctx, snap, nil)
}

// load reads a snapshot in which held claims go before new ones.
func (l *Loader) load(ctx context.Context, snap schema.Snapshot, held claims) (*Result, error) {
	listed, err := snap.Parts(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the estate: %w", err)
	}
	e := &estate{Result: &Result{
		Desired:   &schema.Desired{Platform: emptyPlatform(), Tenants: map[string]*schema.TenantEstate{}},
		Documents: map[string]schema.Key{},
		Needs:     map[string][]string{},
		uses:      map[string][]string{},
	}}
	for _, p := range listed {
		if !ours(p) {
			continue
		}
		part, err := l.part(ctx, snap, p)
		if ctxErr := ctx.Err(); ctxErr != nil {
			return nil, ctxErr
		}
		if err != nil {
			e.unreadable(p, err)
			continue
		}
		e.parts = append(e.parts, part)
	}
	if err := e.check(ctx, l, held); err != nil {
		return nil, err
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

// part is one part of a snapshot, read. Its documents never change; what was
// found out about them in the company of others is remembered beside them.
type part struct {
	name, tenant string
	docs         []*document // by path
	byFile       map[string]*document

	identified []*document // those with a uid
	claiming   []*document // those that claim Unix accounts
	naming     []*document // those that name tenants and projects

	mu       sync.Mutex
	checked  map[string]*verdict // by fingerprint of the catalog
	platform *schema.Platform    // built last, from the documents not in out
	estate   *schema.TenantEstate
	out      string
}

// part reads a part, or finds it read.
func (l *Loader) part(ctx context.Context, snap schema.Snapshot, p schema.Part) (*part, error) {
	if got, ok := l.parts.get(partKey{p.Name, p.Hash}); ok {
		return got, nil
	}
	files, err := snap.Files(ctx, p)
	if err != nil {
		return nil, err
	}
	read := &part{name: p.Name, byFile: map[string]*document{}, checked: map[string]*verdict{}}
	if top, tenant, ok := strings.Cut(p.Name, "/"); ok && top == "tenants" {
		read.tenant = tenant
	}
	docs := make([]*document, len(files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(cap(l.judges))
	for i, f := range files {
		k := docKey{f.Path, f.Blob, f.Mode}
		if doc, ok := l.docs.get(k); ok {
			docs[i] = doc
			continue
		}
		group.Go(func() error {
			doc, err := l.document(ctx, snap, f)
			if err != nil {
				return err
			}
			if doc != nil {
				l.docs.add(k, doc)
			}
			docs[i] = doc
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, doc := range docs {
		if doc != nil {
			read.docs = append(read.docs, doc)
			read.byFile[doc.file.Path] = doc
		}
	}
	slices.SortFunc(read.docs, func(a, b *document) int { return strings.Compare(a.file.Path, b.file.Path) })
	for _, doc := range read.docs {
		if !doc.valid() {
			continue
		}
		if doc.header.UID != "" {
			read.identified = append(read.identified, doc)
		}
		if len(doc.claims) > 0 {
			read.claiming = append(read.claiming, doc)
		}
		switch doc.key.Kind {
		case schema.KindNode, schema.KindQueueMap, schema.KindHookRule, schema.KindSharedRuntime, schema.KindAttachment:
			read.naming = append(read.naming, doc)
		}
	}
	l.parts.add(partKey{p.Name, p.Hash}, read)
	return read, nil
}

// document reads one file; nil if it is none of Berth's. A file the reader
// breaks on is refused like any other bad file and stops nobody else.
func (l *Loader) document(ctx context.Context, snap schema.Snapshot, f schema.File) (doc *document, err error) {
	key, doc, ignore := admit(f)
	if ignore {
		return nil, nil
	}
	if doc != nil && doc.findings[0].Code != "path.misplaced" {
		return doc, nil
	}
	data, more, err := snap.Read(ctx, f, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Path, err)
	}
	if doc != nil {
		return misplaced(doc, data, more), nil
	}
	err = l.withJudge(ctx, func(j *judge) error {
		doc = (&reader{judge: j, paths: l.paths}).read(f, key, data, more)
		return nil
	})
	if errors.Is(err, errBroke) {
		return refused(f, key, "file.unreadable", err.Error()), nil
	}
	return doc, err
}

// ErrUnreadable: nothing is known of a part of the snapshot.
var ErrUnreadable = errors.New("a part of the estate cannot be read")
