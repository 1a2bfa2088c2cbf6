package gitrepo

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // Git's object format is SHA-1
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/schema"
)

// maxPush bounds how many commits one push of composed ones brings.
const maxPush = 1000

// composer composes an estate. Its methods are called by who may talk to the
// estate's remote, one at a time, those that only read mu's fields excepted.
type composer struct {
	composition Composition
	sources     map[string]*source
	named       map[string]naming // of tenants in force, by tenant; what was read last
	good, bad   chan struct{}     // slots for fetches
	running     context.Context   // ends with Close
	stop        context.CancelFunc

	mu         sync.RWMutex
	links      map[plumbing.Hash]link // of composed commits that are what they say
	composedOf map[plumbing.Hash]plumbing.Hash
	last       composed
	refused    map[string]error
	remarks    []string // besides
}

// advance composes what came to the sources since, pushes that, and says where the
// estate stands. at is where the branches stand at the remote, and seen where they
// were left; accepted is the commit of a rewritten main that an operator accepts.
func (k *composer) advance(ctx context.Context, r *Repo, seen, at tips, accepted plumbing.Hash) (plumbing.Hash, error) {
	if accepted.IsZero() {
		if err := r.forwards(ctx, r.options.Branch, seen.source, at.source); err != nil {
			return seen.main, err
		}
	}
	w := &composing{composer: k, repo: r, remote: at.main}
	var err error
	if w.st, err = k.start(ctx, r, seen, at, accepted); err != nil {
		return seen.main, err
	}
	if _, linked := k.link(w.st.tip); linked && at.main.IsZero() {
		// The branch was gone: the remote may have dropped what only it held.
		pack, err := r.packOf(ctx, []plumbing.Hash{w.st.tip}, []plumbing.Hash{at.source})
		if err == nil {
			err = w.push(ctx, w.st, nil, pack)
		}
		if err != nil {
			return seen.main, err
		}
	}
	if err := w.platform(ctx, at.source, accepted); err != nil {
		return seen.main, err
	}
	inForce := seen.inForce
	if r.checkInForce(ctx, w.st.tip, at.inForce) == nil {
		inForce = at.inForce
	}
	if err := w.tenants(ctx, inForce); err != nil {
		return seen.main, err
	}
	return w.st.tip, nil
}

// start is the composition to go on from. Where the branch is gone it is taken up
// from where the mirror saw it, or else from the commit that in-force was made of:
// what is in force keeps that alive. Without either the estate is the branch
// people merge to.
func (k *composer) start(ctx context.Context, r *Repo, seen, at tips, accepted plumbing.Hash) (composed, error) {
	var candidates []plumbing.Hash
	if !at.main.IsZero() {
		if !seen.main.IsZero() {
			if err := r.forwards(ctx, BranchComposed, seen.main, at.main); err != nil {
				return composed{}, err
			}
		}
		candidates = []plumbing.Hash{at.main}
	} else {
		candidates = []plumbing.Hash{seen.main}
		if c, err := r.commit(at.inForce); err == nil && len(c.parents) > 0 {
			candidates = append(candidates, c.parents[len(c.parents)-1])
		}
	}
	for _, h := range candidates {
		if !r.mirror.has(h) {
			continue
		}
		st, err := k.trace(ctx, r, h, at.source)
		if err != nil {
			return st, err
		}
		if _, linked := k.link(h); linked {
			return st, nil
		}
		if h == at.main {
			if ok, err := r.isAncestor(ctx, h, at.source); err != nil || !ok {
				return st, errors.Join(fmt.Errorf("%s at %s was not composed by Berth: %w", BranchComposed, h, reconciler.ErrRewritten), err)
			}
			return st, nil
		}
	}
	if accepted.IsZero() { // what was seen may stand in for a main that was rewritten
		if err := r.forwards(ctx, r.options.Branch, seen.main, at.source); err != nil {
			return composed{}, err
		}
	}
	c, err := r.commit(at.source)
	return composed{tip: c.id, tree: c.tree, platform: c.id}, err
}

