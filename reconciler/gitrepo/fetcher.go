package gitrepo

import (
	"context"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
)

// BranchComposed holds the estate if tenants have their own repositories
// (requirement F8). Its tree is the platform's tree with the tenant trees of
// those repositories. Only Berth writes it. Each commit on its first-parent
// history is made from one commit of a source. That source commit is its last
// parent and is named in a trailer. Without such a tenant the branch does not
// exist, and the estate is the branch that people merge to.
const BranchComposed = "berth/main"

// Tips are the tips of the branches. Main is the estate's. For a composed estate,
// Source is the branch that people merge to.
type Tips struct{ Main, InForce, status, Source plumbing.Hash }

func (t Tips) public() reconciler.Tips {
	return reconciler.Tips{Main: object.IDString(t.Main), InForce: object.IDString(t.InForce), Status: object.IDString(t.status)}
}

// estateBranch returns the branch with the commits of the estate: BranchComposed
// for a composed estate, else the branch that people merge to.
func (f *Fetcher) estateBranch() string {
	if f.Options.Composer != nil {
		return BranchComposed
	}
	return f.Options.Branch
}

// places returns the ref in the mirror for each tip.
func (f *Fetcher) places(t *Tips) map[plumbing.ReferenceName]*plumbing.Hash {
	out := map[plumbing.ReferenceName]*plumbing.Hash{
		plumbing.NewBranchReferenceName(f.estateBranch()):         &t.Main,
		plumbing.NewBranchReferenceName(reconciler.BranchInForce): &t.InForce,
		plumbing.NewBranchReferenceName(reconciler.BranchStatus):  &t.status,
	}
	if f.Options.Composer != nil {
		out[plumbing.NewBranchReferenceName(f.Options.Branch)] = &t.Source
	}
	return out
}

// seen returns the last known tips from the refs of the mirror. An unreadable ref
// counts as unknown, and so does a commit that the mirror lost (see
// withoutLostCommits). The check of in-force against main is independent of it.
func (f *Fetcher) seen() Tips {
	var out Tips
	for name, h := range f.places(&out) {
		var err error
		if *h, err = f.Mirror.Ref(name); err != nil {
			f.Damaged("read ref "+name.Short(), err)
		}
	}
	return out
}

// seenCommits returns the known commits whose history git must be able to read.
func (f *Fetcher) seenCommits() (out []string) {
	f.Swap.RLock()
	defer f.Swap.RUnlock()
	seen := f.seen()
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
func (f *Fetcher) withoutLostCommits(seen Tips) Tips {
	for _, h := range f.places(&seen) {
		if !f.Mirror.Has(*h) {
			*h = plumbing.ZeroHash
		}
	}
	return seen
}

// Fetcher keeps the mirror at the tips of the remote's branches.
type Fetcher struct {
	*history
	*inForce
	Options  Options
	main     *remote
	status   *remote // same as main, or that of Options.Status
	refusals refusals
}

func newFetcher(r *object.Reader, o Options, main, status *remote, turn turn) *Fetcher {
	f := &Fetcher{history: newHistory(r), Options: o, main: main, status: status, refusals: refusals{}}
	f.inForce = &inForce{history: f.history, options: o, remote: main, turn: turn, source: f.estateBranch()}
	f.branches = f.seenCommits
	if o.Composer != nil {
		f.parents = o.Composer.Parents
	}
	return f
}

// Composer composes an estate of several repositories on BranchComposed.
type Composer interface {
	// Advance composes the new commits of the sources, pushes them and returns the
	// tip of the estate. seen are the tips of the mirror, at the tips of the
	// remote. accepted is the commit of a rewritten main that the operator accepts.
	Advance(ctx context.Context, f *Fetcher, seen, at Tips, accepted plumbing.Hash) (plumbing.Hash, error)
	// Parents returns the parents of a commit that belong to the estate's history.
	Parents(c object.Commit) []plumbing.Hash
}
