package provenance

import (
	"context"
	"errors"
	"slices"

	"berth/reconciler"
)

// MaxSteps bounds how many commits of main are decided one by one. More of them,
// the oldest, are decided as one change without an author.
const MaxSteps = 1000

// chain lists the commits by which main came from one commit to another, oldest
// first. It follows first parents, except where another parent leads back to from:
// when main is replaced by a branch that main was merged into, the first parents
// of that branch would undo what main did meanwhile. joins names the parent that
// was followed instead, by commit.
func chain(ctx context.Context, repo reconciler.Repo, from, to string) (commits []reconciler.Commit, joins map[string]string, err error) {
	joins = map[string]string{}
	for tip := to; tip != from && len(commits) < MaxSteps; {
		part, err := repo.Log(ctx, from, tip, MaxSteps-len(commits))
		if err != nil {
			return nil, nil, err
		}
		n := len(part)
		if n == 0 {
			break
		}
		if oldest := part[n-1]; n == MaxSteps-len(commits) || len(oldest.Parents) > 0 && oldest.Parents[0] == from {
			commits = append(commits, part...)
			break
		}
		i, parent, err := joined(ctx, repo, from, part)
		if err != nil {
			return nil, nil, err
		}
		if i < 0 { // no parent leads to from: all of it is one change
			commits = append(commits, part...)
			joins[part[n-1].ID] = from
			break
		}
		commits = append(commits, part[:i+1]...)
		joins[part[i].ID] = parent
		tip = parent
	}
	slices.Reverse(commits)
	return commits, joins, nil
}

// joined finds the newest commit with a parent, other than its first, that
// descends from a commit; -1 if no commit has one.
func joined(ctx context.Context, repo reconciler.Repo, from string, commits []reconciler.Commit) (int, string, error) {
	for i, c := range commits {
		for _, p := range c.Parents[min(1, len(c.Parents)):] {
			base, err := repo.MergeBase(ctx, from, p)
			if err != nil && !errors.Is(err, reconciler.ErrNotFound) {
				return 0, "", err
			}
			if err == nil && base == from {
				return i, p, nil
			}
		}
	}
	return -1, "", nil
}
