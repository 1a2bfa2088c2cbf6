package gitrepo

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/schema"
)

// overlay is a set of changes to a tree: at each path a plain file or a whole
// directory to put, or nothing. Applying it reads and builds only the directories on those paths.
type overlay struct {
	put      plumbing.Hash // blob of a plain file, or tree
	mode     uint32        // of put
	set      bool          // something is said about this path itself
	children map[string]*overlay
}

// at is the node of a path, made where it is missing.
func (o *overlay) at(path string) *overlay {
	for name := range strings.SplitSeq(path, "/") {
		if o.children == nil {
			o.children = map[string]*overlay{}
		}
		next := o.children[name]
		if next == nil {
			next = &overlay{}
			o.children[name] = next
		}
		o = next
	}
	return o
}

// file puts a blob at path.
func (o *overlay) file(path string, blob plumbing.Hash) {
	n := o.at(path)
	n.put, n.mode, n.set = blob, schema.ModePlain, true
}

// directory puts a whole tree at path.
func (o *overlay) directory(path string, tree plumbing.Hash) {
	n := o.at(path)
	n.put, n.mode, n.set = tree, modeDir, true
}

// remove takes away whatever stands at path.
func (o *overlay) remove(path string) {
	n := o.at(path)
	n.put, n.mode, n.set = plumbing.ZeroHash, 0, true
}

// applyOverlay builds tree with o over it. New trees go into set. The result is
// the zero hash where nothing is left, since Git has no empty directories.
func (r *Repo) applyOverlay(tree plumbing.Hash, o *overlay, set *objectSet) (plumbing.Hash, error) {
	entries, err := r.tree(tree)
	if err != nil {
		return tree, err
	}
	// One pass before and one after, however many children there are: a
	// directory may hold, and have held back, tens of thousands.
	olds := make(map[string]entry, len(o.children))
	replaced := make(map[string]bool, len(o.children))
	for _, e := range entries {
		name := pathName(e.name)
		if o.children[name] == nil {
			continue
		}
		if _, twice := olds[name]; twice { // in a malformed tree
			replaced[name] = true
		}
		olds[name] = e
	}
	var put []entry
	for _, name := range slices.Sorted(maps.Keys(o.children)) {
		next, err := r.applyChild(name, olds[name], o.children[name], set)
		if err != nil {
			return tree, err
		}
		if next == olds[name] && !replaced[name] {
			continue
		}
		replaced[name] = true
		if !next.id.IsZero() {
			put = append(put, next)
		}
	}
	if len(replaced) == 0 {
		return tree, nil
	}
	entries = append(slices.DeleteFunc(entries, func(e entry) bool { return replaced[pathName(e.name)] }), put...)
	if len(entries) == 0 {
		return plumbing.ZeroHash, nil
	}
	return set.add(plumbing.TreeObject, encodeTree(entries)), nil
}

// applyChild is what stands at one name once o is applied; an entry without id
// is none.
func (r *Repo) applyChild(name string, old entry, o *overlay, set *objectSet) (entry, error) {
	base := old.id
	if o.set || !old.dir() {
		base = plumbing.ZeroHash // what was below goes with it
	}
	below := base
	if len(o.children) > 0 {
		var err error
		if below, err = r.applyOverlay(base, o, set); err != nil {
			return old, err
		}
	}
	next := entry{name: name}
	switch {
	case !below.IsZero() && !o.put.IsZero():
		return old, fmt.Errorf("%q would be two things at once", name)
	case !o.put.IsZero():
		next.mode, next.id = o.mode, o.put
	case !below.IsZero():
		next.mode, next.id = modeDir, below
	case !o.set && !old.dir():
		return old, nil // nothing below a file could be taken away
	default:
		return entry{}, nil
	}
	if old.name != "" && next.mode == old.mode {
		next.name = old.name
	} else if !plainName(name) {
		return old, fmt.Errorf("%q is not a name Berth writes", name)
	}
	return next, nil
}
