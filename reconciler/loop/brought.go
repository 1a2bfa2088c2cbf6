package loop

import (
	"berth/reconciler"
	"context"
	"errors"
	"slices"
)

// BroughtBy is the merged pull request that brought commits[i], whose author and
// approvers then stand for it (requirement A9). commits follow each other on
// main's first parents, oldest first.
//
// What a forge tells of a commit is only where to look: it counts a commit to a
// pull request that anybody pushed to main by hand, and a merge that anybody
// made by hand and put more into. So the commit must be the one that the forge
// merged by, or lie before it among commits of the same pull request, as in a
// rebase; and what they change together must be exactly what merging the pull
// request's head changes. If one is named and that does not hold, it is returned
// without ok: then only a signature tells who made the commit.
func BroughtBy(ctx context.Context, repo reconciler.Repo, forge reconciler.Forge, branch string, commits []reconciler.Commit, i int) (pr reconciler.PullRequest, ok bool, err error) {
	prs, err := forge.PullsOf(ctx, commits[i].ID)
	if err != nil {
		return reconciler.PullRequest{}, false, err
	}
	for _, p := range prs {
		if !p.Merged || p.BaseBranch != branch {
			continue
		}
		pr = p
		last := i + slices.IndexFunc(commits[i:], func(c reconciler.Commit) bool { return c.ID == p.MergeCommit })
		if last < i {
			continue
		}
		first, err := firstOf(ctx, forge, p, commits, i, last)
		if err != nil {
			return reconciler.PullRequest{}, false, err
		}
		// A squash or a merge is one commit, whatever the forge counts before it.
		for _, from := range slices.Compact([]int{first, last}) {
			if from < 0 || from > i {
				continue
			}
			if ok, err := merges(ctx, repo, p, commits[from], commits[last]); ok || err != nil {
				return p, ok, err
			}
		}
	}
	return pr, false, nil
}

// firstOf is where the commits begin that the forge counts to p without a gap
// and that end at last; -1 if there is a gap between i and last.
func firstOf(ctx context.Context, forge reconciler.Forge, p reconciler.PullRequest, commits []reconciler.Commit, i, last int) (int, error) {
	for first := last; ; first-- {
		if first == 0 {
			return 0, nil
		}
		prs, err := forge.PullsOf(ctx, commits[first-1].ID)
		if err != nil {
			return 0, err
		}
		if !slices.ContainsFunc(prs, func(o reconciler.PullRequest) bool { return o.Number == p.Number }) {
			if first > i {
				return -1, nil
			}
			return first, nil
		}
	}
}

// merges says whether the commits from first to last change what merging p's
// head before them would have.
func merges(ctx context.Context, repo reconciler.Repo, p reconciler.PullRequest, first, last reconciler.Commit) (bool, error) {
	if len(first.Parents) == 0 {
		return false, nil
	}
	if !slices.Contains(last.Parents, p.Head) { // else it is there
		head, err := repo.FetchPull(ctx, p.Number)
		if errors.Is(err, reconciler.ErrNotFound) || errors.Is(err, reconciler.ErrRefused) || err == nil && head != p.Head {
			return false, nil // and will not be
		}
		if err != nil {
			return false, err
		}
	}
	tree, conflicts, err := repo.Merge(ctx, first.Parents[0], p.Head)
	if errors.Is(err, reconciler.ErrUnreadable) || len(conflicts) > 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	more, err := repo.Diff(ctx, tree, last.ID)
	if errors.Is(err, reconciler.ErrUnreadable) {
		return false, nil
	}
	return err == nil && len(more) == 0, err
}
