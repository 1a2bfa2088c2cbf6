package composed

import (
	"bytes"
	"context" //nolint:gosec // Git's object format is SHA-1
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/object"
	"berth/schema"
)

// maxPush bounds the number of composed commits in one push.
const maxPush = 1000

// estateComposer composes an estate. Its caller holds the right to talk to the
// estate's remote, so calls do not overlap. Methods that only read the fields
// under mu may run at any time.
type estateComposer struct {
	composition Composition
	sources     map[string]*source
	named       map[string]naming // last read value by tenant in force
	good, bad   chan struct{}     // fetch slots for responsive and unresponsive tenants
	running     context.Context   // canceled by Close
	stop        context.CancelFunc

	mu         sync.RWMutex
	links      map[plumbing.Hash]link // of verified composed commits
	composedOf map[plumbing.Hash]plumbing.Hash
	last       composed
	refused    map[string]error
	remarks    []string // notices besides refused
}

// Advance composes the new commits of the sources, pushes the result and returns
// the new tip of the estate. at holds the branches at the remote, seen their last
// known state. accepted is the commit of a rewritten main that an operator
// accepts.
func (k *estateComposer) Advance(
	ctx context.Context, r *gitrepo.Fetcher, seen, at gitrepo.Tips, accepted plumbing.Hash,
) (plumbing.Hash, error) {
	if accepted.IsZero() {
		if err := r.Forwards(ctx, r.Options.Branch, seen.Source, at.Source); err != nil {
			return seen.Main, err
		}
	}
	w := &composing{estateComposer: k, repo: r, remote: at.Main}
	var err error
	if w.st, err = k.start(ctx, r, seen, at, accepted); err != nil {
		return seen.Main, err
	}
	if _, linked := k.link(w.st.tip); linked && at.Main.IsZero() {
		// The branch was deleted: the remote may have dropped objects that only this
		// branch referred to.
		pack, err := r.PackOf(ctx, []plumbing.Hash{w.st.tip}, []plumbing.Hash{at.Source})
		if err == nil {
			err = w.push(ctx, w.st, nil, pack)
		}
		if err != nil {
			return seen.Main, err
		}
	}
	if err := w.platform(ctx, at.Source, accepted); err != nil {
		return seen.Main, err
	}
	inForce := seen.InForce
	if r.CheckInForce(ctx, w.st.tip, at.InForce) == nil {
		inForce = at.InForce
	}
	if err := w.tenants(ctx, inForce); err != nil {
		return seen.Main, err
	}
	return w.st.tip, nil
}

// start returns the composition to continue from. If the branch is missing, it
// continues from the last tip in the mirror, or else from the commit in the
// history of in-force. Without either, the estate is the branch that people merge
// to.
func (k *estateComposer) start(ctx context.Context, r *gitrepo.Fetcher, seen, at gitrepo.Tips, accepted plumbing.Hash) (composed, error) {
	if !at.Main.IsZero() && !seen.Main.IsZero() {
		if err := r.Forwards(ctx, gitrepo.BranchComposed, seen.Main, at.Main); err != nil {
			return composed{}, err
		}
	}
	for _, h := range candidates(r, seen, at) {
		st, err := k.trace(ctx, r, h, at.Source)
		if err != nil {
			return st, err
		}
		if _, linked := k.link(h); linked {
			return st, nil
		}
		if h == at.Main {
			return st, checkPushed(ctx, r, h, at.Source)
		}
	}
	if accepted.IsZero() { // the last known tip may replace a rewritten main
		if err := r.Forwards(ctx, r.Options.Branch, seen.Main, at.Source); err != nil {
			return composed{}, err
		}
	}
	c, err := r.Commit(at.Source)
	return composed{tip: c.ID, tree: c.Tree, platform: c.ID}, err
}

// checkPushed returns reconciler.ErrRewritten if a commit that Berth did not compose is not in the history of source.
func checkPushed(ctx context.Context, r *gitrepo.Fetcher, h, source plumbing.Hash) error {
	pushed, err := r.IsAncestor(ctx, h, source)
	if err == nil && !pushed {
		err = fmt.Errorf("%s at %s was not composed by Berth: %w", gitrepo.BranchComposed, h, reconciler.ErrRewritten)
	}
	return err
}

// candidates returns the commits in the mirror from which a composition may continue, the best first.
func candidates(r *gitrepo.Fetcher, seen, at gitrepo.Tips) []plumbing.Hash {
	all := []plumbing.Hash{at.Main}
	if at.Main.IsZero() {
		all[0] = seen.Main
		if c, err := r.Commit(at.InForce); err == nil && len(c.Parents) > 0 {
			all = append(all, c.Parents[len(c.Parents)-1])
		}
	}
	return slices.DeleteFunc(all, func(h plumbing.Hash) bool { return !r.Mirror.Has(h) })
}

// composing is one run of Advance.
type composing struct {
	*estateComposer
	repo   *gitrepo.Fetcher
	remote plumbing.Hash // tip of the branch at the remote
	st     composed
}

