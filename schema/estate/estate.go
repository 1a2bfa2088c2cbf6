package estate

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/load"
	"berth/schema/parallel"
)

// estate is a Result under construction.
type estate struct {
	*Result
	loader *Loader
	held   *Result // whose claims go first; may be nil
}

// standing is a tree beside the others. It does not change once it is in a Result.
type standing struct {
	*tree
	verdict *verdict
	owners  map[identity]string // path, where several documents have one identity
	more    []schema.Diagnostic // findings that other trees cause
	lost    map[string][]string // files that are not in Desired because of other trees, and the files that cause it
}

// out reports whether a document is not in Desired.
func (s *standing) out(doc *load.Document) bool {
	_, lost := s.lost[doc.File.Path]
	return lost || !doc.Valid() || s.verdict.out[doc.File.Path]
}

// check judges the trees together and builds Desired.
func (e *estate) check(ctx context.Context) error {
	slices.SortFunc(e.trees, func(a, b *standing) int { return strings.Compare(a.name, b.name) })
	e.free = true
	refused := e.identities()
	e.oneVersion(refused)
	if err := e.judge(ctx, refused); err != nil {
		return err
	}
	e.claimUsers()
	e.owners()
	e.attached()
	built := make([]*schema.TenantEstate, len(e.trees))
	_ = parallel.Each(len(e.trees), func(i int) error { // none returns an error
		if s := e.trees[i]; s.tenant != "" {
			built[i] = s.buildTenant()
		}
		return nil
	})
	for i, s := range e.trees {
		switch {
		case s.name == "platform":
			e.Desired.Platform = s.buildPlatform()
		case built[i] != nil:
			e.Desired.Tenants[s.tenant] = built[i]
		}
		e.report(s)
	}
	// Trees are bounded file by file; their files are in another order than they.
	slices.SortStableFunc(e.Diagnostics, func(a, b schema.Diagnostic) int { return strings.Compare(a.File, b.File) })
	return nil
}

// judge finds the verdict of every tree, the platform's first.
func (e *estate) judge(ctx context.Context, refused map[*tree][]refusal) (err error) {
	cat := newCatalog(nil)
	cat.seal(&tree{})
	if s := e.tree("platform"); s != nil {
		fingerprint := print([sha256.Size]byte{}, [sha256.Size]byte{}, refused[s.tree])
		if s.verdict, err = s.judged(fingerprint, func() (*verdict, error) { return checkPlatform(ctx, e.loader, s.tree, refused[s.tree]) }); err != nil {
			return err
		}
		cat = s.verdict.catalog
	}
	return parallel.Each(len(e.trees), func(i int) (err error) {
		s := e.trees[i]
		if s.verdict == nil {
			fingerprint := print(cat.print, cat.own[s.tenant], refused[s.tree])
			s.verdict, err = s.judged(fingerprint, func() (*verdict, error) { return checkTenant(ctx, e.loader, s.tree, cat, refused[s.tree]) })
		}
		return err
	})
}

// print is a fingerprint of the input of judging a tree: the part of the catalog that
// the tree can refer to, and its documents that are refused beforehand.
func print(catalog, own [sha256.Size]byte, refused []refusal) [sha256.Size]byte {
	of := slices.Concat(catalog[:], own[:])
	for _, r := range refused {
		of = append(append(of, "\x00!"+r.doc.File.Path+" "...), r.finding.Message...)
	}
	return sha256.Sum256(of)
}

// report adds the findings about a tree, and what its documents need.
func (e *estate) report(s *standing) {
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

// raw lists the findings in a tree before they are cut.
func (s *standing) raw() (ds []schema.Diagnostic) {
	for _, doc := range s.docs {
		ds = append(ds, doc.Findings...)
	}
	return append(ds, s.verdict.findings...)
}

// refuse records a finding about a document that others are the cause of.
func (e *estate) refuse(s *standing, f schema.Diagnostic, needs ...string) {
	s.more = append(s.more, f)
	if f.Severity == schema.SeverityError {
		s.without(f.File, needs...)
	}
}

// without records that a document waits for documents of other trees.
func (s *standing) without(file string, needs ...string) {
	if s.lost == nil {
		s.lost = map[string][]string{}
	}
	s.lost[file] = append(s.lost[file], needs...)
}
