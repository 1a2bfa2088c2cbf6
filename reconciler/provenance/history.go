package provenance

import (
	"context"
	"errors"
	"slices"
	"strings"

	"berth/reconciler"
)

// History is a run of commits of main along first parents, oldest first. It keeps
// the forge's answers about them, because all commits of one pull request lead to
// the same questions. Use it in one goroutine, for one decision.
type History struct {
	commits []reconciler.Commit
	repo    reconciler.Repo
	forge   reconciler.Forge
	branch  string

	pulls     map[string][]reconciler.PullRequest // by commit
	approvers map[int][]string                    // by pull request
	exact     map[span]bool                       // whether the commits of a span make the changes of a merge
}

// span is a part of a history that a pull request may have brought.
type span struct{ pull, first, last int }

// NewHistory makes a History of commits of a branch.
func NewHistory(repo reconciler.Repo, forge reconciler.Forge, branch string, commits []reconciler.Commit) *History {
	return &History{
		commits: commits, repo: repo, forge: forge, branch: branch,
		pulls: map[string][]reconciler.PullRequest{}, approvers: map[int][]string{}, exact: map[span]bool{},
	}
}

// MergedBy is the merged pull request that brought commit i; its author and
// approvers are then responsible for the commit (requirement A9).
//
// The forge's answer is only a hint: a forge also counts commits to a pull request
// that a user pushed to main by hand, or merged by hand with more in them. So the
// commit must be the merge commit, or lie before it among commits of the same pull
// request, as after a rebase; and these commits together must change exactly what a
// merge of the head changes. If the forge names a pull request and this does not
// hold, MergedBy returns it with ok false: then only a signature can prove the author.
func (h *History) MergedBy(ctx context.Context, i int) (pr reconciler.PullRequest, ok bool, err error) {
	prs, err := h.pullsOf(ctx, i)
	if err != nil {
		return reconciler.PullRequest{}, false, err
	}
	for _, p := range prs {
		if !p.Merged || p.BaseBranch != h.branch {
			continue
		}
		pr = p
		if ok, err := h.brought(ctx, p, i); ok || err != nil {
			return p, ok, err
		}
	}
	return pr, false, nil
}

// brought reports whether commit i is part of the merge of a pull request.
func (h *History) brought(ctx context.Context, p reconciler.PullRequest, i int) (bool, error) {
	last := i + slices.IndexFunc(h.commits[i:], func(c reconciler.Commit) bool { return c.ID == p.MergeCommit })
	if last < i {
		return false, nil
	}
	first, err := h.firstOf(ctx, p, i, last)
	if err != nil {
		return false, err
	}
	// A squash or a merge is one commit, even if the forge counts earlier ones to it.
	for _, from := range slices.Compact([]int{first, last}) {
		if from < 0 || from > i {
			continue
		}
		if ok, err := h.isMerge(ctx, p, from, last); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// pullsOf asks the forge, once, for the pull requests of commit i.
func (h *History) pullsOf(ctx context.Context, i int) ([]reconciler.PullRequest, error) {
	id := h.commits[i].ID
	return once(h.pulls, id, func() ([]reconciler.PullRequest, error) { return h.forge.PullsOf(ctx, id) })
}

// approversOf asks the forge, once, who approved a pull request.
func (h *History) approversOf(ctx context.Context, pr reconciler.PullRequest) ([]string, error) {
	return once(h.approvers, pr.Number, func() ([]string, error) { return h.forge.Approvers(ctx, pr) })
}

// once returns the known value of a key, or finds and keeps it. It keeps no error.
func once[K comparable, V any](known map[K]V, key K, find func() (V, error)) (V, error) {
	if v, ok := known[key]; ok {
		return v, nil
	}
	v, err := find()
	if err == nil {
		known[key] = v
	}
	return v, err
}

// firstOf is the first of the commits up to last that the forge counts to p
// without a gap; -1 if there is a gap between i and last.
func (h *History) firstOf(ctx context.Context, p reconciler.PullRequest, i, last int) (int, error) {
	for first := last; first > 0; first-- {
		prs, err := h.pullsOf(ctx, first-1)
		if err != nil {
			return 0, err
		}
		if slices.ContainsFunc(prs, func(o reconciler.PullRequest) bool { return o.Number == p.Number }) {
			continue
		}
		if first > i {
			return -1, nil
		}
		return first, nil
	}
	return 0, nil
}

// isMerge returns true if the commits from first to last change exactly what a merge
// of p's head in their place changes.
func (h *History) isMerge(ctx context.Context, p reconciler.PullRequest, first, last int) (bool, error) {
	return once(h.exact, span{p.Number, first, last}, func() (bool, error) { return h.compare(ctx, p, h.commits[first], h.commits[last]) })
}

func (h *History) compare(ctx context.Context, p reconciler.PullRequest, first, last reconciler.Commit) (bool, error) {
	if len(first.Parents) == 0 {
		return false, nil
	}
	if !slices.Contains(last.Parents, p.Head) { // else the mirror has it
		head, err := h.repo.FetchPull(ctx, p.Number)
		if errors.Is(err, reconciler.ErrNotFound) || errors.Is(err, reconciler.ErrRefused) || err == nil && head != p.Head {
			return false, nil // the head is gone for good
		}
		if err != nil {
			return false, err
		}
	}
	tree, conflicts, err := h.repo.Merge(ctx, first.Parents[0], p.Head)
	if errors.Is(err, reconciler.ErrUnreadable) || len(conflicts) > 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	diff, err := h.repo.Diff(ctx, tree, last.ID)
	if errors.Is(err, reconciler.ErrUnreadable) {
		return false, nil
	}
	return err == nil && len(diff) == 0, err
}

// Touched lists the paths that differ between a commit and its first parent.
func Touched(ctx context.Context, repo reconciler.Repo, c reconciler.Commit) ([]reconciler.PathChange, error) {
	parent := ""
	if len(c.Parents) > 0 {
		parent = c.Parents[0]
	}
	return repo.Diff(ctx, parent, c.ID)
}

// InEstate reports whether a path is in one of the estate's directories, in any
// upper or lower case.
func InEstate(path string) bool {
	top, _, _ := strings.Cut(path, "/")
	return strings.EqualFold(top, "platform") || strings.EqualFold(top, "tenants")
}
