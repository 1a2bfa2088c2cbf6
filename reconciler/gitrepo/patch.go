package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"berth/reconciler"
)

const (
	// maxPatch bounds a patch, in bytes.
	maxPatch = 8 << 20
	// maxPatchPaths bounds how many files a patch is made of; their names go on
	// git's command line.
	maxPatchPaths = 2000
)

// Patch is what head changes since it left base, as the unified diff with three
// lines of context that forges show of a pull request, of the estate's files
// alone. Files that base changed since as well are left out, as their lines are
// elsewhere once merged. It is for finding lines, and never applied: of more
// than 2,000 files, or of 8 MiB, what is left out is a whole file.
func (r *Repo) Patch(ctx context.Context, base, head string) (string, error) {
	from, err := r.MergeBase(ctx, base, head)
	if errors.Is(err, reconciler.ErrNotFound) && r.known(base, head) == nil {
		return "", nil // no common history: nothing that a forge would show beside it
	}
	if err != nil {
		return "", err
	}
	ours, err := r.Diff(ctx, from, head)
	if err != nil {
		return "", err
	}
	theirs, err := r.Diff(ctx, from, base)
	if err != nil {
		return "", err
	}
	moved := make(map[string]bool, len(theirs))
	for _, c := range theirs {
		moved[c.Path] = true
	}
	// A large file has no lines that anybody looks for.
	args := []string{"-c", "core.bigFileThreshold=1m", "-c", "core.quotePath=false", "diff-tree", "-r", "-p", "-M", "--no-color", "--no-ext-diff", "--no-textconv", "--full-index", from, head, "--"}
	n := 0
	for _, c := range ours {
		top, _, _ := strings.Cut(c.Path, "/")
		if moved[c.Path] || top != "platform" && top != tenantsDir || n == maxPatchPaths {
			continue
		}
		n++
		args = append(args, ":(literal)"+c.Path)
	}
	if n == 0 {
		return "", nil
	}
	out := capped{max: maxPatch}
	if _, err := r.gitTo(ctx, &out, args...); err != nil {
		return "", fmt.Errorf("patch %s...%s: %w", base, head, err)
	}
	text := out.buf.String()
	if out.full {
		text = text[:max(0, strings.LastIndex(text, "\ndiff --git ")+1)]
	}
	return text, nil
}

// Patch is Patch within the platform's repository, which head is a commit of.
func (c *Composed) Patch(ctx context.Context, base, head string) (string, error) {
	h, err := parseID(base)
	if err != nil {
		return "", fmt.Errorf("patch: %w", err)
	}
	if st, ok := c.composer.stateOf(h); ok {
		base = st.platform.String()
	}
	return c.Repo.Patch(ctx, base, head)
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
