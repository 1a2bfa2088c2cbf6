package pulls

import (
	"context"
	"errors"
	"maps"
	"slices"
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
		if known, sure, err = r.askForge(ctx, commit); err != nil {
			return nil, false, err
		}
	}
	for _, pr := range known {
		if pr.Merged && pr.BaseBranch == r.Branch {
			numbers = append(numbers, pr.Number)
		}
	}
	return numbers, sure, nil
}

// askForge asks for the pull requests of a commit, unless it has asked a moment ago. sure is as in BroughtBy.
func (r *Reporter) askForge(ctx context.Context, commit string) (prs []reconciler.PullRequest, sure bool, err error) {
	lag := min(r.AuthorLag, maxPullLag)
	if !r.rollouts.mayAsk(commit, min(pullAgain, lag)) {
		return nil, false, nil
	}
	if prs, err = r.Forge.PullsOf(ctx, commit); err != nil {
		return nil, false, err
	}
	asked := r.rollouts.setPulls(commit, prs)
	if len(prs) > 0 || asked < lag {
		return prs, len(prs) > 0, nil
	}
	if prs, sure, err = r.unnamed(ctx, commit); err != nil {
		return nil, false, err
	}
	if sure = sure || asked >= r.AuthorLag; sure {
		r.rollouts.settlePulls(commit, prs)
	}
	return prs, sure, nil
}

// unnamed lists the pull requests that say that a commit merged them, although the
// forge does not name them for the commit: it may know a pull request earlier. sure
// is false while one that is not open any more may turn out to have brought it.
func (r *Reporter) unnamed(ctx context.Context, commit string) (prs []reconciler.PullRequest, sure bool, err error) {
	numbers, err := r.closedPulls(ctx)
	if err != nil {
		return nil, false, err
	}
	sure = true
	for _, n := range numbers {
		pr, err := r.Forge.Pull(ctx, n)
		if errors.Is(err, reconciler.ErrNotFound) || err == nil && pr.BaseBranch != r.Branch {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		if pr.Merged && pr.MergeCommit == commit {
			prs = append(prs, pr)
			continue
		}
		excluded, err := r.excludes(ctx, pr, commit)
		if err != nil {
			return nil, false, err
		}
		sure = sure && excluded
	}
	return prs, sure || len(prs) > 0, nil
}

// closedPulls lists the known pull requests that the forge does not list as open any more.
func (r *Reporter) closedPulls(ctx context.Context) ([]int, error) {
	open, err := r.Forge.OpenPulls(ctx)
	if err != nil {
		return nil, err
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
	maps.DeleteFunc(closed, func(_ int, is bool) bool { return !is })
	return slices.Collect(maps.Keys(closed)), nil
}

// excludes reports whether a pull request that does not name a commit as its merge cannot have brought it. The commit may
// be one of several of a merged pull request. The forge may report the merge of a closed one a moment later.
func (r *Reporter) excludes(ctx context.Context, pr reconciler.PullRequest, commit string) (bool, error) {
	if !pr.Merged || pr.MergeCommit == "" {
		return !pr.Open && r.Now().Sub(pr.Updated) >= r.AuthorLag, nil
	}
	base, err := r.Repo.MergeBase(ctx, commit, pr.MergeCommit)
	if errors.Is(err, reconciler.ErrNotFound) {
		return false, nil
	}
	return base != commit, err
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
