package estate

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	slashed "path"
	"path/filepath"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// memory is a snapshot held in memory.
type memory struct {
	parts []schema.Part
	files map[string][]schema.File // by part
	data  map[string][]byte        // by path, limited to keep bytes
}

// keep limits the content of a file in a memory snapshot. It is enough to detect a file
// that is too large.
const keep = load.MaxBytes + 1

// Files returns a snapshot of plain files given as path → content, for tests and
// generated trees.
func Files(files map[string]string) schema.Snapshot {
	m := &memory{files: map[string][]schema.File{}, data: map[string][]byte{}}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		data := []byte(files[path])
		m.add(schema.File{Path: path, Mode: schema.ModePlain, Blob: BlobID(data), Size: int64(len(data))}, data)
	}
	m.seal()
	return m
}

// BlobID returns Git's id of a file's content.
func BlobID(data []byte) string {
	h := blobHash(int64(len(data)))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

func blobHash(size int64) hash.Hash {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", size)
	return h
}

// Dir returns the directory root as a snapshot, as Git would store it. Links are listed,
// never followed, and .git is omitted. It is read at once.
func Dir(root string) (schema.Snapshot, error) { return WorkTree(root, nil) }

// WorkTree is Dir without the paths that Git ignores, which must be sorted.
func WorkTree(root string, ignored []string) (schema.Snapshot, error) {
	m := &memory{files: map[string][]schema.File{}, data: map[string][]byte{}}
	err := m.walk(root, "", func(path string, dir bool) bool {
		if _, ignore := slices.BinarySearch(ignored, path); ignore {
			return false
		}
		top, _, nested := strings.Cut(path, "/")
		return nested || dir && ours(schema.Part{Name: top, Dir: true}) // files of the root are not part of the estate
	})
	if err != nil {
		return nil, err
	}
	m.seal()
	return m, nil
}

// walk adds the files of a directory at a path of the snapshot. pick selects files and
// directories.
func (m *memory) walk(root, at string, pick func(path string, dir bool) bool) error {
	root, err := filepath.EvalSymlinks(root) // else the walk would take a link for an empty directory
	if err != nil {
		return err
	}
	info, err := os.Stat(root)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", root)
	}
	return filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		path := slashed.Join(at, filepath.ToSlash(rel))
		switch {
		case rel == ".":
			return nil
		case entry.Name() == ".git":
			if filepath.Dir(rel) != "." {
				m.add(schema.File{Path: slashed.Dir(path), Mode: schema.ModeSubmodule, Blob: BlobID(nil)}, nil)
			}
			return skip(entry)
		case !pick(path, entry.IsDir()):
			return skip(entry)
		case entry.IsDir():
			return nil
		}
		f, data, err := readEntry(name, path, entry)
		if err != nil {
			return err
		}
		m.add(f, data)
		return nil
	})
}

// skip omits an entry of a walk, and what is below it.
func skip(entry fs.DirEntry) error {
	if entry.IsDir() {
		return fs.SkipDir
	}
	return nil
}

func readEntry(name, path string, entry fs.DirEntry) (schema.File, []byte, error) {
	f := schema.File{Path: path}
	switch mode := entry.Type(); {
	case mode&fs.ModeSymlink != 0:
		target, err := os.Readlink(name)
		if err != nil {
			return f, nil, err
		}
		f.Mode, f.Blob, f.Size = schema.ModeSymlink, BlobID([]byte(target)), int64(len(target))
		return f, []byte(target), nil
	case !mode.IsRegular():
		f.Blob = BlobID(nil)
		return f, nil, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return f, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return f, nil, err
	}
	f.Mode, f.Size = schema.ModePlain, info.Size()
	if info.Mode()&0o100 != 0 {
		f.Mode = schema.ModeExecutable
	}
	h := blobHash(f.Size)
	data, err := io.ReadAll(io.LimitReader(io.TeeReader(file, h), keep))
	if err != nil {
		return f, nil, err
	}
	if _, err := io.Copy(h, file); err != nil {
		return f, nil, err
	}
	f.Blob = hex.EncodeToString(h.Sum(nil))
	return f, data, nil
}

// partOf returns the part of a path.
func partOf(path string) schema.Part {
	top, rest, nested := strings.Cut(path, "/")
	if !nested {
		return schema.Part{Name: path}
	}
	if top != "tenants" {
		return schema.Part{Name: top, Dir: true}
	}
	tenant, _, nested := strings.Cut(rest, "/")
	return schema.Part{Name: "tenants/" + tenant, Dir: nested}
}

func (m *memory) add(f schema.File, data []byte) {
	p := partOf(f.Path).Name
	m.files[p] = append(m.files[p], f)
	m.data[f.Path] = data
}

