package gitrepo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
)

// change is a PathChange with modes: a file may differ in nothing else.
type change struct {
	path     string
	from, to entry // zero where the path is not there
}

// Diff lists the paths that differ between two commits or trees, in order. A
// path whose mode alone changed has the same blob on both sides. Where one part
// of the estate changes in more than 100,000 places, or deeper than 64
// directories, the rest of it is given by its directory's path and trees.
func (r *Repo) Diff(ctx context.Context, from, to string) ([]reconciler.PathChange, error) {
	a, err := r.root(from)
	if err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	b, err := r.root(to)
	if err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	changes, err := r.diffTrees(ctx, a, b)
	if err != nil {
		return nil, fmt.Errorf("diff %s..%s: %w", from, to, err)
	}
	out := make([]reconciler.PathChange, len(changes))
	for i, c := range changes {
		out[i] = reconciler.PathChange{Path: c.path, From: idString(c.from.id), To: idString(c.to.id)}
	}
	return out, nil
}

// diffTrees compares two trees by hash; equal subtrees are not read.
func (r *Repo) diffTrees(ctx context.Context, a, b plumbing.Hash) ([]change, error) {
	d := differ{repo: r, budget: map[string]int{}}
	if err := d.trees(ctx, "", a, b, 0); err != nil {
		return nil, err
	}
	slices.SortFunc(d.out, func(x, y change) int { return cmp.Compare(x.path, y.path) })
	return d.out, nil
}

type differ struct {
	repo   *Repo
	out    []change
	budget map[string]int // changes found, by part
}

// trees compares two directories. The zero hash is one that is not there.
func (d *differ) trees(ctx context.Context, path string, a, b plumbing.Hash, depth int) error {
	if a == b {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	before, err := d.entries(path, a)
	if err != nil {
		return err
	}
	after, err := d.entries(path, b)
	if err != nil {
		return err
	}
	for name, x := range before {
		if err := d.pair(ctx, join(path, name), x, after[name], depth); err != nil {
			return err
		}
	}
	for name, y := range after {
		if _, both := before[name]; !both {
			if err := d.pair(ctx, join(path, name), entry{}, y, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *differ) entries(path string, h plumbing.Hash) (map[string]entry, error) {
	list, err := d.repo.tree(h)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if name, ok := twice(list); ok {
		return nil, fmt.Errorf("%s: %w: %q stands there twice", path, errTree, name)
	}
	out := make(map[string]entry, len(list))
	for _, e := range list {
		out[pathName(e.name)] = e
	}
	return out, nil
}

// pair compares what stands at one path.
func (d *differ) pair(ctx context.Context, path string, x, y entry, depth int) error {
	if x.id == y.id && x.mode == y.mode {
		return nil
	}
	part := partOf(path)
	if (x.dir() || y.dir()) && depth < maxDepth && d.budget[part] < maxFiles {
		// What is a directory on one side and a file on the other is both: the
		// file itself, and all that is below.
		var sub [2]plumbing.Hash
		for i, e := range []*entry{&x, &y} {
			if e.dir() {
				sub[i], *e = e.id, entry{}
			}
		}
		if err := d.trees(ctx, path, sub[0], sub[1], depth+1); err != nil {
			return err
		}
		if x == y {
			return nil
		}
	}
	d.budget[part]++
	d.out = append(d.out, change{path, x, y})
	return nil
}

// partOf is the part of an estate that a path belongs to.
func partOf(path string) string {
	first, rest, _ := strings.Cut(path, "/")
	if first != tenantsDir {
		return first
	}
	second, _, _ := strings.Cut(rest, "/")
	return first + "/" + second
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