// platform composes the new commits of the platform's branch.
func (w *composing) platform(ctx context.Context, source, accepted plumbing.Hash) error {
	if _, linked := w.link(w.st.tip); !linked && w.remote.IsZero() {
		return nil // no tenant has its own repository yet
	}
	for w.st.platform != source {
		ids, onwards, err := w.newSources(ctx, source, accepted)
		if err != nil {
			return err
		}
		b := builder{repo: w.repo.Reader}
		st, learned := w.st, map[plumbing.Hash]link{}
		for _, id := range ids {
			c, err := w.repo.Commit(id)
			if err != nil {
				return err
			}
			l := link{prev: st.tip, source: id, accepted: !onwards}
			var tree plumbing.Hash
			if tree, l.returned, err = b.platform(st, c.Tree, w.returns(ctx, &b)); err != nil {
				return fmt.Errorf("compose %s: %w", id, err)
			}
			st = b.add(st, tree, l, c, learned)
		}
		if err := w.push(ctx, st, learned, b.set.Pack()); err != nil {
			return err
		}
	}
	return nil
}

// newSources returns the next commits of the platform's branch; source alone, and false, if an operator has accepted that
// it does not descend from the composed ones.
func (w *composing) newSources(ctx context.Context, source, accepted plumbing.Hash) (ids []plumbing.Hash, onwards bool, err error) {
	onwards, err = w.repo.IsAncestor(ctx, w.st.platform, source)
	switch {
	case err != nil:
		return nil, false, err
	case onwards:
		ids, err = w.repo.Between(ctx, w.st.platform, source, maxPush)
		return ids, true, err
	case accepted != source:
		return nil, false, fmt.Errorf("branch %s is at %s, which does not descend from %s: %w", w.repo.Options.Branch, source, w.st.platform,
			reconciler.ErrRewritten)
	}
	return []plumbing.Hash{source}, false, nil
}

// add creates the next composed commit.
func (b *builder) add(st composed, tree plumbing.Hash, l link, source object.Commit, learned map[plumbing.Hash]link) composed {
	// The author and time of the source make the commit the same if it is composed
	// again.
	raw := object.EncodeCommit(tree, []plumbing.Hash{l.prev, l.source}, object.Identity(source.Author, source.Email),
		time.Unix(max(source.When, 0), 0), l.message(source, st.platform))
	tip := b.set.Add(plumbing.CommitObject, raw)
	learned[tip] = l
	return st.after(tip, tree, l)
}

// push publishes the composed commits and records the new state.
func (w *composing) push(ctx context.Context, st composed, learned map[plumbing.Hash]link, pack []byte) error {
	if err := w.repo.PushMain(ctx, gitrepo.BranchComposed, w.remote, st.tip, pack); err != nil {
		return err
	}
	if err := w.repo.Mirror.TakePack(ctx, bytes.NewReader(pack), int64(len(pack)), false, false); err != nil {
		w.repo.Damaged("store what was pushed", err)
		return err
	}
	w.remote, w.st = st.tip, st
	w.learn(st, learned)
	return nil
}

// tenants composes the new commits of the repositories that tenants in force
// name.
func (w *composing) tenants(ctx context.Context, inForce plumbing.Hash) error {
	refused := map[string]error{}
	defer func() { w.logged(ctx, w.repo.Options.Log, refused) }()
	listed, err := w.inForce(ctx, inForce)
	if err != nil {
		return err
	}
	for t := range w.st.tenants {
		if w.sources[t] == nil {
			refused[t] = errors.New("it is not listed under tenants in the configuration")
		}
	}
	asked := w.begin(listed, refused)
	soon, late := make(chan struct{}), make(chan struct{})
	for after, c := range map[time.Duration]chan struct{}{w.composition.Wait / 10: soon, w.composition.Wait: late} {
		timer := time.AfterFunc(after, func() { close(c) })
		defer timer.Stop()
	}
	for _, t := range asked {
		s := w.sources[t]
		if !s.await(soon, late) {
			refused[t] = fmt.Errorf("%s has not answered yet", gitrepo.Redact(s.URL))
			continue
		}
		err := s.err
		if err == nil && s.repo.Options.Branch == listed[t].Branch {
			err = w.tenant(ctx, t, listed[t].String())
		}
		if errors.Is(err, reconciler.ErrConflict) || ctx.Err() != nil {
			return errors.Join(err, ctx.Err()) // another process composes too: retry from its tip
		}
		if err != nil {
			refused[t] = err
		}
	}
	w.remark(ctx, listed)
	return nil
}

