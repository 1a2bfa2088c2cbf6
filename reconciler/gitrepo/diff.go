package gitrepo

import (
	"cmp"
	"context"
	"errors"
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
// path whose mode alone changed has the same blob on both sides. A name that
// stands twice in a directory has an id that names nothing. Where one part of
// the estate changes in more than 100,000 places, or deeper than 64
// directories, or cannot be parsed, the rest of it is given by its directory's
// path and trees. So nothing in one part hides what changes in another.
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
	budget map[string]int // places that differ, directories included, by part
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
	// In order of name, so that where a budget ends is the same each time.
	for len(before) > 0 || len(after) > 0 {
		var x, y entry
		switch {
		case len(after) == 0 || len(before) > 0 && before[0].name < after[0].name:
			x, before = before[0], before[1:]
		case len(before) == 0 || after[0].name < before[0].name:
			y, after = after[0], after[1:]
		default:
			x, y, before, after = before[0], after[0], before[1:], after[1:]
		}
		if x.id == y.id && x.mode == y.mode {
			continue
		}
		if err := d.pair(ctx, join(path, cmp.Or(x.name, y.name)), x, y, depth); err != nil {
			return err
		}
	}
	return nil
}

// entries are those of a directory under the names that stand in paths, each name
// once, in order of name. Nobody may change them.
func (d *differ) entries(path string, h plumbing.Hash) ([]entry, error) {
	list, err := d.repo.listed(h)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	plain := true // as most are; Git's order takes a directory's name with a slash
	for i, e := range list {
		plain = plain && pathName(e.name) == e.name && (i == 0 || list[i-1].name < e.name)
	}
	if plain {
		return list, nil
	}
	list = slices.Clone(list)
	for i := range list {
		list[i].name = pathName(list[i].name)
	}
	slices.SortStableFunc(list, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	once := list[:0]
	for _, e := range list {
		if last := len(once) - 1; last >= 0 && once[last].name == e.name {
			both := slices.Concat(once[last].id[:], e.id[:])
			once[last] = entry{name: e.name, id: hashObject(plumbing.AnyObject, both)}
			continue
		}
		once = append(once, e)
	}
	return once, nil
}

// pair compares what stands at one path and differs.
func (d *differ) pair(ctx context.Context, path string, x, y entry, depth int) error {
	part := partOf(path)
	d.budget[part]++
	if (x.dir() || y.dir()) && depth < maxDepth && d.budget[part] <= maxFiles {
		// What is a directory on one side and a file on the other is both: the
		// file itself, and all that is below.
		var sub [2]plumbing.Hash
		before, after := x, y
		for i, e := range []*entry{&x, &y} {
			if e.dir() {
				sub[i], *e = e.id, entry{}
			}
		}
		err := d.trees(ctx, path, sub[0], sub[1], depth+1)
		switch {
		case errors.Is(err, reconciler.ErrUnreadable) && path != tenantsDir:
			x, y = before, after // told as a whole
		case err != nil:
			return err
		case x == y:
			return nil
		}
	}
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
