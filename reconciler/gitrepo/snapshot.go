package gitrepo

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/schema"
)

const (
	// maxFiles and maxDepth bound one part of an estate, so that a tree that
	// refers to itself over and over costs its owner and nobody else.
	maxFiles = 100_000
	maxDepth = 64
)

// tenantsDir is the directory whose entries are parts of their own.
const tenantsDir = "tenants"

// snapshot is one tree, read when asked. It holds no bytes.
type snapshot struct {
	repo  *Repo
	parts []schema.Part
	at    map[string]partAt
}

// partAt is where a part stands in the tree.
type partAt struct {
	entry entry
	path  string
	bad   error // the part cannot be told; its neighbours can
}

// Snapshot is the tree of a commit, or a tree itself.
func (r *Repo) Snapshot(_ context.Context, id string) (schema.Snapshot, error) {
	root, err := r.root(id)
	if err != nil {
		return nil, fmt.Errorf("snapshot of %s: %w", id, err)
	}
	s := &snapshot{repo: r, at: map[string]partAt{}}
	entries, err := r.tree(root)
	if err != nil {
		return nil, fmt.Errorf("snapshot of %s: %w", id, err)
	}
	for _, e := range entries {
		if e.name != tenantsDir || !e.dir() {
			s.add(pathName(e.name), e)
			continue
		}
		tenants, err := r.tree(e.id)
		if err != nil {
			return nil, fmt.Errorf("snapshot of %s: %s: %w", id, tenantsDir, err)
		}
		for _, t := range tenants {
			s.add(tenantsDir+"/"+pathName(t.name), t)
		}
	}
	// Two entries called tenants would let one hide the tenants of the other.
	if name, ok := twice(entries); ok && name == tenantsDir {
		return nil, fmt.Errorf("snapshot of %s: %w: %q stands there twice", id, reconciler.ErrUnreadable, name)
	}
	slices.SortFunc(s.parts, func(a, b schema.Part) int { return cmp.Compare(a.Name, b.Name) })
	return s, nil
}

// add puts a part in. A second one of the same name spoils both.
func (s *snapshot) add(name string, e entry) {
	if _, ok := s.at[name]; ok {
		i := slices.IndexFunc(s.parts, func(p schema.Part) bool { return p.Name == name })
		s.parts[i].Hash += "+" + e.id.String()
		s.at[name] = partAt{bad: fmt.Errorf("%w: %q stands there twice", reconciler.ErrUnreadable, name)}
		return
	}
	hash := e.id.String()
	if !e.dir() && e.mode != schema.ModePlain {
		hash = fmt.Sprintf("%o:%s", e.mode, hash) // a link and a file may have one blob
	}
	s.parts = append(s.parts, schema.Part{Name: name, Hash: hash, Dir: e.dir()})
	s.at[name] = partAt{entry: e, path: name}
}

// Parts lists the parts in order of name.
func (s *snapshot) Parts(context.Context) ([]schema.Part, error) { return slices.Clone(s.parts), nil }

// Files lists the files of a part in order of path, whatever they are called.
func (s *snapshot) Files(ctx context.Context, part schema.Part) ([]schema.File, error) {
	at, ok := s.at[part.Name]
	switch {
	case !ok:
		return nil, fmt.Errorf("part %q: %w", part.Name, reconciler.ErrNotFound)
	case at.bad != nil:
		return nil, at.bad
	}
	tooMany := func() error {
		return fmt.Errorf("part %q holds more than %d files and directories", part.Name, maxFiles)
	}
	list := func(path string, e entry, depth int, known func(string, entry) (listing, error)) (out listing, err error) {
		var all [][]schema.File // for a part is long, and grows by what is long
		err = s.repo.walk(ctx, path, e, depth, func(path string, e entry) error {
			switch below, err := known(path, e); {
			case err != nil:
				return err
			case below.visited > 0:
				all, out.files, out.visited = append(all, out.files, below.files), nil, out.visited+below.visited
				if out.visited > maxFiles {
					return tooMany()
				}
				return fs.SkipDir
			}
			if out.visited++; out.visited > maxFiles {
				return tooMany()
			}
			if !e.dir() {
				out.files = append(out.files, schema.File{Path: path, Mode: e.mode, Blob: e.id.String()})
			}
			return nil
		})
		out.files = slices.Concat(append(all, out.files)...)
		return out, err
	}
	// Of a part that changed most directories two levels down did not, such as a
	// tenant's projects.
	const level = 2
	all, err := list(at.path, at.entry, maxDepth, func(path string, e entry) (listing, error) {
		if !e.dir() || strings.Count(path[len(at.path):], "/") != level {
			return listing{}, nil
		}
		here := standing{path, e.id}
		if below, ok := s.repo.files.get(here); ok {
			return below, nil
		}
		below, err := list(path, e, maxDepth-level, func(string, entry) (listing, error) { return listing{}, nil })
		if err == nil {
			s.repo.files.add(here, below, below.visited)
		}
		return below, err
	})
	if err != nil {
		return nil, err
	}
	byPath := func(a, b schema.File) int { return cmp.Compare(a.Path, b.Path) }
	if !slices.IsSortedFunc(all.files, byPath) { // as most are, already
		slices.SortFunc(all.files, byPath)
	}
	return all.files, nil
}

// Read returns the first bytes of a file; of a link, what it points to.
func (s *snapshot) Read(_ context.Context, f schema.File, limit int) ([]byte, bool, error) {
	h, err := parseID(f.Blob)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", f.Path, err)
	}
	kind, data, more, err := s.repo.read(h, limit)
	if err != nil {
		if f.Mode != schema.ModeSubmodule {
			s.repo.damaged("read file", err)
			err = incomplete(err)
		}
		return nil, false, fmt.Errorf("%s: %w", f.Path, err)
	}
	if kind != plumbing.BlobObject {
		return nil, false, fmt.Errorf("%s: %s is a %s, not a file", f.Path, h, kind)
	}
	return data, more, nil
}

// incomplete is err, which met an object that is missing or damaged, with what to do
// in a repository that is not fetched anew by itself.
func incomplete(err error) error {
	return fmt.Errorf("%w: %w; run `git fsck` there, or `git fetch --refetch --no-filter` in a partial clone", schema.ErrIncomplete, err)
}

// walk visits e, which stands at path, and everything below it, unless visit says
// fs.SkipDir.
func (r *Repo) walk(ctx context.Context, path string, e entry, depth int, visit func(string, entry) error) error {
	switch err := visit(path, e); {
	case err == fs.SkipDir:
		return nil
	case err != nil || !e.dir():
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if depth == 0 {
		return fmt.Errorf("%s: more than %d directories deep", path, maxDepth)
	}
	entries, err := r.listed(e.id)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if name, ok := twice(entries); ok {
		return fmt.Errorf("%s: %w: %q stands there twice", path, reconciler.ErrUnreadable, name)
	}
	for _, c := range entries {
		if err := r.walk(ctx, path+"/"+pathName(c.name), c, depth-1, visit); err != nil {
			return err
		}
	}
	return nil
}
