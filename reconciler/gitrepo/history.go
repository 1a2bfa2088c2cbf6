package gitrepo

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
)

// history reads the commits of a mirror, and runs git programs on the scratch
// store, which borrows the objects of the mirror. It is safe for concurrent use.
type history struct {
	*object.Reader
	checkGit func() error                        // returns an error if git cannot be used; checked once
	branches func() []string                     // commits that must be readable; empty for a local view
	parents  func(object.Commit) []plumbing.Hash // parents of a commit that belong to the estate's history
	merged   atomic.Int64                        // merges since the scratch store was created

	merges  object.Cache[[2]string, merge]  // by base and head
	bases   object.Cache[[2]string, string] // best common ancestor of two commits
	patches object.Cache[string, string]    // by the arguments of git
}

func newHistory(r *object.Reader) *history {
	return &history{
		Reader: r, checkGit: sync.OnceValue(object.Check),
		branches: func() []string { return nil },
		parents:  func(c object.Commit) []plumbing.Hash { return c.Parents },
	}
}

// walk visits the commits reachable from tip until visit returns true. Each
// commit is visited once, the youngest committer time first. Wrong times change
// only the order. The walk ends at the boundary of a shallow history.
func (r *history) walk(ctx context.Context, tip plumbing.Hash, visit func(object.Commit) (stop bool, err error)) error {
	shallow, err := r.Mirror.Shallow()
	if err != nil {
		return err
	}
	first, err := r.Commit(tip)
	if err != nil {
		return err
	}
	seen := map[plumbing.Hash]bool{tip: true}
	queue := youngest{first}
	for len(queue) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := heap.Pop(&queue).(object.Commit)
		if stop, err := visit(c); stop || err != nil {
			return err
		}
		if slices.Contains(shallow, c.ID) {
			continue
		}
		if err := r.pushParents(&queue, c, seen); err != nil {
			return err
		}
	}
	return nil
}

// pushParents adds the parents of a commit that were not seen before.
func (r *history) pushParents(queue *youngest, c object.Commit, seen map[plumbing.Hash]bool) error {
	for _, p := range r.parents(c) {
		if seen[p] {
			continue
		}
		seen[p] = true
		parent, err := r.Commit(p)
		if err != nil {
			r.Damaged("walk history", err)
			return err
		}
		heap.Push(queue, parent)
	}
	return nil
}

// youngest is a heap of commits, the youngest first.
type youngest []object.Commit

func (y youngest) Len() int           { return len(y) }
func (y youngest) Less(i, j int) bool { return y[i].When > y[j].When }
func (y youngest) Swap(i, j int)      { y[i], y[j] = y[j], y[i] }
func (y *youngest) Push(x any)        { *y = append(*y, x.(object.Commit)) }
func (y *youngest) Pop() any {
	last := len(*y) - 1
	c := (*y)[last]
	*y = (*y)[:last]
	return c
}

// IsAncestor reports whether b descends from a, or is a. It visits the youngest
// commits first, so that the usual answer is found early.
func (r *history) IsAncestor(ctx context.Context, a, b plumbing.Hash) (bool, error) {
	found := false
	err := r.walk(ctx, b, func(c object.Commit) (bool, error) {
		found = c.ID == a
		return found, nil
	})
	return found, err
}

// Log lists the commits reachable from to and not from from. It lists at most
// limit commits, newest first, first parents only. An empty from excludes
// nothing.
func (r *history) Log(ctx context.Context, from, to string, limit int) ([]reconciler.Commit, error) {
	ids := []string{to}
	if from != "" {
		ids = append(ids, from)
	}
	if err := r.RequireCommits(ids...); err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	if limit <= 0 {
		return nil, nil
	}
	if commits, isWhole := r.firstParents(from, to, limit); isWhole {
		return commits, nil
	}
	args := []string{"rev-list", "--first-parent", "--max-count=" + strconv.Itoa(limit), to}
	if from != "" {
		args = append(args, "^"+from)
	}
	out, code, err := r.git(ctx, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("git rev-list ended with status %d", code)
	}
	if err != nil {
		return nil, fmt.Errorf("log %s..%s: %w", from, to, err)
	}
	var commits []reconciler.Commit
	for id := range strings.FieldsSeq(out) {
		h, err := object.ParseID(id)
		if err != nil {
			return nil, err
		}
		c, err := r.Commit(h)
		if err != nil {
			return nil, err
		}
		commits = append(commits, c.Public())
	}
	return commits, nil
}

