package composed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/object"
	"berth/schema"
)

// Trailers of composed commits.
const (
	trailerSource     = "Source"     // "platform" or "tenants/NAME", and a commit
	trailerRepository = "Repository" // URL and branch of the tenant's repository
	trailerReturned   = "Returned"   // a tenant whose tree is in the platform's repository again
	trailerAccepted   = "Accepted"   // the platform's commit before a rewrite
)

const platformSource = "platform"

// link is the content of a composed commit's trailers.
type link struct {
	prev, source plumbing.Hash
	tenant       string // owner of the repository of source; "": the platform
	repository   string // repository of the tenant
	returned     []string
	accepted     bool
}

// readLink parses the trailers of a commit, if they have the form of a composed
// commit.
func readLink(c object.Commit) (link, bool) {
	from, id, ok := strings.Cut(c.Trailer(trailerSource), " ")
	if !ok || len(c.Parents) != 2 || c.Parents[1].String() != id {
		return link{}, false
	}
	l := link{prev: c.Parents[0], source: c.Parents[1], returned: c.Trailers(trailerReturned), accepted: c.Trailer(trailerAccepted) != ""}
	if from == platformSource {
		return l, true
	}
	l.tenant, ok = strings.CutPrefix(from, object.TenantsDir+"/")
	l.repository = c.Trailer(trailerRepository)
	return l, ok && schema.ValidName(l.tenant) && l.repository != ""
}

// message returns the message of a composed commit.
func (l link) message(source object.Commit, before plumbing.Hash) string {
	from := platformSource
	if l.tenant != "" {
		from = object.TenantsDir + "/" + l.tenant
	}
	subject, _, _ := strings.Cut(source.Message, "\n")
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\n%s: %s %s\n", from, object.OneLine(subject, object.MaxLine), trailerSource, from, l.source)
	if l.tenant != "" {
		fmt.Fprintf(&b, "%s: %s\n", trailerRepository, object.OneLine(l.repository, 2*object.MaxLine))
	}
	for _, t := range l.returned {
		fmt.Fprintf(&b, "%s: %s\n", trailerReturned, t)
	}
	if l.accepted {
		fmt.Fprintf(&b, "%s: %s\n", trailerAccepted, before)
	}
	return b.String()
}

// composed is the composition at one commit of the estate.
type composed struct {
	tip, tree plumbing.Hash
	platform  plumbing.Hash       // last composed commit of the platform
	tenants   map[string]imported // tenants with their own repository
}

// imported is the last composed commit of a tenant's repository.
type imported struct {
	commit     plumbing.Hash
	repository string
}

// after returns the composition after one more link.
func (st composed) after(tip, tree plumbing.Hash, l link) composed {
	next := composed{tip: tip, tree: tree, platform: st.platform, tenants: st.tenants}
	switch {
	case l.tenant != "":
		next.tenants = maps.Clone(st.tenants)
		if next.tenants == nil {
			next.tenants = map[string]imported{}
		}
		next.tenants[l.tenant] = imported{l.source, l.repository}
	case len(l.returned) > 0:
		next.tenants = maps.Clone(st.tenants)
		for _, t := range l.returned {
			delete(next.tenants, t)
		}
		fallthrough
	default:
		next.platform = l.source
	}
	return next
}

func (k *estateComposer) link(h plumbing.Hash) (link, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	l, ok := k.links[h]
	return l, ok
}

// composed returns the composed commit made from a platform commit, or that
// commit itself.
func (k *estateComposer) composed(source plumbing.Hash) plumbing.Hash {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if h, ok := k.composedOf[source]; ok {
		return h
	}
	return source
}

// learn stores verified composed commits.
func (k *estateComposer) learn(st composed, links map[plumbing.Hash]link) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for h, l := range links {
		k.links[h] = l
		if l.tenant == "" {
			k.composedOf[l.source] = h
		}
	}
	k.last = st
}

// stateOf returns the composition at a composed commit, without its tree. ok is
// false for any other commit.
func (k *estateComposer) stateOf(h plumbing.Hash) (st composed, ok bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.last.tip == h {
		_, ok = k.links[h]
		return k.last, ok
	}
	st = composed{tip: h, tenants: map[string]imported{}}
	gone := map[string]bool{}
	for {
		l, linked := k.links[h]
		if !linked {
			break
		}
		ok = true
		switch _, later := st.tenants[l.tenant]; {
		case l.tenant == "":
			if st.platform.IsZero() {
				st.platform = l.source
			}
			for _, t := range l.returned {
				gone[t] = true
			}
		case !later && !gone[l.tenant]:
			st.tenants[l.tenant] = imported{l.source, l.repository}
		}
		h = l.prev
	}
	if st.platform.IsZero() {
		st.platform = h
	}
	return st, ok
}

