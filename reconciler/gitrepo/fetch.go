package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
)

const (
	// acceptedRef holds an in-force tip that an operator accepted although it was
	// not made from the current main. It is never pushed.
	acceptedRef plumbing.ReferenceName = "refs/berth/accepted"

	// tidyPacks is the number of packs from which small packs are combined. Each
	// fetch and each write adds a pack, and a read may have to search all packs.
	tidyPacks = 50
	// maxPacks is the number of packs from which the mirror is fetched again.
	maxPacks = 150
)

// Fetch updates the mirror and returns the tips of the branches. With an error it
// returns the previous tips. A branch is updated only completely and only by a
// fast-forward.
//
// reconciler.ErrRewritten means that main, in-force or status does not descend
// from its last known tip, or that in-force has files that main never had. It
// also means that another process moved in-force while this process runs, even by
// a fast-forward to files of main; a new process accepts that. The error persists
// until the remote is repaired or an operator calls Accept.
// reconciler.ErrNotFound means that the remote has no main.
func (r *Repo) Fetch(ctx context.Context) (reconciler.Tips, error) {
	if r.local != "" {
		return r.localTips()
	}
	release, err := r.acquire(ctx)
	if err != nil {
		return reconciler.Tips{}, err
	}
	defer release()
	seen := r.seen()
	if r.Broken.Load() {
		return r.replaceMirror(ctx, seen)
	}
	tips, err := r.update(ctx, seen)
	if r.Broken.Load() && ctx.Err() == nil {
		r.LogError(ctx, "fetch into a damaged mirror", err)
		return r.replaceMirror(ctx, seen)
	}
	if err == nil {
		r.tidy(ctx, tips)
	}
	r.renewScratch(ctx)
	return tips.public(), err
}

// BranchComposed holds the estate if tenants have their own repositories
// (requirement F8). Its tree is the platform's tree with the tenant trees of
// those repositories. Only Berth writes it. Each commit on its first-parent
// history is made from one commit of a source. That source commit is its last
// parent and is named in a trailer. Without such a tenant the branch does not
// exist, and the estate is the branch that people merge to.
const BranchComposed = "berth/main"

// Composer composes an estate of several repositories on BranchComposed.
type Composer interface {
	// Advance composes the new commits of the sources, pushes them and returns the
	// tip of the estate. seen are the tips of the mirror, at the tips of the
	// remote. accepted is the commit of a rewritten main that the operator accepts.
	Advance(ctx context.Context, r *Repo, seen, at Tips, accepted plumbing.Hash) (plumbing.Hash, error)
	// Parents returns the parents of a commit that belong to the estate's history.
	Parents(c object.Commit) []plumbing.Hash
}

// Tips are the tips of the branches. Main is the estate's. For a composed estate,
// Source is the branch that people merge to.
type Tips struct{ Main, InForce, status, Source plumbing.Hash }

// estateBranch returns the branch with the commits of the estate: BranchComposed
// for a composed estate, else the branch that people merge to.
func (r *Repo) estateBranch() string {
	if r.composer != nil {
		return BranchComposed
	}
	return r.Options.Branch
}

// places returns the ref in the mirror for each tip.
func (r *Repo) places(t *Tips) map[plumbing.ReferenceName]*plumbing.Hash {
	out := map[plumbing.ReferenceName]*plumbing.Hash{
		plumbing.NewBranchReferenceName(r.estateBranch()):         &t.Main,
		plumbing.NewBranchReferenceName(reconciler.BranchInForce): &t.InForce,
		plumbing.NewBranchReferenceName(reconciler.BranchStatus):  &t.status,
	}
	if r.composer != nil {
		out[plumbing.NewBranchReferenceName(r.Options.Branch)] = &t.Source
	}
	return out
}

func (t Tips) public() reconciler.Tips {
	return reconciler.Tips{Main: object.IDString(t.Main), InForce: object.IDString(t.InForce), Status: object.IDString(t.status)}
}

// seen returns the last known tips from the refs of the mirror. An unreadable ref
// counts as unknown, and so does a commit that the mirror lost (see
// withoutLostCommits). The check of in-force against main is independent of it.
func (r *Repo) seen() Tips {
	var out Tips
	for name, h := range r.places(&out) {
		var err error
		if *h, err = r.Mirror.Ref(name); err != nil {
			r.Damaged("read ref "+name.Short(), err)
		}
	}
	return out
}

