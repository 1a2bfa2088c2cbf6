package gitrepo

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
)

// Merge merges head into base as the forge would, without a work tree. It returns
// the merged tree, or the paths in conflict. The tree is stored outside the
// mirror, for at least an hour unless very many merges are made.
//
// The error is reconciler.ErrNotFound if a commit is missing or was removed;
// FetchPull fetches it again.
func (r *history) Merge(ctx context.Context, base, head string) (tree string, conflicts []string, err error) {
	if err := r.RequireCommits(base, head); err != nil {
		return "", nil, fmt.Errorf("merge: %w", err)
	}
	pair := [2]string{base, head}
	if m, ok := r.merges.Get(pair); ok && r.HasTree(m.tree) {
		return m.tree, slices.Clone(m.conflicts), nil
	}
	r.merged.Add(1)
	defer func() {
		if err == nil && !r.isShallow() {
			r.merges.Add(pair, merge{tree, slices.Clone(conflicts)}, mergeWeight)
		}
	}()
	out, code, err := r.git(ctx, "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", base, head)
	if err != nil {
		return "", nil, fmt.Errorf("merge %s into %s: %w", head, base, err)
	}
	fields := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	if _, err := object.ParseID(fields[0]); err != nil || code > 1 {
		return "", nil, fmt.Errorf("merge %s into %s: git merge-tree ended with status %d", head, base, code)
	}
	if code == 0 {
		return fields[0], nil, nil
	}
	conflicts = slices.DeleteFunc(fields[1:], func(s string) bool { return s == "" })
	slices.Sort(conflicts)
	return "", slices.Compact(conflicts), nil
}

// isShallow reports whether a part of the history is missing. A shallow history
// may give another merge base.
func (r *history) isShallow() bool { return object.FileExists(filepath.Join(r.Mirror.Dir, "shallow")) }

// MergeBase returns the best common ancestor, or reconciler.ErrNotFound.
func (r *history) MergeBase(ctx context.Context, a, b string) (string, error) {
	if err := r.RequireCommits(a, b); err != nil {
		return "", fmt.Errorf("merge base: %w", err)
	}
	pair := [2]string{a, b}
	if base, ok := r.bases.Get(pair); ok {
		return base, nil
	}
	out, code, err := r.git(ctx, "merge-base", a, b)
	if err != nil {
		return "", fmt.Errorf("merge base of %s and %s: %w", a, b, err)
	}
	if code == 1 {
		return "", fmt.Errorf("%s and %s have no common history: %w", a, b, reconciler.ErrNotFound)
	}
	h, err := object.ParseID(strings.TrimSpace(out))
	if err != nil || code != 0 {
		return "", fmt.Errorf("merge base of %s and %s: git ended with status %d", a, b, code)
	}
	if !r.isShallow() {
		r.bases.Add(pair, h.String(), 10)
	}
	return h.String(), nil
}
