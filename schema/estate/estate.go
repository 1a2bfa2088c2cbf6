package estate

import (
	"context"
	"crypto/sha256"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"berth/schema"
	"berth/schema/load"
	"berth/schema/parallel"
)

// estate is a Result under construction.
type estate struct {
	*Result
	loader *Loader
	held   *Result // whose claims go first; may be nil
	base   *Result // an earlier one, to share with what it has in common; may be nil
}

// standing is a part in the company of the others. It is shared between Results
// and does not change once it is in one.
type standing struct {
	*part
	verdict *verdict
	owners  map[identity]string // path, where several documents have one identity
	more    []schema.Diagnostic // what others make of it
	lost    map[string][]string // files that are not in Desired for the sake of other parts, and which files these are
}

// out says whether a document is not in Desired.
func (s *standing) out(doc *load.Document) bool {
	_, lost := s.lost[doc.File.Path]
	return lost || !doc.Valid() || s.verdict.out[doc.File.Path]
}

// same says that nothing more is known of a part than of another.
func (s *standing) same(o *standing) bool {
	return s.part == o.part && s.verdict == o.verdict && maps.Equal(s.owners, o.owners) && len(s.more)+len(o.more)+len(s.lost)+len(o.lost) == 0
}

// check judges the parts in each other's company and builds Desired.
func (e *estate) check(ctx context.Context) error {
	slices.SortFunc(e.parts, func(a, b *standing) int { return strings.Compare(a.name, b.name) })
	e.free = true
	refused := e.identities()
	e.oneVersion(refused)
	if err := e.judge(ctx, refused); err != nil {
		return err
	}
	e.claimUsers()
	if !e.shareCrossing() {
		e.owners()
		e.attached()
	}
	var news []*standing
	for i, s := range e.parts {
		if old := e.base.part(s.name); old != nil && s.same(old) {
			e.parts[i] = old
		} else if s.tenant != "" {
			news = append(news, s)
		}
	}
	_ = parallel.Each(len(news), func(i int) error { // none returns an error
		news[i].buildTenant(e.loader) // which is remembered
		return nil
	})
	for _, s := range e.parts {
		switch {
		case s.name == "platform":
			e.Desired.Platform = s.buildPlatform()
		case s.tenant != "":
			if t := s.buildTenant(e.loader); t != nil {
				e.Desired.Tenants[s.tenant] = t
			}
		}
		e.tell(s)
	}
	// Parts are bounded file by file; their files are in another order than they.
	slices.SortStableFunc(e.Diagnostics, func(a, b schema.Diagnostic) int { return strings.Compare(a.File, b.File) })
	return nil
}

// judge finds the verdict of every part, the platform's first.
func (e *estate) judge(ctx context.Context, refused map[*part][]refusal) error {
	cat := newCatalog(nil)
	cat.seal(&part{})
	for _, s := range e.parts {
		if s.name == "platform" {
			v, err := s.judged(print([sha256.Size]byte{}, [sha256.Size]byte{}, refused[s.part]), cat, func() (*verdict, error) {
				return checkPlatform(ctx, e.loader, s.part, refused[s.part])
			})
			if err != nil {
				return err
			}
			s.verdict, cat = v, v.catalog
		}
	}
	type meeting struct {
		*standing
		fingerprint [sha256.Size]byte
	}
	var unknown []meeting
	for _, s := range e.parts {
		if s.verdict == nil {
			m := meeting{s, print(cat.print, cat.own[s.tenant], refused[s.part])}
			if s.verdict = s.known(m.fingerprint, cat); s.verdict == nil {
				unknown = append(unknown, m)
			}
		}
	}
	return parallel.Each(len(unknown), func(i int) (err error) {
		s, fingerprint := unknown[i].standing, unknown[i].fingerprint
		s.verdict, err = s.judged(fingerprint, cat, func() (*verdict, error) {
			if old := e.base.part(s.name); old != nil && len(refused[s.part]) == 0 {
				if before := old.known(fingerprint, cat); before != nil {
					if v, err := checkChanged(ctx, e.loader, s.part, cat, old.part, before); v != nil || err != nil {
						return v, err
					}
				}
			}
			return checkTenant(ctx, e.loader, s.part, cat, refused[s.part])
		})
		return err
	})
}

// tell adds what there is to say of a part.
func (e *estate) tell(s *standing) {
	if len(s.more) == 0 {
		e.Diagnostics = append(e.Diagnostics, s.verdict.all...)
	} else {
		e.Diagnostics = append(e.Diagnostics, load.Bounded(slices.Concat(s.raw(), s.more))...)
	}
	for _, waiting := range []map[string][]string{s.verdict.needs, s.lost} {
		for file, needs := range waiting {
			needs = slices.Concat(e.Needs[file], needs)
			slices.Sort(needs)
			e.Needs[file] = slices.Compact(needs)
		}
	}
}

// refuse records a finding about a document that others are the cause of.
func (e *estate) refuse(s *standing, f schema.Diagnostic, needs ...string) {
	s.more = append(s.more, f)
	if f.Severity == schema.SeverityError {
		s.without(f.File, needs...)
	}
}

// without records that a document waits for those of other parts.
func (s *standing) without(file string, needs ...string) {
	if s.lost == nil {
		s.lost = map[string][]string{}
	}
	s.lost[file] = append(s.lost[file], needs...)
}

// part is the part of that name, or nil.
func (r *Result) part(name string) *standing {
	if r == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(r.parts, name, func(s *standing, name string) int { return strings.Compare(s.name, name) })
	if !ok {
		return nil
	}
	return r.parts[i]
}

// reason is the finding of a part that is unreadable.
func (r *Result) reason(part string) schema.Diagnostic {
	for _, d := range r.Diagnostics {
		if d.File == part && (d.Code == codeUnreadable || d.Code == codeTooLarge) {
			return d
		}
	}
	return schema.Diagnostic{}
}