// composing is one run of it.
type composing struct {
	*composer
	repo   *Repo
	remote plumbing.Hash // where the branch is at the remote
	st     composed
}

// platform takes over what came to the platform's branch.
func (w *composing) platform(ctx context.Context, source, accepted plumbing.Hash) error {
	if _, linked := w.link(w.st.tip); !linked && w.remote.IsZero() {
		return nil // nothing is composed
	}
	for w.st.platform != source {
		onwards, err := w.repo.isAncestor(ctx, w.st.platform, source)
		if err != nil {
			return err
		}
		ids := []plumbing.Hash{source}
		switch {
		case onwards:
			if ids, err = w.repo.between(ctx, w.st.platform, source, maxPush); err != nil {
				return err
			}
		case accepted != source:
			return fmt.Errorf("branch %s stands at %s, which does not descend from %s: %w", w.repo.options.Branch, source, w.st.platform, reconciler.ErrRewritten)
		}
		b := builder{repo: w.repo}
		st, learned := w.st, map[plumbing.Hash]link{}
		for _, id := range ids {
			c, err := w.repo.commit(id)
			if err != nil {
				return err
			}
			l := link{prev: st.tip, source: id, accepted: !onwards}
			var tree plumbing.Hash
			if tree, l.returned, err = b.platform(st, c.tree, w.returns(ctx, &b)); err != nil {
				return fmt.Errorf("compose %s: %w", id, err)
			}
			st = b.add(st, tree, l, c, learned)
		}
		if err := w.push(ctx, st, learned, b.set.pack()); err != nil {
			return err
		}
	}
	return nil
}

// add makes the next composed commit.
func (b *builder) add(st composed, tree plumbing.Hash, l link, source commit, learned map[plumbing.Hash]link) composed {
	author := identity(Options{AuthorName: source.author, AuthorEmail: source.email})
	when := time.Unix(max(source.when, 0), 0)
	tip := b.set.add(plumbing.CommitObject, encodeComposed(tree, l, author, when, l.message(source, commit{id: st.platform})))
	learned[tip] = l
	return st.after(tip, tree, l)
}

// encodeComposed is the raw commit: the author's name and the time are the
// source's, so that composing again gives the same.
func encodeComposed(tree plumbing.Hash, l link, author string, when time.Time, message string) []byte {
	raw := encodeCommit(tree, []plumbing.Hash{l.prev, l.source}, identity(Options{}), when, message)
	stamp := fmt.Sprintf("%s %d +0000", identity(Options{}), when.Unix())
	return bytes.Replace(raw, []byte("\nauthor "+stamp), fmt.Appendf(nil, "\nauthor %s %d +0000", author, when.Unix()), 1)
}

// push publishes what was composed and goes on from there.
func (w *composing) push(ctx context.Context, st composed, learned map[plumbing.Hash]link, pack []byte) error {
	if err := w.repo.main.push(ctx, BranchComposed, w.remote, st.tip, pack); err != nil {
		return err
	}
	if err := w.repo.mirror.take(ctx, bytes.NewReader(pack), int64(len(pack)), false, false); err != nil {
		w.repo.damaged("store what was pushed", err)
		return err
	}
	w.remote, w.st = st.tip, st
	w.learn(st, learned)
	return nil
}