// begin starts the fetches from the repositories that are configured too, and returns their tenants, sorted.
func (w *composing) begin(listed map[string]*TenantRepository, refused map[string]error) (asked []string) {
	for _, t := range slices.Sorted(maps.Keys(listed)) {
		s, repository := w.sources[t], listed[t]
		switch {
		case s == nil:
			refused[t] = fmt.Errorf("tenant.yaml names %s: list it under tenants in the configuration, with that URL, if Berth shall "+
				"fetch from there", gitrepo.Redact(repository.URL))
		case s.URL != repository.URL:
			refused[t] = fmt.Errorf("tenant.yaml names %s, and the configuration lists %s: make them equal", gitrepo.Redact(repository.URL),
				gitrepo.Redact(s.URL))
		default:
			s.begin(w.estateComposer, repository.Branch)
			asked = append(asked, t)
		}
	}
	return asked
}

// inForce returns the repositories named by tenants in force. It reads only
// changed tenants.
func (w *composing) inForce(ctx context.Context, commit plumbing.Hash) (map[string]*TenantRepository, error) {
	if commit.IsZero() {
		return nil, nil
	}
	b := builder{repo: w.repo.Reader}
	top, err := w.repo.RootEntries(commit)
	if err != nil {
		return nil, err
	}
	tenants, err := b.tenantsDirectory(top)
	if err != nil {
		return nil, err
	}
	out, read := map[string]*TenantRepository{}, map[string]naming{}
	for _, e := range tenants {
		if !e.IsDir() || !schema.ValidName(e.Name) {
			continue
		}
		n, ok := w.named[e.Name]
		if !ok || n.dir != e.ID {
			if n, err = w.names(ctx, &b, e.Name, e.ID); err != nil {
				return nil, err
			}
		}
		read[e.Name] = n
		if n.repository != nil {
			out[e.Name] = n.repository
		}
	}
	w.named = read
	return out, nil
}

// tenant composes the commits fetched from a tenant's repository.
func (w *composing) tenant(ctx context.Context, name, repository string) error {
	s := w.sources[name]
	if s.tip == s.unpushed && w.repo.Options.Now().Before(s.until) {
		return s.why
	}
	b := builder{repo: w.repo.Reader, also: s.repo.Reader}
	if ok, err := w.own(ctx, &b, name); err != nil || !ok {
		return err // the platform has taken the tenant back, and this is not in force yet
	}
	ids, sent, err := w.newCommits(ctx, s, repository)
	if err != nil || len(ids) == 0 {
		return err
	}
	st, learned := w.st, map[plumbing.Hash]link{}
	for _, id := range ids {
		c, err := s.repo.Commit(id)
		if err != nil {
			return err
		}
		l := link{prev: st.tip, source: id, tenant: name, repository: repository}
		tree, err := b.tenant(st.tree, name, c.Tree)
		if err != nil {
			return fmt.Errorf("compose %s of tenant %s: %w", id, name, err)
		}
		st = b.add(st, tree, l, c, learned)
	}
	pack, err := s.repo.PackOf(ctx, ids[len(ids)-1:], []plumbing.Hash{sent})
	if err != nil {
		return err
	}
	err = w.push(ctx, st, learned, object.JoinPacks(pack, b.set.Pack()))
	if err != nil && !errors.Is(err, reconciler.ErrConflict) {
		s.unpushed, s.why, s.until = s.tip, err, w.repo.Options.Now().Add(gitrepo.StoreAgain)
	}
	return err
}

// newCommits returns the commits of a tenant's repository to compose, oldest
// first, and the composed commit that they follow, if any.
func (w *composing) newCommits(ctx context.Context, s *source, repository string) (ids []plumbing.Hash, last plumbing.Hash, err error) {
	composed, ok := w.st.tenants[s.Name]
	if !ok || composed.repository != repository {
		return []plumbing.Hash{s.tip}, last, nil
	}
	last = composed.commit
	if last == s.tip {
		return nil, last, nil
	}
	onwards, err := s.repo.IsAncestor(ctx, last, s.tip)
	if err != nil {
		return nil, last, err
	}
	if onwards {
		ids, err = s.repo.Between(ctx, last, s.tip, maxImports)
		return ids, last, err
	}
	if s.repo.Mirror.Has(last) {
		if behind, err := s.repo.IsAncestor(ctx, s.tip, last); err != nil || behind {
			return nil, last, err // another Berth process has fetched a newer commit
		}
	}
	if s.Accept != s.tip.String() {
		return nil, last, fmt.Errorf("%s is at %s, which does not descend from %s; restore the branch, or set tenants.%s.accept to %s to "+
			"accept it: %w",
			gitrepo.Redact(s.URL), s.tip, last, s.Name, s.tip, reconciler.ErrRewritten)
	}
	return []plumbing.Hash{s.tip}, plumbing.ZeroHash, nil
}

// own reports whether the tenant.yaml in the composed tree names a repository.
func (w *composing) own(ctx context.Context, b *builder, tenant string) (bool, error) {
	top, err := b.tree(w.st.tree)
	if err != nil {
		return false, err
	}
	tenants, err := b.tenantsDirectory(top)
	if err != nil {
		return false, err
	}
	dir := findEntry(tenants, tenant)
	if !dir.IsDir() {
		return false, nil
	}
	n, err := w.names(ctx, b, tenant, dir.ID)
	return err == nil && n.repository != nil, err
}