func (m *memory) seal() {
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		m.parts = append(m.parts, sealPart(m.files[name]))
	}
}

// sealPart sorts the files of a part and returns the part with its hash.
func sealPart(files []schema.File) schema.Part {
	slices.SortFunc(files, func(a, b schema.File) int { return strings.Compare(a.Path, b.Path) })
	p, h := partOf(files[0].Path), sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%o %s %s\x00", f.Mode, f.Blob, f.Path)
	}
	p.Hash = hex.EncodeToString(h.Sum(nil))
	return p
}

func (m *memory) Parts(context.Context) ([]schema.Part, error) { return m.parts, nil }

func (m *memory) Files(_ context.Context, p schema.Part) ([]schema.File, error) {
	return m.files[p.Name], nil
}

func (m *memory) Read(_ context.Context, f schema.File, most int) ([]byte, bool, error) {
	data, ok := m.data[f.Path]
	if !ok {
		return nil, false, fmt.Errorf("%s: %w", f.Path, fs.ErrNotExist)
	}
	if len(data) > most {
		return data[:most], true, nil
	}
	return data, f.Size > int64(len(data)), nil
}

// overlay is base with some paths replaced from from, or removed.
type overlay struct {
	schema.Snapshot // base
	from            schema.Snapshot
	over            map[string]*schema.File // by path; nil: removed
	parts           []schema.Part
	changed         map[string][]schema.File // files of the parts that differ from base
}

// newOverlay puts files over base; a nil file removes its path. Their content is read
// from from.
func newOverlay(ctx context.Context, base, from schema.Snapshot, files map[string]*schema.File) (*overlay, error) {
	o := &overlay{Snapshot: base, from: from, over: maps.Clone(files), changed: map[string][]schema.File{}}
	for path, f := range files {
		name := partOf(path).Name
		kept := o.changed[name]
		if f != nil {
			kept = append(kept, *f)
		}
		o.changed[name] = kept // an entry also if the part is empty
	}
	listed, err := base.Parts(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range listed {
		if !hasEntry(o.changed, p.Name) {
			o.parts = append(o.parts, p)
			continue
		}
		below, err := base.Files(ctx, p)
		if err != nil {
			return nil, err
		}
		kept := slices.DeleteFunc(slices.Clone(below), func(f schema.File) bool { return hasEntry(files, f.Path) })
		o.changed[p.Name] = append(o.changed[p.Name], kept...)
	}
	for _, got := range o.changed {
		if len(got) > 0 {
			o.parts = append(o.parts, sealPart(got))
		}
	}
	slices.SortFunc(o.parts, func(a, b schema.Part) int { return strings.Compare(a.Name, b.Name) })
	return o, nil
}

func (o *overlay) Parts(context.Context) ([]schema.Part, error) { return o.parts, nil }

func (o *overlay) Files(ctx context.Context, p schema.Part) ([]schema.File, error) {
	if files, ok := o.changed[p.Name]; ok {
		return files, nil
	}
	return o.Snapshot.Files(ctx, p)
}

func (o *overlay) Read(ctx context.Context, f schema.File, most int) ([]byte, bool, error) {
	if o.over[f.Path] != nil {
		return o.from.Read(ctx, f, most)
	}
	return o.Snapshot.Read(ctx, f, most)
}

// patchwork is base with some parts taken from from, by name.
type patchwork struct {
	base, from schema.Snapshot
	parts      map[string]string
}

func (w patchwork) Parts(ctx context.Context) ([]schema.Part, error) {
	base, err := w.base.Parts(ctx)
	if err != nil {
		return nil, err
	}
	from, err := w.from.Parts(ctx)
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(slices.Clone(base), func(p schema.Part) bool { return w.replaced(p.Name) })
	for _, p := range from {
		if w.replaced(p.Name) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b schema.Part) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func (w patchwork) replaced(part string) bool { return hasEntry(w.parts, part) }

// of returns the snapshot that has a part.
func (w patchwork) of(part string) schema.Snapshot {
	if w.replaced(part) {
		return w.from
	}
	return w.base
}

func (w patchwork) Files(ctx context.Context, p schema.Part) ([]schema.File, error) {
	return w.of(p.Name).Files(ctx, p)
}

func (w patchwork) Read(ctx context.Context, f schema.File, most int) ([]byte, bool, error) {
	return w.of(partOf(f.Path).Name).Read(ctx, f, most)
}

// ours reports whether a part belongs to the estate: other entries of the root do not,
// unless they are a misspelt directory of the estate.
func ours(p schema.Part) bool {
	top, _, _ := strings.Cut(p.Name, "/")
	folded := strings.ToLower(top)
	return top == "platform" || top == "tenants" || p.Dir && (folded == "platform" || folded == "tenants")
}