// composedStep is a commit that says that it was composed.
type composedStep struct {
	commit object.Commit
	link   link
}

// unknown returns the composed commits up to tip that were not verified, the newest first, and the commit before them.
func (k *estateComposer) unknown(ctx context.Context, r *gitrepo.Fetcher, tip plumbing.Hash) ([]composedStep, plumbing.Hash, error) {
	var steps []composedStep
	for h := tip; ; {
		if err := ctx.Err(); err != nil {
			return nil, h, err
		}
		if _, known := k.link(h); known {
			return steps, h, nil
		}
		c, err := r.Commit(h)
		if err != nil {
			return nil, h, err
		}
		l, ok := readLink(c)
		if !ok {
			return steps, h, nil
		}
		steps = append(steps, composedStep{c, l})
		h = l.prev
	}
}

// trace returns the composition at a tip. It verifies unknown commits by
// composing their sources again. A commit that differs must be one that people
// pushed to main, whose tip is source. Otherwise the error is
// reconciler.ErrRewritten.
func (k *estateComposer) trace(ctx context.Context, r *gitrepo.Fetcher, tip, source plumbing.Hash) (composed, error) {
	steps, h, err := k.unknown(ctx, r, tip)
	if err != nil {
		return composed{}, err
	}
	root := func(h plumbing.Hash) (composed, error) {
		c, err := r.Commit(h)
		return composed{tip: h, tree: c.Tree, platform: h}, err
	}
	st, known := k.stateOf(h)
	start, err := root(h)
	if err != nil {
		return st, err
	}
	if known {
		st.tree = start.tree
	} else {
		st = start
	}
	learned := map[plumbing.Hash]link{}
	for _, s := range slices.Backward(steps) {
		err := k.verify(ctx, r, st, s.commit, s.link)
		if err == nil {
			learned[s.commit.ID] = s.link
			st = st.after(s.commit.ID, s.commit.Tree, s.link)
			continue
		}
		if !errors.Is(err, reconciler.ErrRewritten) {
			return st, err
		}
		// A user's commit may have the trailers of a composed commit.
		pushed, errWalk := r.IsAncestor(ctx, s.commit.ID, source)
		if errWalk != nil || !pushed {
			return st, errors.Join(fmt.Errorf("%s at %s was not composed by Berth: %w", gitrepo.BranchComposed, s.commit.ID, err), errWalk)
		}
		clear(learned)
		if st, err = root(s.commit.ID); err != nil {
			return st, err
		}
	}
	k.learn(st, learned)
	return st, nil
}

// verify composes the sources of one commit again and compares the trees.
func (k *estateComposer) verify(ctx context.Context, r *gitrepo.Fetcher, st composed, c object.Commit, l link) error {
	b := builder{repo: r.Reader}
	source, err := r.Commit(l.source)
	if err != nil {
		return err
	}
	var tree plumbing.Hash
	if l.tenant != "" {
		tree, err = b.tenant(st.tree, l.tenant, source.Tree)
	} else {
		if !l.accepted {
			onwards, err := r.IsAncestor(ctx, st.platform, l.source)
			if err != nil {
				return err
			}
			if !onwards {
				return fmt.Errorf("its source %s does not descend from %s: %w", l.source, st.platform, reconciler.ErrRewritten)
			}
		}
		tree, _, err = b.platform(st, source.Tree, func(t string, _ object.Entry) bool { return slices.Contains(l.returned, t) })
	}
	if err != nil {
		return err
	}
	if tree != c.Tree {
		return fmt.Errorf("the commit has tree %s, but its platform and tenant sources give %s: %w", c.Tree, tree, reconciler.ErrRewritten)
	}
	return nil
}

// Parents returns the parents of a commit that belong to the estate's history. It
// leaves out commits of a tenant's repository: the composed commits hold their
// content.
func (k *estateComposer) Parents(c object.Commit) []plumbing.Hash {
	if l, ok := k.link(c.ID); ok && l.tenant != "" {
		return c.Parents[:1]
	}
	return c.Parents
}
