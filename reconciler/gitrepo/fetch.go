package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
)

// accept is Repo.Accept. The caller holds the turn.
func (f *Fetcher) accept(ctx context.Context, main plumbing.Hash) (Tips, error) {
	seen := f.seen()
	ctx, cancel := context.WithTimeout(ctx, 10*f.Options.Timeout)
	defer cancel()
	at, err := f.download(ctx, seen)
	if err != nil {
		return seen, err
	}
	if at.Source != main {
		return seen, fmt.Errorf("main is at %s, not at the accepted %s: %w", at.Source, main, reconciler.ErrConflict)
	}
	if f.Options.Composer != nil {
		if at.Main, err = f.Options.Composer.Advance(ctx, f, seen, at, main); err != nil {
			return seen, err
		}
	}
	for name, h := range f.places(&at) {
		if err := f.Mirror.SetRef(name, *h); err != nil {
			return seen, err
		}
	}
	f.moves.at(at.InForce)
	return at, f.Mirror.SetRef(acceptedRef, at.InForce)
}

// update fetches into the mirror and updates its branches.
func (f *Fetcher) update(ctx context.Context, seen Tips) (Tips, error) {
	limit := f.Options.Timeout
	if !f.Mirror.Has(seen.Main) {
		limit *= 10
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	at, err := f.download(ctx, seen)
	if err != nil {
		return seen, err
	}
	seen = f.withoutLostCommits(seen)
	now := seen
	// Each branch is checked separately: a refused branch does not block the
	// others.
	var errs []error
	take := func(branch string, to *plumbing.Hash, tip plumbing.Hash, check error) {
		if check == nil && *to != tip {
			check = f.Mirror.SetRef(plumbing.NewBranchReferenceName(branch), tip)
		}
		if check != nil {
			errs = append(errs, check)
			return
		}
		*to = tip
	}
	main, errMain := at.Main, error(nil)
	switch {
	case f.Options.Composer != nil:
		main, errMain = f.Options.Composer.Advance(ctx, f, seen, at, plumbing.ZeroHash)
	case f.Options.Tenant:
	default:
		errMain = f.Forwards(ctx, f.Options.Branch, seen.Main, at.Main)
	}
	if errMain != nil {
		main = seen.Main
	}
	errInForce := f.Forwards(ctx, reconciler.BranchInForce, seen.InForce, at.InForce)
	if errInForce == nil {
		errInForce = f.CheckInForce(ctx, main, at.InForce)
	}
	if config, ok := f.mainFromInForce(ctx, seen, at, errInForce); ok {
		errs = append(errs, errInForce)
		main, errMain, errInForce = config, nil, nil
	} else if f.Options.Composer != nil && errMain == nil {
		take(f.Options.Branch, &now.Source, at.Source, nil)
	}
	take(f.estateBranch(), &now.Main, main, errMain)
	take(reconciler.BranchInForce, &now.InForce, at.InForce, errInForce)
	if errInForce == nil && now.InForce == at.InForce {
		f.moves.found(at.InForce, f.Options.Now().Add(2*f.Options.Timeout))
	}
	take(reconciler.BranchStatus, &now.status, at.status, f.Forwards(ctx, reconciler.BranchStatus, seen.status, at.status))
	return now, errors.Join(errs...)
}

// download fetches the objects of the remote's branches and returns their tips.
func (f *Fetcher) download(ctx context.Context, seen Tips) (at Tips, err error) {
	d, err := f.main.advertise(ctx)
	if err != nil {
		return at, err
	}
	defer d.close() //nolint:errcheck // read to its end
	at.Source = d.tip(f.Options.Branch)
	if at.Source.IsZero() {
		return at, &reconciler.OperatorError{Err: fmt.Errorf("%s has no branch %q: %w; %s", f.main.url, f.Options.Branch,
			reconciler.ErrNotFound, f.firstCommit(d))}
	}
	at.Main = d.tip(f.estateBranch())
	if f.Options.Tenant {
		return at, f.bringTenant(ctx, d, seen.Main, at.Main)
	}
	at.InForce = d.tip(reconciler.BranchInForce)
	if err := f.bring(ctx, d, []plumbing.Hash{at.Source, at.Main, at.InForce}, []plumbing.Hash{seen.Source, seen.Main, seen.InForce},
		0); err != nil {
		return at, err
	}
	statusAt := d
	if f.status != f.main {
		if statusAt, err = f.status.advertise(ctx); err != nil {
			return at, err
		}
		defer statusAt.close() //nolint:errcheck // read to its end
	}
	at.status = statusAt.tip(reconciler.BranchStatus)
	// The history of status is not needed and grows every second, so a new mirror
	// fetches only the newest commit.
	depth := 0
	if !f.Mirror.Has(seen.status) {
		depth = 1
	}
	return at, f.bring(ctx, statusAt, []plumbing.Hash{at.status}, []plumbing.Hash{seen.status}, depth)
}

// bring fetches the commits of wants that the mirror lacks.
func (f *Fetcher) bring(ctx context.Context, d *download, wants, haves []plumbing.Hash, depth int) error {
	missing := slices.DeleteFunc(slices.Clone(wants), func(h plumbing.Hash) bool { return h.IsZero() || f.Mirror.Has(h) })
	present := slices.DeleteFunc(slices.Clone(haves), func(h plumbing.Hash) bool { return !f.Mirror.Has(h) })
	if len(missing) == 0 {
		return nil
	}
	if _, err := d.fetch(ctx, order{into: f.Mirror, wants: missing, haves: present, depth: depth}); err != nil {
		if errors.Is(err, errStore) {
			f.Damaged("fetch", err)
		}
		return err
	}
	for _, h := range missing {
		// The reader of the tree reports faults inside it.
		if _, err := f.RootEntries(h); err != nil && !errors.Is(err, reconciler.ErrUnreadable) {
			return fmt.Errorf("%s sent a pack without %s: %w", d.remote.url, h, err)
		}
	}
	return nil
}

// bringTenant fetches a tenant's branch into the mirror, unless it is stored or
// was refused recently.
func (f *Fetcher) bringTenant(ctx context.Context, d *download, have, want plumbing.Hash) error {
	if f.Mirror.Has(want) {
		return nil
	}
	o := order{into: f.Mirror, wants: []plumbing.Hash{want}, limit: f.Options.MaxPull, strict: true}
	if f.Mirror.Has(have) {
		o.haves = []plumbing.Hash{have}
	}
	branch := "refs/heads/" + f.Options.Branch
	_, err := f.refusals.fetch(ctx, d, o, branch, "a tenant's repository", f.Options.Now)
	if err == nil {
		if _, err = f.RootEntries(want); err != nil {
			f.refusals.add(branch, want, f.Options.Now(), StoreAgain, err)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: branch %s: %w", f.main.url, f.Options.Branch, err)
	}
	return nil
}

// Forwards returns an error unless a branch may move from old to tip.
func (f *Fetcher) Forwards(ctx context.Context, branch string, old, tip plumbing.Hash) error {
	if old.IsZero() || old == tip {
		return nil
	}
	if tip.IsZero() {
		return fmt.Errorf("branch %s was deleted at the remote; its last commit was %s; push that commit to it again: %w", branch, old,
			reconciler.ErrRewritten)
	}
	ok, err := f.IsAncestor(ctx, old, tip)
	if err == nil && !ok {
		err = fmt.Errorf("branch %s is at %s, which does not descend from %s: %w%s", branch, tip, old, reconciler.ErrRewritten,
			f.rewrittenBranchHint(branch, old, tip))
	}
	return err
}

// rewrittenBranchHint returns the next step for a rewritten branch that people
// merge to, and for one that Berth alone writes.
func (f *Fetcher) rewrittenBranchHint(branch string, old, tip plumbing.Hash) string {
	switch branch {
	case f.Options.Branch:
		return fmt.Sprintf("; put it back, or start once with repository.accept: %s in berth.yaml to take it over", tip)
	case reconciler.BranchInForce:
		return fmt.Sprintf("; reset %s to %s", branch, old)
	}
	return ""
}

// mainFromInForce returns a replacement for a rewritten main after the mirror was
// lost: the commit that in-force was made from. It keeps in-force valid, so a new
// machine freezes like a restarted one. The rewritten main stays refused.
//
// It returns false if the mirror knows a tip of in-force: a user with
// push permission for in-force cannot move main with it.
func (f *Fetcher) mainFromInForce(ctx context.Context, seen, at Tips, refused error) (plumbing.Hash, bool) {
	var unknown *unknownSourceError
	if !errors.As(refused, &unknown) || !seen.InForce.IsZero() || !f.Mirror.Has(unknown.config) {
		return plumbing.ZeroHash, false
	}
	if !seen.Main.IsZero() && seen.Main != unknown.config {
		return plumbing.ZeroHash, false
	}
	if err := f.VerifyInForce(ctx, unknown.config.String(), at.InForce.String()); err != nil {
		f.LogError(ctx, "keep what is in force over a rewritten "+f.estateBranch(), err)
		return plumbing.ZeroHash, false
	}
	return unknown.config, true
}

// firstCommit returns the next step if the remote lacks the branch that people
// merge to.
func (f *Fetcher) firstCommit(d *download) string {
	branch := f.Options.Branch
	var others []string
	for name := range d.refs {
		if b, ok := strings.CutPrefix(name, "refs/heads/"); ok && b != "berth" && !strings.HasPrefix(b, "berth/") {
			others = append(others, b)
		}
	}
	switch {
	case len(others) == 1 && f.main.local:
		return fmt.Sprintf("rename the branch there: git branch -m %s %s; or set repository.branch: %s", others[0], branch, others[0])
	case len(others) == 1:
		return fmt.Sprintf("it has %s: set repository.branch: %s, or push a first commit to %s", others[0], others[0], branch)
	case f.main.local && len(others) == 0:
		return "make a first commit there: git add . && git commit -m estate"
	}
	return fmt.Sprintf("push a first commit to it, or set repository.branch to another of its %d branches", len(others))
}

// PushMain pushes a pack to the estate's repository and moves a branch there.
func (f *Fetcher) PushMain(ctx context.Context, branch string, old, tip plumbing.Hash, pack []byte) error {
	return f.main.push(ctx, branch, old, tip, pack)
}
