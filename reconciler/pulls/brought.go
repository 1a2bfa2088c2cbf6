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
	// A report of a roll-out believes a forge that names no pull request after
	// pullsOfTrust, and asks again every pullsOfAgain.
	pullsOfAgain = 5 * time.Second
	pullsOfTrust = time.Minute
)

// BroughtBy lists the pull requests that brought a commit of main; without a forge
// the list is empty. sure is false while the forge may not know them yet.
//
// The forge's answer is not verified: it can only hold a unit. A unit that it
// releases would not be held if the forge had named no pull request.
func (r *Reporter) BroughtBy(ctx context.Context, commit string) (numbers []int, sure bool, err error) {
	if r.Forge == nil {
		return nil, true, nil
	}
	known, _, sure := r.rollouts.pulls(commit)
	if !sure {
		lag := min(r.AuthorLag, maxPullLag)
		if !r.rollouts.mayAsk(commit, min(pullAgain, lag)) {
			return nil, false, nil
		}
		if known, err = r.Forge.PullsOf(ctx, commit); err != nil {
			return nil, false, err
		}
		asked := r.rollouts.setPulls(commit, known)
		if sure = len(known) > 0; !sure && asked >= lag {
			if known, sure, err = r.unnamed(ctx, commit); err != nil {
				return nil, false, err
			}
			if sure = sure || asked >= r.AuthorLag; sure {
				r.rollouts.settlePulls(commit, known)
			}
		}
	}
	for _, pr := range known {
		if pr.Merged && pr.BaseBranch == r.Branch {
			numbers = append(numbers, pr.Number)
		}
	}
	return numbers, sure, nil
}

// unnamed lists the pull requests that say that a commit merged them, although the
// forge does not name them for the commit: it may know a pull request earlier. sure
// is false while one that is not open any more may turn out to have brought it.
func (r *Reporter) unnamed(ctx context.Context, commit string) (prs []reconciler.PullRequest, sure bool, err error) {
	open, err := r.Forge.OpenPulls(ctx)
	if err != nil {
		return nil, false, err
	}
	closed := map[int]bool{}
	for n, v := range r.Status.Reviews() {
		closed[n] = v.Head != "" || v.Next != nil
	}
	for _, n := range r.open.numbers() {
		closed[n] = true
	}
	for _, pr := range open {
		closed[pr.Number] = false
	}
	sure = true
	for n, is := range closed {
		if !is {
			continue
		}
		pr, err := r.Forge.Pull(ctx, n)
		if errors.Is(err, reconciler.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		switch {
		case pr.BaseBranch != r.Branch:
		case pr.Merged && pr.MergeCommit == commit:
			prs = append(prs, pr)
		case pr.Merged && pr.MergeCommit != "":
			base, err := r.Repo.MergeBase(ctx, commit, pr.MergeCommit)
			if err != nil && !errors.Is(err, reconciler.ErrNotFound) {
				return nil, false, err
			}
			sure = sure && err == nil && base != commit // else the commit may be one of several of the pull request
		default: // closed; the forge may report the merge a moment later
			sure = sure && !pr.Open && r.Now().Sub(pr.Updated) >= r.AuthorLag
		}
	}
	return prs, sure || len(prs) > 0, nil
}

// isAncestor reports whether a commit is another one or comes before it. An unknown
// commit comes before none.
func (e *env) isAncestor(ctx context.Context, commit, of string) (bool, error) {
	base, err := e.Repo.MergeBase(ctx, commit, of)
	if errors.Is(err, reconciler.ErrNotFound) {
		return false, nil
	}
	return err == nil && base == commit, err
}

// pullsOf lists the merged pull requests that a commit belongs to. While it is not
// sure that the list is empty, the roll-out is reported again.
func (r *Reporter) pullsOf(ctx context.Context, commit string) (prs []reconciler.PullRequest, sure bool, err error) {
	prs, asked, _ := r.rollouts.pulls(commit)
	if len(prs) > 0 || !asked.IsZero() && r.Now().Sub(asked) >= pullsOfTrust {
		return prs, true, nil
	}
	if prs, err = r.Forge.PullsOf(ctx, commit); err != nil {
		return nil, false, err
	}
	r.rollouts.setPulls(commit, prs)
	if len(prs) == 0 {
		r.Queue.AddAfter(reconciler.Item{Task: reconciler.TaskRollout, Commit: commit}, pullsOfAgain)
	}
	return prs, len(prs) > 0, nil
}
