package gitrepo

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/schema"
)

// history visits the commits reachable from tip, each once, by their
// committer's time with the youngest first, until visit says stop. Times may
// lie; then the order is another, and the set is the same. Where a shallow
// history ends, it ends.
func (r *Repo) history(ctx context.Context, tip plumbing.Hash, visit func(commit) (stop bool, err error)) error {
	shallow, err := r.mirror.shallow()
	if err != nil {
		return err
	}
	first, err := r.commit(tip)
	if err != nil {
		return err
	}
	seen := map[plumbing.Hash]bool{tip: true}
	queue := youngest{first}
	for len(queue) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := heap.Pop(&queue).(commit)
		if stop, err := visit(c); stop || err != nil {
			return err
		}
		if slices.Contains(shallow, c.id) {
			continue
		}
		for _, p := range r.past(c) {
			if seen[p] {
				continue
			}
			seen[p] = true
			parent, err := r.commit(p)
			if err != nil {
				r.damaged("walk history", err)
				return err
			}
			heap.Push(&queue, parent)
		}
	}
	return nil
}

// past are the parents of a commit that the estate's history goes on with: all,
// except that what a tenant's own repository holds is history of nothing but
// the tenant's directory, and stands in the composed commits.
func (r *Repo) past(c commit) []plumbing.Hash {
	if r.composer == nil {
		return c.parents
	}
	if l, ok := r.composer.link(c.id); ok && l.tenant != "" {
		return c.parents[:1]
	}
	return c.parents
}

// youngest is a heap of commits.
type youngest []commit

func (y youngest) Len() int           { return len(y) }
func (y youngest) Less(i, j int) bool { return y[i].when > y[j].when }
func (y youngest) Swap(i, j int)      { y[i], y[j] = y[j], y[i] }
func (y *youngest) Push(x any)        { *y = append(*y, x.(commit)) }
func (y *youngest) Pop() any {
	last := len(*y) - 1
	c := (*y)[last]
	*y = (*y)[:last]
	return c
}

// VerifyInForce says whether every file of the in-force commit is one that
// main's history carries at that path, as a plain file. What is not is
// reconciler.ErrRewritten: someone else wrote to the branch, or to main's past.
// The cost follows what differs from main, unless something is wrong.
func (r *Repo) VerifyInForce(ctx context.Context, main, inForce string) error {
	a, err := r.root(main)
	if err != nil {
		return err
	}
	b, err := r.root(inForce)
	if err != nil {
		return err
	}
	changes, err := r.diffTrees(ctx, a, b)
	if err != nil {
		return fmt.Errorf("verify %s: %w", inForce, err)
	}
	open := map[string]entry{}
	for _, c := range changes {
		if c.to.id.IsZero() {
			continue // held back: a file is missing, none is added
		}
		// Where main cannot be compared, such as in a part that cannot be read,
		// the whole directory is told.
		err := r.walk(ctx, c.path, c.to, maxDepth, func(path string, e entry) error {
			switch {
			case e.dir():
			case e.mode != schema.ModePlain || len(open) > maxFiles:
				return fmt.Errorf("%q is not a plain file, or there are more than %d: %w", path, maxFiles, reconciler.ErrRewritten)
			default:
				open[path] = e
			}
			return nil
		})
		if errors.Is(err, reconciler.ErrUnreadable) {
			err = fmt.Errorf("%w: %w", reconciler.ErrRewritten, err) // Berth writes no such tree
		}
		if err != nil {
			return fmt.Errorf("in force at %s: %w", inForce, err)
		}
	}
	tip, err := parseID(main)
	if err != nil {
		return err
	}
	if len(open) == 0 {
		return nil
	}
	err = r.history(ctx, tip, func(c commit) (bool, error) {
		for path, want := range open {
			got, err := r.lookup(c.tree, path)
			if errors.Is(err, reconciler.ErrUnreadable) {
				continue // it carries nothing there
			}
			if err != nil {
				return true, err
			}
			if got.id == want.id && got.mode == want.mode {
				delete(open, path)
			}
		}
		return len(open) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("verify %s: %w", inForce, err)
	}
	for path := range open {
		return fmt.Errorf("in force at %s: %d files such as %q are not of main's history: %w", inForce, len(open), path, reconciler.ErrRewritten)
	}
	return nil
}
