package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files is the state of some files at one moment.
type Files struct {
	Stamps map[string]string // by path as people are shown it; another stamp is a change
	Dirs   []string          // directories that hold the files: they are watched, so that a file that an editor replaces stays watched
}

// Estate returns the state of the documents of the estate in root, and of tenants'
// documents in directories of their own.
func Estate(root string, tenants ...string) (Files, error) {
	f := Files{Stamps: map[string]string{}}
	err := f.AddTree(root, "", isEstateDir)
	for _, dir := range tenants {
		err = errors.Join(err, f.AddTree(dir, dir+"/", func(string) bool { return true }))
	}
	return f, err
}

// isEstateDir reports whether a name at the top is a directory of the estate, or one
// that looks like it.
func isEstateDir(name string) bool {
	return strings.EqualFold(name, "platform") || strings.EqualFold(name, "tenants")
}

// AddTree adds the files below root, shown behind prefix. Of the entries of root
// itself, it takes only those that are wanted.
func (f *Files) AddTree(root, prefix string, wanted func(top string) bool) error {
	root = filepath.Clean(root)
	return filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name != root {
			return nil // removed during the walk; the next scan shows it
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		path := filepath.ToSlash(rel)
		top := path != "." && !strings.Contains(path, "/")
		switch {
		case entry.IsDir() && (entry.Name() == ".git" && path != "." || top && !wanted(path)):
			return fs.SkipDir
		case entry.IsDir():
			f.Dirs = append(f.Dirs, name)
			return nil
		case top && !wanted(path):
			return nil
		}
		return f.AddFile(name, prefix+path)
	})
}

// AddFile adds one file, which may be missing.
func (f *Files) AddFile(name, shown string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f.Stamps[shown] = fmt.Sprintf("%v %d %d", info.Mode(), info.Size(), info.ModTime().UnixNano())
	return nil
}

// AddRefs adds the refs of a repository. The two directories differ in a linked work tree
// (gitrepository-layout(5), commondir).
func (f *Files) AddRefs(gitDir, commonDir string) error {
	for _, dir := range []string{gitDir, commonDir} {
		for _, name := range []string{"HEAD", "packed-refs"} {
			if err := f.AddFile(filepath.Join(dir, name), name); err != nil {
				return err
			}
		}
		if !slices.Contains(f.Dirs, dir) {
			f.Dirs = append(f.Dirs, dir)
		}
	}
	return f.AddTree(filepath.Join(commonDir, "refs"), "refs/", func(string) bool { return true })
}

// difference lists the paths whose stamps differ, sorted.
func difference(a, b map[string]string) []string {
	var out []string
	for _, path := range slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b))) {
		if a[path] != b[path] {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
