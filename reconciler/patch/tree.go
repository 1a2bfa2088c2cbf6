package patch

import (
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
)

// Tree is a base with a patch over it: a schema.Snapshot. Parts that the patch does
// not change are the base's own, so that a reader of the base reads only the changes.
type Tree struct {
	base    schema.Snapshot
	parts   []schema.Part
	changed map[string][]schema.File // files of each part the patch reaches
	made    map[string]content       // by path
	touched []schema.PathChange

	files   map[string]schema.File // of the parts reached, by path
	reached map[string]bool
}

// content is where the bytes of a file the patch made come from.
type content struct {
	data []byte
	from *schema.File // in the base; nil: data
}

// newTree reads the listing of those parts of base that hold one of paths.
func newTree(ctx context.Context, base schema.Snapshot, paths []string) (*Tree, error) {
	t := &Tree{base: base, changed: map[string][]schema.File{}, made: map[string]content{}, files: map[string]schema.File{},
		reached: map[string]bool{}}
	for _, path := range paths {
		t.reached[partOf(path).Name] = true
	}
	parts, err := base.Parts(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the base: %w", err)
	}
	for _, p := range parts {
		if !t.reached[p.Name] {
			t.parts = append(t.parts, p)
			continue
		}
		files, err := base.Files(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("list %s of the base: %w", p.Name, err)
		}
		for _, f := range files {
			t.files[f.Path] = f
		}
	}
	return t, nil
}

// put adds a file that the patch makes.
func (t *Tree) put(f schema.File, data []byte, from *schema.File) {
	t.files[f.Path] = f
	t.made[f.Path] = content{data, from}
}

// dirOutside says whether path is a directory because of a part the patch does
// not reach: tenants/ is cut in several.
func (t *Tree) dirOutside(path string) bool {
	return slices.ContainsFunc(t.parts, func(p schema.Part) bool { return strings.HasPrefix(p.Name, path+"/") })
}

// fileOutside says whether path is a file that is a part of its own.
func (t *Tree) fileOutside(path string) bool {
	return slices.ContainsFunc(t.parts, func(p schema.Part) bool { return p.Name == path && !p.Dir })
}

// seal sets the parts of the tree and its changes from was.
func (t *Tree) seal(was map[string]schema.File) {
	for _, f := range slices.SortedFunc(maps.Values(t.files), func(a, b schema.File) int { return cmp.Compare(a.Path, b.Path) }) {
		p := partOf(f.Path)
		t.changed[p.Name] = append(t.changed[p.Name], f)
		old, ok := was[f.Path]
		if !ok || old.Blob != f.Blob || old.Mode != f.Mode {
			t.touched = append(t.touched, schema.PathChange{Path: f.Path, From: old.Blob, To: f.Blob})
		}
	}
	for path, f := range was {
		if _, ok := t.files[path]; !ok {
			t.touched = append(t.touched, schema.PathChange{Path: path, From: f.Blob})
		}
	}
	slices.SortFunc(t.touched, func(a, b schema.PathChange) int { return cmp.Compare(a.Path, b.Path) })
	for _, files := range t.changed {
		p := partOf(files[0].Path)
		h := sha256.New()
		for _, f := range files {
			fmt.Fprintf(h, "%o %s %s\x00", f.Mode, f.Blob, f.Path)
		}
		p.Hash = hex.EncodeToString(h.Sum(nil))
		t.parts = append(t.parts, p)
	}
	slices.SortFunc(t.parts, func(a, b schema.Part) int { return cmp.Compare(a.Name, b.Name) })
}

// Touched lists the paths in which the tree differs from its base, in order. A
// rename is one path that goes and one that comes.
func (t *Tree) Touched() []schema.PathChange { return slices.Clone(t.touched) }

// Parts lists the parts in order of name.
func (t *Tree) Parts(context.Context) ([]schema.Part, error) { return t.parts, nil }

// Files lists the files of a part in order of path.
func (t *Tree) Files(ctx context.Context, part schema.Part) ([]schema.File, error) {
	if t.reached[part.Name] {
		return slices.Clone(t.changed[part.Name]), nil
	}
	return t.base.Files(ctx, part)
}

// Read returns the first bytes of a file.
func (t *Tree) Read(ctx context.Context, f schema.File, limit int) ([]byte, bool, error) {
	made, ok := t.made[f.Path]
	switch {
	case ok && made.from != nil:
		return t.base.Read(ctx, *made.from, limit)
	case ok:
		n := min(len(made.data), limit)
		return slices.Clone(made.data[:n]), n < len(made.data), nil
	}
	return t.base.Read(ctx, f, limit)
}

// partOf is the part of an estate that a path belongs to (schema.Snapshot).
func partOf(path string) schema.Part {
	top, rest, nested := strings.Cut(path, "/")
	if top != "tenants" || !nested {
		return schema.Part{Name: top, Dir: nested}
	}
	tenant, _, nested := strings.Cut(rest, "/")
	return schema.Part{Name: "tenants/" + tenant, Dir: nested}
}

// blobID is the id Git gives a file's content.
func blobID(data []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(data))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}
