package object

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

// change is a PathChange with modes, because only the mode of a file may differ.
type change struct {
	Path     string
	from, To Entry // zero if the path does not exist
}

// Diff lists the paths that differ between two commits or trees, in order. If
// only the mode of a path changed, both blobs are equal. A name that occurs twice
// in a directory gets an id of no object. Diff reports the directory with its
// tree ids if a part cannot be parsed, is deeper than 64 directories, or changes
// in more than 100,000 places. So one part cannot hide changes in another.
func (r *Reader) Diff(ctx context.Context, from, to string) ([]reconciler.PathChange, error) {
	a, err := r.Root(from)
	if err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	b, err := r.Root(to)
	if err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	changes, err := r.DiffTrees(ctx, a, b)
	if err != nil {
		return nil, fmt.Errorf("diff %s..%s: %w", from, to, err)
	}
	out := make([]reconciler.PathChange, len(changes))
	for i, c := range changes {
		out[i] = reconciler.PathChange{Path: c.Path, From: IDString(c.from.ID), To: IDString(c.To.ID)}
	}
	return out, nil
}

// DiffTrees compares two trees by hash; equal subtrees are not read.
func (r *Reader) DiffTrees(ctx context.Context, a, b plumbing.Hash) ([]change, error) {
	d := Differ{Repo: r, Budget: map[string]int{}}
	if err := d.Compare(ctx, "", a, b, 0); err != nil {
		return nil, err
	}
	slices.SortFunc(d.Out, func(x, y change) int { return cmp.Compare(x.Path, y.Path) })
	return d.Out, nil
}

// Differ compares trees.
type Differ struct {
	Repo   *Reader
	Out    []change
	Budget map[string]int // differing paths by part, directories included
}

// Compare compares two directories. The zero hash is a directory that does not
// exist.
func (d *Differ) Compare(ctx context.Context, path string, a, b plumbing.Hash, depth int) error {
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
	// The order makes the path where a budget ends deterministic.
	for len(before) > 0 || len(after) > 0 {
		var x, y Entry
		switch {
		case len(after) == 0 || len(before) > 0 && before[0].Name < after[0].Name:
			x, before = before[0], before[1:]
		case len(before) == 0 || after[0].Name < before[0].Name:
			y, after = after[0], after[1:]
		default:
			x, y, before, after = before[0], after[0], before[1:], after[1:]
		}
		if x.ID == y.ID && x.Mode == y.Mode {
			continue
		}
		if err := d.pair(ctx, Join(path, cmp.Or(x.Name, y.Name)), x, y, depth); err != nil {
			return err
		}
	}
	return nil
}

// entries returns the entries of a directory with their path names, each name
// once, in order of name. The caller must not modify them.
func (d *Differ) entries(path string, h plumbing.Hash) ([]Entry, error) {
	list, err := d.Repo.Entries(h)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	plain := true // usual case; Git compares a directory's name with a trailing slash
	for i, e := range list {
		plain = plain && PathName(e.Name) == e.Name && (i == 0 || list[i-1].Name < e.Name)
	}
	if plain {
		return list, nil
	}
	list = slices.Clone(list)
	for i := range list {
		list[i].Name = PathName(list[i].Name)
	}
	slices.SortStableFunc(list, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	once := list[:0]
	for _, e := range list {
		if last := len(once) - 1; last >= 0 && once[last].Name == e.Name {
			both := slices.Concat(once[last].ID[:], e.ID[:])
			once[last] = Entry{Name: e.Name, ID: Hash(plumbing.AnyObject, both)}
			continue
		}
		once = append(once, e)
	}
	return once, nil
}

// pair compares two different entries at one path.
func (d *Differ) pair(ctx context.Context, path string, x, y Entry, depth int) error {
	part := partOf(path)
	d.Budget[part]++
	if (x.IsDir() || y.IsDir()) && depth < MaxDepth && d.Budget[part] <= MaxFiles {
		// A path that changes between directory and file is reported as the file and
		// as every path in the directory.
		var sub [2]plumbing.Hash
		before, after := x, y
		for i, e := range []*Entry{&x, &y} {
			if e.IsDir() {
				sub[i], *e = e.ID, Entry{}
			}
		}
		err := d.Compare(ctx, path, sub[0], sub[1], depth+1)
		switch {
		case errors.Is(err, reconciler.ErrUnreadable) && path != TenantsDir:
			x, y = before, after // report the whole directory
		case err != nil:
			return err
		case x == y:
			return nil
		}
	}
	d.Out = append(d.Out, change{path, x, y})
	return nil
}

// partOf returns the part of the estate that a path belongs to.
func partOf(path string) string {
	first, rest, _ := strings.Cut(path, "/")
	if first != TenantsDir {
		return first
	}
	second, _, _ := strings.Cut(rest, "/")
	return first + "/" + second
}

// Join appends a name to a directory of a tree; "" is the root.
func Join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