// Key is the key of the file at path if that stands where a document may, else
// zero.
func (r *Result) Key(path string) schema.Key {
	if s := r.part(partOf(path).Name); s != nil {
		if doc := s.at(path); doc != nil {
			return doc.Key
		}
	}
	return schema.Key{}
}

// Documents are the files that stand where a document may, by part and path.
func (r *Result) Documents() iter.Seq2[string, schema.Key] {
	return func(yield func(string, schema.Key) bool) {
		for _, s := range r.parts {
			for _, doc := range s.docs {
				if !doc.Key.IsZero() && !yield(doc.File.Path, doc.Key) {
					return
				}
			}
		}
	}
}

// Len is how many files Documents has.
func (r *Result) Len() (n int) {
	for _, s := range r.parts {
		n += s.verdict.documents
	}
	return n
}

// Count is how many of them stand under a tenant, or under platform/ for "".
func (r *Result) Count(tenant string) int {
	name := "platform"
	if tenant != "" {
		name = "tenants/" + tenant
	}
	if s := r.part(name); s != nil {
		return s.verdict.documents
	}
	return 0
}

// AllNodes says whether every node that is declared is in Desired.
func (r *Result) AllNodes() bool {
	s := r.part("platform")
	return s == nil || !slices.ContainsFunc(s.docs, func(doc *load.Document) bool { return doc.Key.Kind == schema.KindNode && s.out(doc) })
}

// Waits says whether a file is not in Desired because of another one, and not
// because of itself.
func (r *Result) Waits(path string) bool { return hasEntry(r.Needs, path) }

// uses are the files that one needs of which others might have served as well.
func (r *Result) uses(path string) []string {
	if s := r.part(partOf(path).Name); s != nil {
		return s.verdict.uses[path]
	}
	return nil
}

// verdict is what a part's documents came to in the company of a catalog.
type verdict struct {
	findings []schema.Diagnostic
	out      map[string]bool     // files that are not to be in Desired
	needs    map[string][]string // why
	uses     map[string][]string // files that a file needs of which others might have served as well
	catalog  *catalog            // of the platform's verdict
	wants    map[want]bool       // what the documents name that nodes have
	lacking  bool                // they name something that no node has, as far as is known

	clean     bool // every document stands; there may be warnings
	documents int
	all       []schema.Diagnostic // everything found in the part
	outPrint  string              // of the files that are not to be in Desired, invalid ones too
	claims    func() *claimed
	presence  func() string
}

// want is a name of something that nodes have.
type want struct{ what, name string }

func newVerdict() *verdict {
	return &verdict{out: map[string]bool{}, needs: map[string][]string{}, uses: map[string][]string{}, wants: map[want]bool{}}
}

// refuse records a finding that holds its document.
func (v *verdict) refuse(doc *load.Document, path, code, message string, needs ...string) {
	v.findings = append(v.findings, load.Found(doc, path, schema.SeverityError, code, message))
	v.without(doc, needs...)
}

// without records that a document cannot stand, as something it needs cannot;
// the finding about that stands elsewhere.
func (v *verdict) without(doc *load.Document, needs ...string) {
	v.out[doc.File.Path] = true
	v.needs[doc.File.Path] = append(v.needs[doc.File.Path], needs...)
}

// seal sums up the verdict on a part.
func (v *verdict) seal(p *part) {
	v.findings = load.Bounded(v.findings)
	v.clean = p.valid && len(v.out)+len(v.needs) == 0 && !schema.HasErrors(v.findings)
	for _, g := range p.groups {
		v.documents += g.documents
	}
	if !v.clean || len(v.findings) > 0 {
		var out strings.Builder
		for _, doc := range p.docs {
			v.all = append(v.all, doc.Findings...)
			if !doc.Valid() || v.out[doc.File.Path] {
				out.WriteString(doc.File.Path)
				out.WriteByte(0)
			}
		}
		v.all, v.outPrint = load.Bounded(append(v.all, v.findings...)), out.String()
	}
	v.claims = sync.OnceValue(func() *claimed { return claimedBy(p, v) })
	v.presence = sync.OnceValue(func() string { return presence(p, v) })
}

// raw is what was found in a part before it was cut.
func (s *standing) raw() (ds []schema.Diagnostic) {
	for _, doc := range s.docs {
		ds = append(ds, doc.Findings...)
	}
	return append(ds, s.verdict.findings...)
}

// mostVerdicts is how many catalogs are in use at once: main's, that in force,
// those of a pull request or two.
const mostVerdicts = 4

// known is the verdict of a part that meets what has this fingerprint, or nil. What
// the catalog's nodes have is not in it, as that matters only where something is
// named that they have not.
func (p *part) known(fingerprint [sha256.Size]byte, cat *catalog) *verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.checked[fingerprint]; v != nil && cat.hasAll(p.tenant, v) {
		return v
	}
	return p.checked[print(fingerprint, cat.stocked, nil)]
}

// judged computes the verdict once for each catalog the part meets.
func (p *part) judged(fingerprint [sha256.Size]byte, cat *catalog, compute func() (*verdict, error)) (*verdict, error) {
	if v := p.known(fingerprint, cat); v != nil {
		return v, nil
	}
	v, err := compute()
	if err != nil {
		return nil, err
	}
	v.seal(p)
	if v.lacking {
		fingerprint = print(fingerprint, cat.stocked, nil)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.checked) >= mostVerdicts {
		clear(p.checked)
	}
	p.checked[fingerprint] = v
	return v, nil
}

// sortedKeys lists a map's keys.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func hasEntry[V any](m map[string]V, k string) bool { _, ok := m[k]; return ok }
