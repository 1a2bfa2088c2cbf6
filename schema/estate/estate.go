package estate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/load"
	"berth/schema/parallel"
)

// check judges the trees together and builds Desired.
func (e *estate) check(ctx context.Context) error {
	slices.SortFunc(e.trees, func(a, b *standing) int { return strings.Compare(a.name, b.name) })
	e.free = true
	refused := e.identities()
	e.oneVersion(refused)
	e.shadows(refused)
	if err := e.judge(ctx, refused); err != nil {
		return err
	}
	e.claimUsers()
	e.owners()
	e.admissions()
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
	// Findings are bounded per file, and trees order their files differently.
	slices.SortStableFunc(e.Diagnostics, func(a, b schema.Diagnostic) int { return strings.Compare(a.File, b.File) })
	return nil
}

// judge computes the verdict of every tree, the platform's first.
func (e *estate) judge(ctx context.Context, refused map[*tree][]refusal) (err error) {
	cat := newCatalog(nil, nil)
	cat.seal(nil)
	if s := e.tree("platform"); s != nil {
		if s.verdict, err = s.judged(fingerprint{rest: restOf(refused[s.tree])},
			func() (*verdict, error) { return checkPlatform(ctx, e.loader, s.tree, refused[s.tree]) }); err != nil {
			return err
		}
		cat = s.verdict.catalog
	}
	return parallel.Each(len(e.trees), func(i int) (err error) {
		s := e.trees[i]
		if s.verdict != nil {
			return nil
		}
		gone := e.held.goneApps(s)
		judge := func(more ...string) (*verdict, error) {
			of := fingerprint{cat.print, cat.own[s.tenant], restOf(refused[s.tree], slices.Concat(gone, more)...)}
			return s.judged(of, func() (*verdict, error) { return checkTenant(ctx, e.loader, s.tree, cat, refused[s.tree], gone) })
		}
		// The first verdict may have been made with other nodes: it counts if the tree names none.
		if s.verdict, err = judge(); err == nil && len(s.verdict.nodes) > 0 {
			s.verdict, err = judge(cat.says(s.tenant, s.verdict.nodes)...)
		}
		return err
	})
}

// restOf is the fingerprint of the documents of a tree that are refused beforehand, of its apps that
// are gone, and of the nodes that it names.
func restOf(refused []refusal, more ...string) [sha256.Size]byte {
	if len(refused)+len(more) == 0 {
		return [sha256.Size]byte{}
	}
	var of []byte
	for _, r := range refused {
		of = append(append(of, "\x00!"+r.doc.File.Path+" "...), r.finding.Message...)
	}
	for _, m := range more {
		of = append(of, "\x00-"+m...)
	}
	return sha256.Sum256(of)
}

// report adds the findings about a tree, and the dependencies of its documents.
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

// load reads a snapshot. The claims of another result have priority over new ones.
func (l *Loader) load(ctx context.Context, snap schema.Snapshot, held *Result) (*Result, error) {
	listed, err := snap.Parts(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the estate: %w", err)
	}
	listed = slices.DeleteFunc(slices.Clone(listed), func(p schema.Part) bool { return !ours(p) })
	if r := l.recent.get(listed); r != nil && r.standsOver(held) {
		return r.of(snap), nil
	}
	trees, errs := l.trees(ctx, snap, listed)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e := &estate{Result: &Result{
		Desired:  &schema.Desired{Platform: &schema.Platform{}, Tenants: make(map[string]*schema.TenantEstate, len(trees))},
		Needs:    map[string][]string{},
		snapshot: snap,
	}, loader: l, held: held}
	for i, p := range listed {
		if errs[i] != nil {
			e.addUnreadable(p, errs[i])
		} else {
			e.trees = append(e.trees, &standing{tree: trees[i]})
		}
	}
	if err := e.check(ctx); err != nil {
		return nil, err
	}
	if held == nil && len(e.Unreadable) == 0 {
		l.recent.add(listed, e.Result)
	}
	return e.Result, nil
}

// addUnreadable records that nothing is known of a part.
func (e *estate) addUnreadable(p schema.Part, err error) {
	e.Unreadable = append(e.Unreadable, p.Name)
	e.Diagnostics = append(e.Diagnostics, unreadable(p, err))
	if !errors.Is(err, schema.ErrIncomplete) {
		return
	}
	if e.Incomplete == nil {
		e.Incomplete = map[string]error{}
	}
	e.Incomplete[p.Name] = err
}

// Contested reports whether two documents claim a name that only one may have, so that
// LoadOver may blame the other one.
func (r *Result) Contested() bool { return !r.free }