// tenants takes over what came to the repositories that tenants in force have.
func (w *composing) tenants(ctx context.Context, inForce plumbing.Hash) error {
	refused := map[string]error{}
	defer func() { w.logged(ctx, w.repo.options.Log, refused) }()
	listed, err := w.inForce(ctx, inForce)
	if err != nil {
		return err
	}
	for t := range w.st.tenants {
		if w.sources[t] == nil {
			refused[t] = errors.New("it is not listed under tenants in the configuration")
		}
	}
	var asked []string
	for _, t := range slices.Sorted(maps.Keys(listed)) {
		s, repository := w.sources[t], listed[t]
		switch {
		case s == nil:
			refused[t] = fmt.Errorf("tenant.yaml names %s: list it under tenants in the configuration, with that URL, if Berth shall fetch from there", redact(repository.URL))
		case s.URL != repository.URL:
			refused[t] = fmt.Errorf("tenant.yaml names %s, and the configuration lists %s: make them equal", redact(repository.URL), redact(s.URL))
		default:
			s.begin(w.composer, repository.Branch)
			asked = append(asked, t)
		}
	}
	soon, late := make(chan struct{}), make(chan struct{})
	for after, c := range map[time.Duration]chan struct{}{w.composition.Wait / 10: soon, w.composition.Wait: late} {
		timer := time.AfterFunc(after, func() { close(c) })
		defer timer.Stop()
	}
	for _, t := range asked {
		s := w.sources[t]
		if !s.await(soon, late) {
			refused[t] = fmt.Errorf("%s has not answered yet", redact(s.URL))
			continue
		}
		err := s.err
		if err == nil && s.repo.options.Branch == listed[t].Branch {
			err = w.tenant(ctx, t, listed[t].String())
		}
		if errors.Is(err, reconciler.ErrConflict) || ctx.Err() != nil {
			return errors.Join(err, ctx.Err()) // somebody else composes too: from where they stand
		}
		if err != nil {
			refused[t] = err
		}
	}
	w.remark(ctx, listed)
	return nil
}

// inForce are the repositories that tenants in force name. Only tenants that
// changed are read.
func (w *composing) inForce(ctx context.Context, commit plumbing.Hash) (map[string]*TenantRepository, error) {
	if commit.IsZero() {
		return nil, nil
	}
	b := builder{repo: w.repo}
	top, err := w.repo.rootEntries(commit)
	if err != nil {
		return nil, err
	}
	tenants, err := b.directory(top, tenantsDir)
	if err != nil {
		return nil, err
	}
	out, read := map[string]*TenantRepository{}, map[string]naming{}
	for _, e := range tenants {
		if !e.dir() || !schema.ValidName(e.name) {
			continue
		}
		n, ok := w.named[e.name]
		if !ok || n.dir != e.id {
			if n, err = w.names(ctx, &b, e.name, e.id); err != nil {
				return nil, err
			}
		}
		read[e.name] = n
		if n.repository != nil {
			out[e.name] = n.repository
		}
	}
	w.named = read
	return out, nil
}

// tenant takes over what was fetched of a tenant's repository.
func (w *composing) tenant(ctx context.Context, name, repository string) error {
	s := w.sources[name]
	if s.tip == s.unpushed && w.repo.options.Now().Before(s.until) {
		return s.why
	}
	b := builder{repo: w.repo, also: s.repo}
	if ok, err := w.own(ctx, &b, name); err != nil || !ok {
		return err // the platform's repository takes it back; in force it is not yet so
	}
	ids, sent := []plumbing.Hash{s.tip}, plumbing.ZeroHash
	if last, ok := w.st.tenants[name]; ok && last.repository == repository {
		if last.commit == s.tip {
			return nil
		}
		onwards, err := s.repo.isAncestor(ctx, last.commit, s.tip)
		if err != nil {
			return err
		}
		if !onwards && s.repo.mirror.has(last.commit) {
			if behind, err := s.repo.isAncestor(ctx, s.tip, last.commit); err != nil || behind {
				return err // another of Berth's has seen more of it
			}
		}
		switch {
		case onwards:
			sent = last.commit
			if ids, err = s.repo.between(ctx, last.commit, s.tip, maxImports); err != nil {
				return err
			}
		case s.Accept != s.tip.String():
			return fmt.Errorf("%s stands at %s, which does not descend from %s; put the branch right, or set tenants.%s.accept to %s to take it over: %w",
				redact(s.URL), s.tip, last.commit, name, s.tip, reconciler.ErrRewritten)
		}
	}
	st, learned := w.st, map[plumbing.Hash]link{}
	for _, id := range ids {
		c, err := s.repo.commit(id)
		if err != nil {
			return err
		}
		l := link{prev: st.tip, source: id, tenant: name, repository: repository}
		tree, err := b.tenant(st.tree, name, c.tree)
		if err != nil {
			return fmt.Errorf("compose %s of tenant %s: %w", id, name, err)
		}
		st = b.add(st, tree, l, c, learned)
	}
	pack, err := s.repo.packOf(ctx, ids[len(ids)-1:], []plumbing.Hash{sent})
	if err != nil {
		return err
	}
	err = w.push(ctx, st, learned, joinPacks(pack, b.set.pack()))
	if err != nil && !errors.Is(err, reconciler.ErrConflict) {
		s.unpushed, s.why, s.until = s.tip, err, w.repo.options.Now().Add(storeAgain)
	}
	return err
}

