package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
)

const (
	// maxPatch bounds a patch in bytes.
	maxPatch = 8 << 20
	// maxPatchPaths bounds the number of files in a patch, because their names are
	// arguments of git.
	maxPatchPaths = 2000
	// patchUnit is the number of bytes that count as one entry of the cache.
	patchUnit = 256
)

// Patch returns the changes of head since the merge base as a unified diff with
// three lines of context, like the diff of a forge. It contains only files of the
// estate, and only those whose merged version equals the version in head. In
// other files, the lines have other numbers after the merge. The patch serves to
// find lines and is never applied: beyond 2,000 files or 8 MiB, whole files are
// left out.
func (r *history) Patch(ctx context.Context, base, head string) (string, error) {
	return r.PatchMerged(ctx, base, head, func() (string, []string, error) { return r.Merge(ctx, base, head) })
}

// PatchMerged is Patch with the result of merge in place of Merge.
func (r *history) PatchMerged(
	ctx context.Context, base, head string, merge func() (tree string, conflicts []string, err error),
) (string, error) {
	from, err := r.MergeBase(ctx, base, head)
	if errors.Is(err, reconciler.ErrNotFound) && r.RequireCommits(base, head) == nil {
		return "", nil // without common history a forge shows no diff
	}
	if err != nil {
		return "", err
	}
	ours, err := r.Diff(ctx, from, head)
	if err != nil || len(ours) == 0 {
		return "", err
	}
	merged, conflicts, err := merge()
	if err != nil || len(conflicts) > 0 {
		return "", err
	}
	paths, err := r.patchPaths(merged, ours)
	if err != nil || len(paths) == 0 {
		return "", err
	}
	// A diff of a large file is not useful.
	args := []string{"-c", "core.bigFileThreshold=1m", "-c", "core.quotePath=false", "diff-tree", "-r", "-p", "-M", "--no-color",
		"--no-ext-diff", "--no-textconv", "--full-index", from, head, "--"}
	for _, p := range paths {
		args = append(args, ":(literal)"+p)
	}
	key := strings.Join(args, "\x00")
	if text, ok := r.patches.Get(key); ok {
		return text, nil // a pull request is planned far more often than it changes
	}
	out := capped{max: maxPatch}
	if _, err := r.gitTo(ctx, &out, args...); err != nil {
		return "", fmt.Errorf("patch %s...%s: %w", base, head, err)
	}
	text := out.buf.String()
	if out.full {
		text = text[:max(0, strings.LastIndex(text, "\ndiff --git ")+1)]
	}
	r.patches.Add(key, text, (len(key)+len(text))/patchUnit)
	return text, nil
}

// patchPaths returns the changed files of the estate that are the same in the
// merged tree.
func (r *history) patchPaths(merged string, changes []reconciler.PathChange) (paths []string, err error) {
	root, err := r.Root(merged)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		top, _, _ := strings.Cut(c.Path, "/")
		if top != "platform" && top != object.TenantsDir || len(paths) == maxPatchPaths {
			continue
		}
		e, err := r.Lookup(root, c.Path)
		if err != nil && !errors.Is(err, reconciler.ErrUnreadable) {
			return nil, err
		}
		// A deleted file has no lines, and may be the source of a rename.
		if c.To == "" || object.IDString(e.ID) == c.To {
			paths = append(paths, c.Path)
		}
	}
	return paths, nil
}

// capped keeps the first max bytes written to it.
type capped struct {
	max  int
	buf  bytes.Buffer
	full bool
}

func (c *capped) Write(p []byte) (int, error) {
	if room := c.max - c.buf.Len(); room < len(p) {
		c.buf.Write(p[:room])
		c.full = true
	} else {
		c.buf.Write(p)
	}
	return len(p), nil
}
