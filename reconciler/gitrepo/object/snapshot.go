package object

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/schema"
)

const (
	// MaxFiles and MaxDepth bound one part of an estate. So a tree that refers to
	// itself many times affects its owner only.
	MaxFiles = 100_000
	MaxDepth = 64
)

// TenantsDir is the directory whose entries are each a part of the estate.
const TenantsDir = "tenants"

// snapshot is one tree, read on demand. It holds no file contents.
type snapshot struct {
	repo  *Reader
	parts []schema.Part // in order of name
	at    []partAt      // of the same parts
}

// partAt is a part and its entry in the tree.
type partAt struct {
	schema.Part
	entry Entry
	bad   error // this part is unreadable; other parts are not affected
}

// Snapshot returns the tree of a commit or tree id.
func (r *Reader) Snapshot(_ context.Context, id string) (schema.Snapshot, error) {
	root, err := r.Root(id)
	if err != nil {
		return nil, fmt.Errorf("snapshot of %s: %w", id, err)
	}
	if known, ok := r.parts.Get(root); ok {
		return known, nil
	}
	s := &snapshot{repo: r}
	entries, err := r.Tree(root)
	if err != nil {
		return nil, fmt.Errorf("snapshot of %s: %w", id, err)
	}
	for _, e := range entries {
		if e.Name != TenantsDir || !e.IsDir() {
			s.add(PathName(e.Name), e)
			continue
		}
		tenants, err := r.Tree(e.ID)
		if err != nil {
			return nil, fmt.Errorf("read %s of the tree %s: %w", TenantsDir, id, err)
		}
		s.at = slices.Grow(s.at, len(tenants)+len(entries))
		for _, t := range tenants {
			s.add(TenantsDir+"/"+PathName(t.Name), t)
		}
	}
	// With two directories called tenants, one would hide the other.
	if name, ok := duplicateName(entries); ok && name == TenantsDir {
		return nil, fmt.Errorf("snapshot of %s: %w: %q occurs twice", id, reconciler.ErrUnreadable, name)
	}
	s.seal()
	r.parts.Add(root, s, len(s.parts))
	return s, nil
}

func (s *snapshot) add(name string, e Entry) {
	hash := e.ID.String()
	if !e.IsDir() && e.Mode != schema.ModePlain {
		hash = fmt.Sprintf("%o:%s", e.Mode, hash) // a link and a file may have one blob
	}
	s.at = append(s.at, partAt{Part: schema.Part{Name: name, Hash: hash, Dir: e.IsDir()}, entry: e})
}

// seal sorts the parts that were added, and makes parts of one name one unreadable part.
func (s *snapshot) seal() {
	slices.SortStableFunc(s.at, func(a, b partAt) int { return cmp.Compare(a.Name, b.Name) })
	unique := s.at[:0]
	for _, p := range s.at {
		last := len(unique) - 1
		if last < 0 || unique[last].Name != p.Name {
			unique = append(unique, p)
			continue
		}
		unique[last].Hash += "+" + p.entry.ID.String()
		unique[last].bad = fmt.Errorf("%w: %q occurs twice", reconciler.ErrUnreadable, p.Name)
	}
	s.at = unique
	s.parts = make([]schema.Part, len(s.at))
	for i, p := range s.at {
		s.parts[i] = p.Part
	}
}

// treeAt is a tree at a path.
type treeAt struct {
	path string
	tree plumbing.Hash
}

// Parts lists the parts in order of name.
func (s *snapshot) Parts(context.Context) ([]schema.Part, error) { return s.parts, nil }

// Files lists the files of a part in order of path, invalid names included.
func (s *snapshot) Files(ctx context.Context, part schema.Part) ([]schema.File, error) {
	i, ok := slices.BinarySearchFunc(s.at, part.Name, func(p partAt, name string) int { return cmp.Compare(p.Name, name) })
	if !ok {
		return nil, fmt.Errorf("part %q: %w", part.Name, reconciler.ErrNotFound)
	}
	at := s.at[i]
	if at.bad != nil {
		return nil, at.bad
	}
	dir := treeAt{at.Name, at.entry.ID}
	if known, ok := s.repo.files.Get(dir); ok && at.entry.IsDir() {
		return slices.Clone(known), nil
	}
	var files []schema.File
	visited := 0
	err := s.repo.Walk(ctx, at.Name, at.entry, MaxDepth, func(path string, e Entry) error {
		if visited++; visited > MaxFiles {
			return fmt.Errorf("part %q holds more than %d files and directories", part.Name, MaxFiles)
		}
		if !e.IsDir() {
			files = append(files, schema.File{Path: path, Mode: e.Mode, Blob: e.ID.String()})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	byPath := func(a, b schema.File) int { return cmp.Compare(a.Path, b.Path) }
	if !slices.IsSortedFunc(files, byPath) { // usually sorted already
		slices.SortFunc(files, byPath)
	}
	if at.entry.IsDir() { // a file and a link may have one blob
		s.repo.files.Add(dir, files, visited)
	}
	return slices.Clone(files), nil
}

// Read returns the first bytes of a file, or the target of a link.
func (s *snapshot) Read(_ context.Context, f schema.File, limit int) ([]byte, bool, error) {
	h, err := ParseID(f.Blob)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", f.Path, err)
	}
	kind, data, more, err := s.repo.Read(h, limit)
	if err != nil {
		if f.Mode != schema.ModeSubmodule {
			s.repo.Damaged("read file", err)
			err = incomplete(err)
		}
		return nil, false, fmt.Errorf("%s: %w", f.Path, err)
	}
	if kind != plumbing.BlobObject {
		return nil, false, fmt.Errorf("%s: %s is a %s, not a file", f.Path, h, kind)
	}
	return data, more, nil
}

// incomplete wraps err, caused by a missing or damaged object, with the repair
// for a repository that Berth does not fetch itself.
func incomplete(err error) error {
	return fmt.Errorf("%w: %w; run `git fsck` there, or `git fetch --refetch --no-filter` in a partial clone", schema.ErrIncomplete, err)
}

// Walk calls visit for e at path and for every entry below it, at most depth
// directories deep.
func (r *Reader) Walk(ctx context.Context, path string, e Entry, depth int, visit func(string, Entry) error) error {
	if err := visit(path, e); err != nil || !e.IsDir() {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if depth == 0 {
		return fmt.Errorf("%s: more than %d directories deep", path, MaxDepth)
	}
	entries, err := r.Entries(e.ID)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if name, ok := duplicateName(entries); ok {
		return fmt.Errorf("%s: %w: %q occurs twice", path, reconciler.ErrUnreadable, name)
	}
	for _, c := range entries {
		if err := r.Walk(ctx, path+"/"+PathName(c.Name), c, depth-1, visit); err != nil {
			return err
		}
	}
	return nil
}