// own says whether a tenant's directory, as composed, has a tenant.yaml that names
// a repository.
func (w *composing) own(ctx context.Context, b *builder, tenant string) (bool, error) {
	top, err := b.tree(w.st.tree)
	if err != nil {
		return false, err
	}
	tenants, err := b.directory(top, tenantsDir)
	if err != nil {
		return false, err
	}
	dir := named(tenants, tenant)
	if !dir.dir() {
		return false, nil
	}
	n, err := w.names(ctx, b, tenant, dir.id)
	return err == nil && n.repository != nil, err
}

// between are the commits after from to to, first parents only, oldest first, at
// most limit of them.
func (r *Repo) between(ctx context.Context, from, to plumbing.Hash, limit int) ([]plumbing.Hash, error) {
	out, code, err := r.git(ctx, "rev-list", "--first-parent", to.String(), "^"+from.String())
	if err == nil && code != 0 {
		err = fmt.Errorf("git rev-list ended with status %d", code)
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Fields(out)
	lines = lines[max(0, len(lines)-limit):]
	ids := make([]plumbing.Hash, 0, len(lines))
	for _, line := range slices.Backward(lines) {
		h, err := parseID(line)
		if err != nil {
			return nil, err
		}
		ids = append(ids, h)
	}
	return ids, nil
}

// packOf is a pack of what wants hold and haves, where they are known, do not.
func (r *Repo) packOf(ctx context.Context, wants, haves []plumbing.Hash) ([]byte, error) {
	if err := r.gitOnce(); err != nil {
		return nil, err
	}
	var in strings.Builder
	for _, h := range wants {
		in.WriteString(h.String() + "\n")
	}
	for _, h := range haves {
		if r.mirror.has(h) {
			in.WriteString("^" + h.String() + "\n")
		}
	}
	r.swap.RLock()
	defer r.swap.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	out, code, err := execGit(ctx, strings.NewReader(in.String()), []string{"GIT_DIR=" + r.mirror.dir, allocLimit(mergeMemory)},
		"-c", "core.bigFileThreshold=1m", "-c", "pack.threads=1", "pack-objects", "-q", "--revs", "--stdout")
	if err == nil && code != 0 {
		err = fmt.Errorf("git pack-objects ended with status %d", code)
	}
	return []byte(out), err
}

// joinPacks is one pack of the objects of several.
func joinPacks(packs ...[]byte) []byte {
	const head, sum = 12, sha1.Size
	var count uint32
	var body []byte
	for _, p := range packs {
		if len(p) < head+sum {
			continue
		}
		count += binary.BigEndian.Uint32(p[8:head])
		body = append(body, p[head:len(p)-sum]...)
	}
	out := append([]byte("PACK"), 0, 0, 0, 2)
	out = binary.BigEndian.AppendUint32(out, count)
	out = append(out, body...)
	whole := sha1.Sum(out) //nolint:gosec // see above
	return append(out, whole[:]...)
}
