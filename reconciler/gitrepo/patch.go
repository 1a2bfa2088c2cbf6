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
	// maxPatch bounds a patch, in bytes.
	maxPatch = 8 << 20
	// maxPatchPaths bounds how many files a patch is made of; their names go on
	// git's command line.
	maxPatchPaths = 2000
	// patchUnit is how many bytes of patches are counted as one entry of what is
	// known.
	patchUnit = 256
)

// Patch is what head changes since it left base, as the unified diff with three
// lines of context that forges show of a pull request, of the estate's files
// alone, and only of those that are in the merge of the two as they are in head:
// of others the lines are elsewhere once merged. It is for finding lines, and
// never applied: of more than 2,000 files, or of 8 MiB, what is left out is a
// whole file.
func (r *merger) Patch(ctx context.Context, base, head string) (string, error) {
	return r.PatchMerged(ctx, base, head, func() (string, []string, error) { return r.Merge(ctx, base, head) })
}

// patchMerged is Patch, of files that are in what merge makes as they are in head.
func (r *merger) PatchMerged(ctx context.Context, base, head string, merge func() (tree string, conflicts []string, err error)) (string, error) {
	from, err := r.MergeBase(ctx, base, head)
	if errors.Is(err, reconciler.ErrNotFound) && r.Known(base, head) == nil {
		return "", nil // no common history: nothing that a forge would show beside it
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
	root, err := r.Root(merged)
	if err != nil {
		return "", err
	}
	// A large file has no lines that anybody looks for.
	args := []string{"-c", "core.bigFileThreshold=1m", "-c", "core.quotePath=false", "diff-tree", "-r", "-p", "-M", "--no-color", "--no-ext-diff", "--no-textconv", "--full-index", from, head, "--"}
	n := 0
	for _, c := range ours {
		top, _, _ := strings.Cut(c.Path, "/")
		if top != "platform" && top != object.TenantsDir || n == maxPatchPaths {
			continue
		}
		if c.To != "" { // what goes has no lines, and may be what another was before it was renamed
			e, err := r.Lookup(root, c.Path)
			if err != nil && !errors.Is(err, reconciler.ErrUnreadable) {
				return "", err
			}
			if object.IDString(e.ID) != c.To {
				continue
			}
		}
		n++
		args = append(args, ":(literal)"+c.Path)
	}
	if n == 0 {
		return "", nil
	}
	key := strings.Join(args, "\x00")
	if text, ok := r.patches.Get(key); ok {
		return text, nil // it is planned again far more often than it changes
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
