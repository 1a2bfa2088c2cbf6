package gitrepo

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
	"berth/schema"
)

// history visits the commits reachable from tip until visit returns true. Each
// commit is visited once, the youngest committer time first. Wrong times change
// only the order. The walk ends at the boundary of a shallow history.
func (r *Repo) history(ctx context.Context, tip plumbing.Hash, visit func(object.Commit) (stop bool, err error)) error {
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
		for _, p := range r.past(c) {
			if seen[p] {
				continue
			}
			seen[p] = true
			parent, err := r.Commit(p)
			if err != nil {
				r.Damaged("walk history", err)
				return err
			}
			heap.Push(&queue, parent)
		}
	}
	return nil
}

// past returns the parents of a commit that belong to the estate's history.
func (r *Repo) past(c object.Commit) []plumbing.Hash {
	if r.composer == nil {
		return c.Parents
	}
	return r.composer.Parents(c)
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

// VerifyInForce checks that main's history contains every file of the in-force
// commit at the same path as a plain file. Otherwise the error is
// reconciler.ErrRewritten: another process wrote to the branch, or main was
// rewritten. The cost follows the difference to main, unless the check fails.
func (r *Repo) VerifyInForce(ctx context.Context, main, inForce string) error {
	a, err := r.Root(main)
	if err != nil {
		return err
	}
	b, err := r.Root(inForce)
	if err != nil {
		return err
	}
	changes, err := r.DiffTrees(ctx, a, b)
	if err != nil {
		return fmt.Errorf("verify %s: %w", inForce, err)
	}
	open := map[string]object.Entry{}
	for _, c := range changes {
		if c.To.ID.IsZero() {
			continue // a held new file: it is missing in force
		}
		// A path that main cannot compare, such as an unreadable part, is one change
		// of the whole directory.
		err := r.Walk(ctx, c.Path, c.To, object.MaxDepth, func(path string, e object.Entry) error {
			switch {
			case e.IsDir():
			case e.Mode != schema.ModePlain || len(open) > object.MaxFiles:
				return fmt.Errorf("%q is not a plain file, or there are more than %d: %w", path, object.MaxFiles, reconciler.ErrRewritten)
			default:
				open[path] = e
			}
			return nil
		})
		if errors.Is(err, reconciler.ErrUnreadable) {
			err = fmt.Errorf("%w: %w", reconciler.ErrRewritten, err) // Berth never writes such a tree
		}
		if err != nil {
			return fmt.Errorf("in force at %s: %w", inForce, err)
		}
	}
	tip, err := object.ParseID(main)
	if err != nil {
		return err
	}
	if len(open) == 0 {
		return nil
	}
	err = r.history(ctx, tip, func(c object.Commit) (bool, error) {
		for path, want := range open {
			got, err := r.Lookup(c.Tree, path)
			if errors.Is(err, reconciler.ErrUnreadable) {
				continue // this commit has no file there
			}
			if err != nil {
				return true, err
			}
			if got.ID == want.ID && got.Mode == want.Mode {
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