// firstParents lists at most limit first parents of to, down to from. isWhole is false if git has to list them: a commit
// cannot be read, or from was not met, so that one of the list may be before from by a merge.
func (r *history) firstParents(from, to string, limit int) (commits []reconciler.Commit, isWhole bool) {
	shallow, err := r.Mirror.Shallow()
	if err != nil {
		return nil, false
	}
	for id := plumbing.NewHash(to); id.String() != from; {
		if len(commits) == limit {
			return commits, from == ""
		}
		c, err := r.Commit(id)
		if err != nil {
			return nil, false
		}
		commits = append(commits, c.Public())
		if len(c.Parents) == 0 || slices.Contains(shallow, id) {
			return commits, from == ""
		}
		id = c.Parents[0]
	}
	return commits, true
}

// LastChange returns when the newest commit up to one was made that changed a path. Zero: none did, or it is not in a
// shallow history. It follows first parents only, and may visit all of them.
func (r *history) LastChange(ctx context.Context, commit, path string) (time.Time, error) {
	if err := r.RequireCommits(commit); err != nil {
		return time.Time{}, fmt.Errorf("last change: %w", err)
	}
	out, code, err := r.git(ctx, "rev-list", "--first-parent", "--max-count=1", commit, "--", path)
	if err == nil && code != 0 {
		err = fmt.Errorf("git rev-list ended with status %d", code)
	}
	if err != nil || out == "" {
		return time.Time{}, err
	}
	id, err := object.ParseID(strings.TrimSpace(out))
	if err != nil {
		return time.Time{}, err
	}
	shallow, err := r.Mirror.Shallow()
	if err != nil || slices.Contains(shallow, id) {
		return time.Time{}, err
	}
	c, err := r.Commit(id)
	return c.Public().When, err
}

// Between returns the commits after from up to to, oldest first, first parents
// only, at most limit of them.
func (r *history) Between(ctx context.Context, from, to plumbing.Hash, limit int) ([]plumbing.Hash, error) {
	out, code, err := r.git(ctx, "rev-list", "--first-parent", to.String(), "^"+from.String())
	if err == nil && code != 0 {
		err = fmt.Errorf("git rev-list ended with status %d", code)
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Fields(out)
	lines = lines[max(0, len(lines)-limit):]
	ids := make([]plumbing.Hash, 0, len(lines))
	for _, line := range slices.Backward(lines) {
		h, err := object.ParseID(line)
		if err != nil {
			return nil, err
		}
		ids = append(ids, h)
	}
	return ids, nil
}

// RequireCommits returns an error unless all ids are commits that git programs can
// read. It also keeps anything but 40 hex digits off git's command line.
func (r *history) RequireCommits(ids ...string) error {
	for _, id := range ids {
		h, err := object.ParseID(id)
		if err != nil {
			return err
		}
		if _, err := r.Commit(h); err != nil {
			return err
		}
		if !r.Current(h) {
			return fmt.Errorf("commit %s: %w any more; fetch it again", h, reconciler.ErrNotFound)
		}
	}
	return nil
}

// merge is the deterministic result of merging two commits. Open pull requests
// are planned far more often than they or main change, so results are cached.
type merge struct {
	tree      string // "" after a conflict
	conflicts []string
}

// mergeWeight is the weight of a cached merge: a generation holds about a
// thousand.
const mergeWeight = 99