// seenCommits returns the known commits whose history git must be able to read.
func (r *Repo) seenCommits() (out []string) {
	r.Swap.RLock()
	defer r.Swap.RUnlock()
	seen := r.seen()
	for _, h := range []plumbing.Hash{seen.Main, seen.Source, seen.InForce} {
		if !h.IsZero() {
			out = append(out, h.String())
		}
	}
	return out
}

// withoutLostCommits returns seen without the commits that the mirror lost, after
// a fetch. The mirror is a cache: a branch with a lost commit counts as unknown.
// Then in-force names the last known main, and berth/status permits nothing.
func (r *Repo) withoutLostCommits(seen Tips) Tips {
	for _, h := range r.places(&seen) {
		if !r.Mirror.Has(*h) {
			*h = plumbing.ZeroHash
		}
	}
	return seen
}

// update fetches into the mirror and updates its branches.
func (r *Repo) update(ctx context.Context, seen Tips) (Tips, error) {
	limit := r.Options.Timeout
	if !r.Mirror.Has(seen.Main) {
		limit *= 10
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	at, err := r.download(ctx, seen)
	if err != nil {
		return seen, err
	}
	seen = r.withoutLostCommits(seen)
	now := seen
	// Each branch is checked separately: a refused branch does not block the
	// others.
	var errs []error
	take := func(branch string, to *plumbing.Hash, tip plumbing.Hash, check error) {
		if check == nil && *to != tip {
			check = r.Mirror.SetRef(plumbing.NewBranchReferenceName(branch), tip)
		}
		if check != nil {
			errs = append(errs, check)
			return
		}
		*to = tip
	}
	main, errMain := at.Main, error(nil)
	switch {
	case r.composer != nil:
		main, errMain = r.composer.Advance(ctx, r, seen, at, plumbing.ZeroHash)
	case r.Options.Tenant:
	default:
		errMain = r.Forwards(ctx, r.Options.Branch, seen.Main, at.Main)
	}
	if errMain != nil {
		main = seen.Main
	}
	errInForce := r.Forwards(ctx, reconciler.BranchInForce, seen.InForce, at.InForce)
	if errInForce == nil {
		errInForce = r.CheckInForce(ctx, main, at.InForce)
	}
	if config, ok := r.mainFromInForce(ctx, seen, at, errInForce); ok {
		errs = append(errs, errInForce)
		main, errMain, errInForce = config, nil, nil
	} else if r.composer != nil && errMain == nil {
		take(r.Options.Branch, &now.Source, at.Source, nil)
	}
	take(r.estateBranch(), &now.Main, main, errMain)
	take(reconciler.BranchInForce, &now.InForce, at.InForce, errInForce)
	if errInForce == nil && now.InForce == at.InForce {
		r.moves.found(at.InForce, r.Options.Now().Add(2*r.Options.Timeout))
	}
	take(reconciler.BranchStatus, &now.status, at.status, r.Forwards(ctx, reconciler.BranchStatus, seen.status, at.status))
	return now, errors.Join(errs...)
}

// download fetches the objects of the remote's branches and returns their tips.
func (r *Repo) download(ctx context.Context, seen Tips) (at Tips, err error) {
	d, err := r.main.advertise(ctx)
	if err != nil {
		return at, err
	}
	defer d.close() //nolint:errcheck // read to its end
	at.Source = d.tip(r.Options.Branch)
	if at.Source.IsZero() {
		return at, &reconciler.OperatorError{Err: fmt.Errorf("%s has no branch %q: %w; %s", r.main.url, r.Options.Branch, reconciler.ErrNotFound, r.firstCommit(d))}
	}
	at.Main = d.tip(r.estateBranch())
	if r.Options.Tenant {
		return at, r.bringTenant(ctx, d, seen.Main, at.Main)
	}
	at.InForce = d.tip(reconciler.BranchInForce)
	if err := r.bring(ctx, d, []plumbing.Hash{at.Source, at.Main, at.InForce}, []plumbing.Hash{seen.Source, seen.Main, seen.InForce}, 0); err != nil {
		return at, err
	}
	statusAt := d
	if r.status != r.main {
		if statusAt, err = r.status.advertise(ctx); err != nil {
			return at, err
		}
		defer statusAt.close() //nolint:errcheck // read to its end
	}
	at.status = statusAt.tip(reconciler.BranchStatus)
	// The history of status is not needed and grows every second, so a new mirror
	// fetches only the newest commit.
	depth := 0
	if !r.Mirror.Has(seen.status) {
		depth = 1
	}
	return at, r.bring(ctx, statusAt, []plumbing.Hash{at.status}, []plumbing.Hash{seen.status}, depth)
}

// bring fetches the commits of wants that the mirror lacks.
func (r *Repo) bring(ctx context.Context, d *download, wants, haves []plumbing.Hash, depth int) error {
	var missing, present []plumbing.Hash
	for _, h := range wants {
		if !h.IsZero() && !r.Mirror.Has(h) {
			missing = append(missing, h)
		}
	}
	for _, h := range haves {
		if r.Mirror.Has(h) {
			present = append(present, h)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := d.fetch(ctx, order{into: r.Mirror, wants: missing, haves: present, depth: depth}); err != nil {
		if errors.Is(err, errStore) {
			r.Damaged("fetch", err)
		}
		return err
	}
	for _, h := range missing {
		// The reader of the tree reports faults inside it.
		if _, err := r.RootEntries(h); err != nil && !errors.Is(err, reconciler.ErrUnreadable) {
			return fmt.Errorf("%s sent a pack without %s: %w", d.remote.url, h, err)
		}
	}
	return nil
}

// Forwards returns an error unless a branch may move from old to tip.
func (r *Repo) Forwards(ctx context.Context, branch string, old, tip plumbing.Hash) error {
	if old.IsZero() || old == tip {
		return nil
	}
	if tip.IsZero() {
		return fmt.Errorf("branch %s was deleted at the remote, it stood at %s: %w", branch, old, reconciler.ErrRewritten)
	}
	ok, err := r.IsAncestor(ctx, old, tip)
	if err == nil && !ok {
		err = fmt.Errorf("branch %s stands at %s, which does not descend from %s: %w%s", branch, tip, old, reconciler.ErrRewritten, r.rewrittenBranchHint(branch, tip))
	}
	return err
}

// rewrittenBranchHint returns the next step for a rewritten branch that people
// merge to.
func (r *Repo) rewrittenBranchHint(branch string, tip plumbing.Hash) string {
	if branch != r.Options.Branch {
		return ""
	}
	return fmt.Sprintf("; put it back, or start once with repository.accept: %s in berth.yaml to take it over", tip)
}

// IsAncestor reports whether b descends from a, or is a. It visits the youngest
// commits first, so that the usual answer is found early.
func (r *Repo) IsAncestor(ctx context.Context, a, b plumbing.Hash) (bool, error) {
	found := false
	err := r.history(ctx, b, func(c object.Commit) (bool, error) {
		found = c.ID == a
		return found, nil
	})
	return found, err
}

// unknownSourceError means that in-force was made from a commit that is not in
// main's history.
type unknownSourceError struct {
	branch       string
	main, config plumbing.Hash
}

func (e *unknownSourceError) Error() string {
	return fmt.Sprintf("branch %s stands at %s, but %s was in force: %v", e.branch, e.main, e.config, reconciler.ErrRewritten)
}

func (e *unknownSourceError) Unwrap() error { return reconciler.ErrRewritten }

// CheckInForce checks a new in-force tip against main. Main's history must
// contain the commit of main that the tip names, and each file of the tip. The
// check needs no local state, so it finds a rewritten history even after the
// mirror was lost. A tip that another process pushed while this process runs is
// refused without further checks.
func (r *Repo) CheckInForce(ctx context.Context, main, inForce plumbing.Hash) error {
	if err := r.moves.allow(inForce, r.Options.Now()); err != nil {
		return err
	}
	if inForce.IsZero() || inForce == r.verified {
		return nil
	}
	if accepted, err := r.Mirror.Ref(acceptedRef); err == nil && accepted == inForce {
		return nil
	}
	c, err := r.Commit(inForce)
	if err != nil {
		return err
	}
	config, err := object.ParseID(c.Trailer(object.TrailerConfig))
	if err != nil {
		return fmt.Errorf("%s at %s was not written by Berth: %w", reconciler.BranchInForce, inForce, reconciler.ErrRewritten)
	}
	ok, err := r.IsAncestor(ctx, config, main)
	if err != nil {
		return err
	}
	if !ok {
		return &unknownSourceError{r.estateBranch(), main, config}
	}
	if err := r.VerifyInForce(ctx, main.String(), inForce.String()); err != nil {
		return err
	}
	r.verified = inForce
	return nil
}

// mainFromInForce returns a replacement for a rewritten main after the mirror was
// lost: the commit that in-force was made from. It keeps in-force valid, so a new
// machine freezes like a restarted one. The rewritten main stays refused.
//
// It returns false if the mirror knows a tip of in-force: a user with
// push permission for in-force cannot move main with it.
func (r *Repo) mainFromInForce(ctx context.Context, seen, at Tips, refused error) (plumbing.Hash, bool) {
	var unknown *unknownSourceError
	if !errors.As(refused, &unknown) || !seen.InForce.IsZero() || !r.Mirror.Has(unknown.config) {
		return plumbing.ZeroHash, false
	}
	if !seen.Main.IsZero() && seen.Main != unknown.config {
		return plumbing.ZeroHash, false
	}
	if err := r.VerifyInForce(ctx, unknown.config.String(), at.InForce.String()); err != nil {
		r.LogError(ctx, "keep what is in force over a rewritten "+r.estateBranch(), err)
		return plumbing.ZeroHash, false
	}
	return unknown.config, true
}

// Accept updates the branches to the remote's tips although history was
// rewritten. The operator names main's commit, so that only a reviewed commit is
// accepted.
func (r *Repo) Accept(ctx context.Context, main string) (reconciler.Tips, error) {
	want, err := object.ParseID(main)
	if err != nil {
		return reconciler.Tips{}, err
	}
	release, err := r.acquire(ctx)
	if err != nil {
		return reconciler.Tips{}, err
	}
	defer release()
	seen := r.seen()
	ctx, cancel := context.WithTimeout(ctx, 10*r.Options.Timeout)
	defer cancel()
	at, err := r.download(ctx, seen)
	if err != nil {
		return seen.public(), err
	}
	if at.Source != want {
		return seen.public(), fmt.Errorf("main stands at %s, not at the accepted %s: %w", at.Source, want, reconciler.ErrConflict)
	}
	if r.composer != nil {
		if at.Main, err = r.composer.Advance(ctx, r, seen, at, want); err != nil {
			return seen.public(), err
		}
	}
	for name, h := range r.places(&at) {
		if err := r.Mirror.SetRef(name, *h); err != nil {
			return seen.public(), err
		}
	}
	r.moves.at(at.InForce)
	return at.public(), r.Mirror.SetRef(acceptedRef, at.InForce)
}

// FetchPull fetches the head of a pull request and returns its commit. The head
// is stored outside the mirror and only for some time, so call FetchPull before
// each use. A head larger than Options.MaxPull is refused, and not fetched again
// for an hour. reconciler.ErrNotFound means that the remote has no such pull
// request.
func (r *Repo) FetchPull(ctx context.Context, number int) (string, error) {
	if number <= 0 {
		return "", fmt.Errorf("pull request %d: %w", number, reconciler.ErrNotFound)
	}
	head, err := r.FetchRef(ctx, fmt.Sprintf("refs/pull/%d/head", number))
	if err != nil {
		return "", fmt.Errorf("pull request %d: %w", number, err)
	}
	return head, nil
}

// Refs returns the remote's refs whose names begin with prefix, with their
// commits.
func (r *Repo) Refs(ctx context.Context, prefix string) (map[string]string, error) {
	release, err := r.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, r.Options.Timeout)
	defer cancel()
	d, err := r.main.advertise(ctx)
	if err != nil {
		return nil, err
	}
	defer d.close() //nolint:errcheck // nothing was asked of it but the refs
	out := map[string]string{}
	for name, h := range d.refs {
		if strings.HasPrefix(name, prefix) {
			out[name] = h.String()
		}
	}
	return out, nil
}

// FetchPulls fetches several heads with one request. It returns the heads that
// are stored. For the others, FetchPull returns the error.
func (r *Repo) FetchPulls(ctx context.Context, numbers []int) (map[int]string, error) {
	release, err := r.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	r.renewScratch(ctx)
	ctx, cancel := context.WithTimeout(ctx, r.Options.Timeout)
	defer cancel()
	d, err := r.main.advertise(ctx)
	if err != nil {
		return nil, err
	}
	defer d.close() //nolint:errcheck // read to its end
	o := order{into: r.Scratch, limit: r.Options.MaxPull}
	has := func(h plumbing.Hash) bool { return r.Mirror.Has(h) || r.Scratch.Has(h) }
	heads := map[int]plumbing.Hash{}
	for _, n := range numbers {
		ref := fmt.Sprintf("refs/pull/%d/head", n)
		if h := d.refs[ref]; !h.IsZero() && (has(h) || r.refused(ref, h) == nil) {
			heads[n] = h
			if !has(h) && !slices.Contains(o.wants, h) {
				o.wants = append(o.wants, h)
			}
		}
	}
	if len(o.wants) > 0 {
		seen := r.seen()
		for _, h := range []plumbing.Hash{seen.Main, seen.InForce} {
			if r.Mirror.Has(h) {
				o.haves = append(o.haves, h)
			}
		}
		size, err := d.fetch(ctx, o)
		r.use.bytes += size
		if err != nil { // one bad head may fail the whole request
			r.Options.Log.InfoContext(ctx, "pull requests are fetched one by one", "together", len(o.wants), "error", err.Error())
		}
	}
	out := map[int]string{}
	for n, h := range heads {
		if has(h) {
			out[n] = h.String()
		}
	}
	return out, nil
}

// FetchRef is FetchPull for any ref, such as that of a group in a merge queue.
func (r *Repo) FetchRef(ctx context.Context, ref string) (string, error) {
	release, err := r.acquire(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	r.renewScratch(ctx)
	ctx, cancel := context.WithTimeout(ctx, r.Options.Timeout)
	defer cancel()
	d, err := r.main.advertise(ctx)
	if err != nil {
		return "", err
	}
	defer d.close() //nolint:errcheck // read to its end
	head := d.refs[ref]
	if head.IsZero() {
		return "", fmt.Errorf("%s has no %s: %w", r.main.url, ref, reconciler.ErrNotFound)
	}
	if err := r.bringApart(ctx, d, ref, head); err != nil {
		return "", err
	}
	return head.String(), nil
}

// bringApart fetches a head into the scratch store, unless it is stored.
func (r *Repo) bringApart(ctx context.Context, d *download, ref string, head plumbing.Hash) error {
	if r.Mirror.Has(head) || r.Scratch.Has(head) {
		return nil
	}
	if err := r.refused(ref, head); err != nil {
		return err
	}
	o := order{into: r.Scratch, wants: []plumbing.Hash{head}, limit: r.Options.MaxPull}
	seen := r.seen()
	for _, h := range []plumbing.Hash{seen.Main, seen.InForce} {
		if r.Mirror.Has(h) {
			o.haves = append(o.haves, h)
		}
	}
	size, err := d.fetch(ctx, o)
	r.use.bytes += size
	switch {
	case errors.Is(err, object.ErrTooLarge):
		err = fmt.Errorf("its commits bring more than %s, the limit for a pull request; take the large files out of them: %w", inMiB(r.Options.MaxPull), reconciler.ErrRefused)
		r.refuse(ref, head, scratchAge, err)
	case errors.Is(err, errStore) && errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("its commits unfold to more than can be looked at in %s: %w: %w", r.Options.Timeout, reconciler.ErrRefused, err)
		r.refuse(ref, head, scratchAge, err)
	case errors.Is(err, errStore): // the head is faulty or the disk is full
		r.refuse(ref, head, StoreAgain, err)
	}
	if err != nil {
		return err
	}
	_, err = r.RootEntries(head)
	if errors.Is(err, reconciler.ErrUnreadable) {
		return nil // the reader of the tree reports the fault
	}
	return err
}

// tidy limits the number of packs. It is maintenance: a failure is only logged.
// In the worst case the mirror is fetched again.
func (r *Repo) tidy(ctx context.Context, seen Tips) {
	switch n := r.Mirror.Packs(); {
	case n > maxPacks:
		_, err := r.replaceMirror(ctx, seen)
		r.LogError(ctx, "fetch the mirror anew", err)
	case n > tidyPacks:
		r.Swap.Lock()
		defer r.Swap.Unlock()
		r.LogError(ctx, "put packs together", errors.Join(r.Mirror.Close(), r.repack(ctx)))
		r.Mirror = object.OpenStore(r.Mirror.Dir)
	}
}

// replaceMirror fetches all branches into a new mirror and replaces the old one.
// If the remote does not respond, the old mirror stays.
func (r *Repo) replaceMirror(ctx context.Context, seen Tips) (reconciler.Tips, error) {
	start := time.Now()
	dir := filepath.Join(r.Options.Dir, "mirror.new")
	if err := os.RemoveAll(dir); err != nil {
		return seen.public(), err
	}
	if err := object.InitStore(dir); err != nil {
		return seen.public(), err
	}
	objects := &object.Reader{Log: r.Options.Log, Mirror: object.OpenStore(dir), Scratch: r.Scratch, Older: r.Older}
	fresh := &Repo{
		merger: newMerger(objects), Options: r.Options, who: r.who,
		main: r.main, status: r.status, composer: r.composer, moves: r.moves,
	}
	fresh.branches = fresh.seenCommits
	// The known tips remain known: a new mirror must not accept a rewritten main.
	for name, h := range r.places(&seen) {
		if !h.IsZero() {
			if err := fresh.Mirror.SetRef(name, *h); err != nil {
				return seen.public(), errors.Join(err, fresh.Mirror.Close())
			}
		}
	}
	if accepted, err := r.Mirror.Ref(acceptedRef); err == nil && !accepted.IsZero() {
		if err := fresh.Mirror.SetRef(acceptedRef, accepted); err != nil {
			return seen.public(), errors.Join(err, fresh.Mirror.Close())
		}
	}
	now, err := fresh.update(ctx, seen)
	if fresh.Broken.Load() || (err != nil && !errors.Is(err, reconciler.ErrRewritten)) {
		return seen.public(), errors.Join(err, fresh.Mirror.Close())
	}
	r.Swap.Lock()
	defer r.Swap.Unlock()
	mirror, old := r.Mirror.Dir, filepath.Join(r.Options.Dir, "mirror.old")
	// The old mirror may be damaged, so closing it may fail.
	r.LogError(ctx, "close the old mirror", r.Mirror.Close())
	swapped := errors.Join(fresh.Mirror.Close(), os.RemoveAll(old))
	if object.FileExists(mirror) {
		swapped = errors.Join(swapped, os.Rename(mirror, old))
	}
	swapped = errors.Join(swapped, os.Rename(dir, mirror))
	r.Mirror = object.OpenStore(mirror)
	r.merges.forget()
	if swapped != nil {
		return seen.public(), errors.Join(err, swapped)
	}
	r.Broken.Store(false)
	r.verified, r.moves = fresh.verified, fresh.moves
	r.LogError(ctx, "remove the old mirror", os.RemoveAll(old))
	r.Options.Log.InfoContext(ctx, "mirror was fetched anew", "seconds", time.Since(start).Seconds())
	return now.public(), err
}

// PullEvidence returns the evidence in the head of a pull request: its author and
// the requests in its trailers. It proves nothing about main.
func (r *Repo) PullEvidence(ctx context.Context, number int) (reconciler.Evidence, error) {
	head, err := r.FetchPull(ctx, number)
	if err != nil {
		return reconciler.Evidence{}, err
	}
	e, err := r.HeadEvidence(ctx, head)
	if err != nil {
		return e, fmt.Errorf("pull request %d: %w", number, err)
	}
	return e, nil
}

// bringTenant fetches a tenant's branch into the mirror, unless it is stored or
// was refused recently.
func (r *Repo) bringTenant(ctx context.Context, d *download, have, want plumbing.Hash) error {
	branch := "refs/heads/" + r.Options.Branch
	if r.Mirror.Has(want) {
		return nil
	}
	if err := r.refused(branch, want); err != nil {
		return err
	}
	o := order{into: r.Mirror, wants: []plumbing.Hash{want}, limit: r.Options.MaxPull, strict: true}
	if r.Mirror.Has(have) {
		o.haves = []plumbing.Hash{have}
	}
	_, err := d.fetch(ctx, o)
	switch {
	case errors.Is(err, object.ErrTooLarge):
		err = fmt.Errorf("%s: branch %s brings more than %s, the limit for a tenant's repository; take the large files out of its history: %w",
			r.main.url, r.Options.Branch, inMiB(r.Options.MaxPull), reconciler.ErrRefused)
		r.refuse(branch, want, scratchAge, err)
	case errors.Is(err, errStore): // the head is faulty or the disk is full
		r.refuse(branch, want, StoreAgain, err)
	}
	if err != nil {
		return err
	}
	if _, err := r.RootEntries(want); err != nil {
		r.refuse(branch, want, StoreAgain, err)
		return err
	}
	return nil
}
