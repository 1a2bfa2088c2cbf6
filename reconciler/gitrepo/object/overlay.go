package object

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/schema"
)

// Overlay is a set of changes to a tree. Each change puts a plain file or a whole
// directory at a path, or removes the path. Applying it reads and builds only the
// directories on those paths.
type Overlay struct {
	put      plumbing.Hash // blob of a plain file, or tree; zero: remove
	mode     uint32        // mode of put
	set      bool          // this path itself is changed
	children map[string]*Overlay
}

// at returns the node of a path and creates it if it is missing.
func (o *Overlay) at(path string) *Overlay {
	for name := range strings.SplitSeq(path, "/") {
		if o.children == nil {
			o.children = map[string]*Overlay{}
		}
		next := o.children[name]
		if next == nil {
			next = &Overlay{}
			o.children[name] = next
		}
		o = next
	}
	return o
}

// File puts a blob at a path.
func (o *Overlay) File(path string, blob plumbing.Hash) {
	n := o.at(path)
	n.put, n.mode, n.set = blob, schema.ModePlain, true
}

// Directory puts a tree at a path.
func (o *Overlay) Directory(path string, tree plumbing.Hash) {
	n := o.at(path)
	n.put, n.mode, n.set = tree, ModeDir, true
}

// Remove removes the file or directory at path.
func (o *Overlay) Remove(path string) {
	n := o.at(path)
	n.put, n.mode, n.set = plumbing.ZeroHash, 0, true
}

// ApplyOverlay applies o to tree and adds the new trees to set. It returns the
// zero hash for an empty result, since Git has no empty directories.
func (r *Reader) ApplyOverlay(tree plumbing.Hash, o *Overlay, set *Batch) (plumbing.Hash, error) {
	entries, err := r.Tree(tree)
	if err != nil {
		return tree, err
	}
	// One pass before and one after keep the cost linear: a directory may hold tens
	// of thousands of entries and held changes.
	olds := make(map[string]Entry, len(o.children))
	replaced := make(map[string]bool, len(o.children))
	for _, e := range entries {
		name := PathName(e.Name)
		if o.children[name] == nil {
			continue
		}
		if _, duplicate := olds[name]; duplicate { // only in a malformed tree
			replaced[name] = true
		}
		olds[name] = e
	}
	var put []Entry
	for _, name := range slices.Sorted(maps.Keys(o.children)) {
		next, err := r.applyChild(name, olds[name], o.children[name], set)
		if err != nil {
			return tree, err
		}
		if next == olds[name] && !replaced[name] {
			continue
		}
		replaced[name] = true
		if !next.ID.IsZero() {
			put = append(put, next)
		}
	}
	if len(replaced) == 0 {
		return tree, nil
	}
	entries = append(slices.DeleteFunc(entries, func(e Entry) bool { return replaced[PathName(e.Name)] }), put...)
	if len(entries) == 0 {
		return plumbing.ZeroHash, nil
	}
	return set.Add(plumbing.TreeObject, EncodeTree(entries)), nil
}

// applyChild returns the entry for one name after o is applied; the zero entry if
// nothing is left.
func (r *Reader) applyChild(name string, old Entry, o *Overlay, set *Batch) (Entry, error) {
	base := old.ID
	if o.set || !old.IsDir() {
		base = plumbing.ZeroHash // the entries below are replaced or removed too
	}
	below := base
	if len(o.children) > 0 {
		var err error
		if below, err = r.ApplyOverlay(base, o, set); err != nil {
			return old, err
		}
	}
	next := Entry{Name: name}
	switch {
	case !below.IsZero() && !o.put.IsZero():
		return old, fmt.Errorf("%q would be both a file and a directory", name)
	case !o.put.IsZero():
		next.Mode, next.ID = o.mode, o.put
	case !below.IsZero():
		next.Mode, next.ID = ModeDir, below
	case !o.set && !old.IsDir():
		return old, nil // the path below a file does not exist
	default:
		return Entry{}, nil
	}
	if old.Name != "" && next.Mode == old.Mode {
		next.Name = old.Name
	} else if !plainName(name) {
		return old, fmt.Errorf("%q is not a name Berth writes", name)
	}
	return next, nil
}
