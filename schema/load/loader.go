package load

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
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

	parts []*standing // by name
	users *accounts
	free  bool // whose claims went first made no difference
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
		projects: newCache[projectKey, []project](20_000),
		configs:  newCache[configKey, []schema.Diagnostic](100_000),
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
		Desired: &schema.Desired{Platform: emptyPlatform(), Tenants: make(map[string]*schema.TenantEstate, len(parts))},
		Needs:   map[string][]string{},
	}, loader: l, held: held, base: l.recent.last()}
	for i, p := range listed {
		if errs[i] != nil {
			e.unreadable(p, errs[i])
			continue
		}
		e.parts = append(e.parts, &standing{part: parts[i]})
	}
	if err := e.check(ctx); err != nil {
		return nil, err
	}
	if len(e.Unreadable) == 0 { // what cannot be read may be, next time
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

// part is one part of a snapshot, read. Its documents never change; what was
// found out about them in the company of others is remembered beside them.
type part struct {
	name, tenant string
	files        []schema.File // by path; some are no documents
	docs         []*document   // by path
	ranked       []*document   // the valid ones, those first that others need
	byFile       map[string]*document

	ids      map[string]string // uid → path; of several with one uid, the first
	twins    []*document       // those with a uid that another has too
	claiming []*document       // those that claim Unix accounts
	naming   []*document       // those of the platform's that name tenants and projects, and what those attach to

	mu        sync.Mutex
	checked   map[[sha256.Size]byte]*verdict // by fingerprint of what the part meets
	platforms map[string]*schema.Platform    // by the files that are not in it
	estates   map[string]*schema.TenantEstate
}

// read reads the parts listed, or finds them read. What cannot be read has an
// error instead.
func (l *Loader) read(ctx context.Context, snap schema.Snapshot, listed []schema.Part) ([]*part, []error) {
	parts, errs := make([]*part, len(listed)), make([]error, len(listed))
	var group errgroup.Group
	group.SetLimit(cap(l.judges))
	docs := make([][]*document, len(listed))
	for i, p := range listed {
		if got, ok := l.parts.get(partKey{p.Name, p.Hash}); ok {
			parts[i] = got
			continue
		}
		files, err := snap.Files(ctx, p)
		if err != nil {
			errs[i] = err
			continue
		}
		parts[i] = &part{name: p.Name, files: files}
		docs[i] = make([]*document, len(files))
		failed := &sync.Once{}
		same := l.recent.part(p.Name).reader()
		for j, f := range files {
			if doc, ok := same(f); ok {
				docs[i][j] = doc
				continue
			}
			k := docKey{f.Path, f.Blob, f.Mode}
			if doc, ok := l.docs.get(k); ok {
				docs[i][j] = doc
				continue
			}
			group.Go(func() error {
				doc, err := l.document(ctx, snap, f)
				if err != nil {
					failed.Do(func() { errs[i] = err })
					return nil
				}
				if doc != nil {
					l.docs.add(k, doc)
				}
				docs[i][j] = doc
				return nil
			})
		}
	}
	_ = group.Wait() // none returns an error
	for i, p := range listed {
		if docs[i] == nil || errs[i] != nil {
			continue
		}
		parts[i].hold(slices.DeleteFunc(docs[i], func(d *document) bool { return d == nil }))
		l.parts.add(partKey{p.Name, p.Hash}, parts[i])
	}
	return parts, errs
}

// reader gives the documents of files that are as they are in the part, nil for
// one that is none. It is asked in order of path. A nil part has none.
func (p *part) reader() func(schema.File) (*document, bool) {
	if p == nil {
		return func(schema.File) (*document, bool) { return nil, false }
	}
	files, docs := p.files, p.docs
	return func(f schema.File) (*document, bool) {
		for len(files) > 0 && files[0].Path < f.Path {
			files = files[1:]
		}
		for len(docs) > 0 && docs[0].file.Path < f.Path {
			docs = docs[1:]
		}
		switch {
		case len(files) == 0 || files[0].Path != f.Path || files[0].Blob != f.Blob || files[0].Mode != f.Mode:
			return nil, false
		case len(docs) == 0 || docs[0].file.Path != f.Path:
			return nil, true
		}
		return docs[0], true
	}
}

// hold gives a part its documents.
func (p *part) hold(docs []*document) {
	slices.SortFunc(docs, func(a, b *document) int { return strings.Compare(a.file.Path, b.file.Path) })
	p.docs, p.byFile, p.checked, p.ids = docs, make(map[string]*document, len(docs)), map[[sha256.Size]byte]*verdict{}, map[string]string{}
	p.platforms, p.estates = map[string]*schema.Platform{}, map[string]*schema.TenantEstate{}
	if top, tenant, ok := strings.Cut(p.name, "/"); ok && top == "tenants" {
		p.tenant = tenant
	}
	bearers := map[string][]*document{} // of a uid that several have
	for _, doc := range docs {
		p.byFile[doc.file.Path] = doc
		if !doc.valid() {
			continue
		}
		p.ranked = append(p.ranked, doc)
		if uid := doc.header.UID; uid != "" {
			first, twice := p.ids[uid]
			switch {
			case !twice:
				p.ids[uid] = doc.file.Path
			case bearers[uid] == nil:
				bearers[uid] = []*document{p.byFile[first], doc}
			default:
				bearers[uid] = append(bearers[uid], doc)
			}
		}
		if len(doc.claims) > 0 {
			p.claiming = append(p.claiming, doc)
		}
		if p.tenant == "" && names(doc) {
			p.naming = append(p.naming, doc)
		}
	}
	for _, uid := range sortedNames(bearers) {
		p.twins = append(p.twins, bearers[uid]...)
	}
	byRank := map[int][]*document{}
	for _, doc := range p.ranked {
		r := rank(doc.key.Kind)
		byRank[r] = append(byRank[r], doc)
	}
	p.ranked = p.ranked[:0]
	for _, r := range slices.Sorted(maps.Keys(byRank)) {
		p.ranked = append(p.ranked, byRank[r]...)
	}
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
