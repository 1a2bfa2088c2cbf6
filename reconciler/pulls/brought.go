package pulls

import (
	"context"
	"errors"
	"time"

	"berth/reconciler"
)

const (
	// maxPullLag is how long a forge that names no pull request for a new commit is
	// asked again before it is believed, if AuthorLag is longer and no known pull
	// request can have brought the commit.
	maxPullLag = 3 * time.Second
	// pullAgain is the least time between two such questions.
	pullAgain = time.Second
)

// BroughtBy are the pull requests that brought a commit of main; there is none
// where there is no forge. sure is false while the forge may not know yet.
//
// What the forge says needs no proof here: it can only hold a unit, and lets one
// go that nobody would hold had it said nothing.
func (r *Pulls) BroughtBy(ctx context.Context, commit string) (pulls []int, sure bool, err error) {
	if r.o.Forge == nil {
		return nil, true, nil
	}
	known, sure := r.RollOuts.broughtBy(commit)
	if !sure {
		if !r.RollOuts.ask(commit, min(pullAgain, r.pullLag())) {
			return nil, false, nil // it was asked a moment ago
		}
		if known, err = r.o.Forge.PullsOf(ctx, commit); err != nil {
			return nil, false, err
		}
		asked := r.RollOuts.setPulls(commit, known)
		if sure = len(known) > 0; !sure && asked >= r.pullLag() {
			if known, sure, err = r.unnamed(ctx, commit); err != nil {
				return nil, false, err
			}
			if sure = sure || asked >= r.o.AuthorLag; sure {
				r.RollOuts.believe(commit, known)
			}
		}
	}
	for _, pr := range known {
		if pr.Merged && pr.BaseBranch == r.o.Branch {
			pulls = append(pulls, pr.Number)
		}
	}
	return pulls, sure, nil
}

// unnamed are the pull requests that were merged by a commit of which the forge
// names none: what it says of a pull request it may know before. sure is false
// where one that is not open any more may still turn out to have brought it.
func (r *Pulls) unnamed(ctx context.Context, commit string) (prs []reconciler.PullRequest, sure bool, err error) {
	open, err := r.o.Forge.OpenPulls(ctx)
	if err != nil {
		return nil, false, err
	}
	maybe := map[int]bool{}
	for n := range r.o.Status.Reviews() {
		maybe[n] = true
	}
	r.mu.Lock()
	for n := range r.pulls {
		maybe[n] = true
	}
	r.mu.Unlock()
	for _, pr := range open {
		delete(maybe, pr.Number)
	}
	sure = true
	for n := range maybe {
		pr, err := r.o.Forge.Pull(ctx, n)
		if errors.Is(err, reconciler.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		switch {
		case pr.BaseBranch != r.o.Branch:
		case pr.Merged && pr.MergeCommit == commit:
			prs = append(prs, pr)
		case pr.Merged && pr.MergeCommit != "":
			base, err := r.o.Repo.MergeBase(ctx, commit, pr.MergeCommit)
			if err != nil && !errors.Is(err, reconciler.ErrNotFound) {
				return nil, false, err
			}
			sure = sure && err == nil && base != commit // else it may be one of several that it brought
		default: // closed, and merged a moment later for all that is known
			sure = sure && !pr.Open && r.o.Now().Sub(pr.Updated) >= r.o.AuthorLag
		}
	}
	return prs, sure || len(prs) > 0, nil
}

func (r *Pulls) pullLag() time.Duration { return min(r.o.AuthorLag, maxPullLag) }
