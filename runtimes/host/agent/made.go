package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Berth never overwrites or deletes a path that it did not make. A path is added to
// the record of paths, with a sync, before it is made, and is dropped after its
// removal. An existing path that is not in the record is foreign: an operation that
// would write or remove it fails with CodeForeign before its request has any effect.

// pathKind is the kind of a recorded path.
type pathKind string

const (
	kindFile pathKind = "file" // a file or link
	kindDir  pathKind = "dir"  // a directory that may get foreign files: removed only when empty
	kindTree pathKind = "tree" // a directory that belongs to Berth with all its content
)

// pathRecord has the paths that Berth made on this host.
type pathRecord map[string]pathKind

// has reports whether Berth made the path, or a tree that contains it.
func (r pathRecord) has(name string) bool {
	if _, ok := r[name]; ok {
		return true
	}
	for dir := path.Dir(name); dir != "/" && dir != "."; dir = path.Dir(dir) {
		if r[dir] == kindTree {
			return true
		}
	}
	return false
}

// drop removes a path from the record, and all below it if it was a tree. Paths below
// another directory may be claimed by a concurrent request.
func (r pathRecord) drop(name string) {
	tree := r[name] == kindTree
	for p := range r {
		if p == name || tree && strings.HasPrefix(p, name+"/") {
			delete(r, p)
		}
	}
}

func foreignPath(name string) string {
	return fmt.Sprintf("%s exists and was not made by Berth; move it away, then try again", plain(name))
}

// exists reports whether a path exists, without following links. A path through a
// link counts as missing, as no operation follows it.
func exists(name string) (bool, error) {
	p, err := open(name)
	if err != nil {
		if code := faultOf(err).Code; code == CodeNotFound || code == CodeRefused {
			return false, nil
		}
		return false, err
	}
	defer p.close()
	_, there, err := p.lstat()
	return there, err
}

// made reports whether Berth made a path.
func (a *Agent) made(name string) (bool, error) {
	rec, err := a.readPaths()
	return err == nil && rec.has(name), err
}

func (a *Agent) pathsName() string { return filepath.Join(a.state, "paths.json") }

// readPaths reads the record of paths. After an upgrade from a helper without one, it
// derives the record from the runtimes' records.
func (a *Agent) readPaths() (pathRecord, error) {
	rec := pathRecord{}
	b, err := os.ReadFile(a.pathsName())
	if os.IsNotExist(err) {
		return a.earlierPaths()
	}
	if err == nil {
		err = json.Unmarshal(b, &rec)
	}
	if err != nil {
		return nil, ioFault(a.pathsName(), fmt.Errorf("the record of paths is unreadable: %w; restore it, or remove it to rebuild it from the records of instances", err))
	}
	return rec, nil
}

func (a *Agent) earlierPaths() (pathRecord, error) {
	rec := pathRecord{}
	for _, p := range a.profiles {
		if p.EarlierPaths == nil {
			continue
		}
		for _, e := range p.EarlierPaths(os.DirFS("/")) {
			switch there, err := exists(e.Path); {
			case err != nil:
				return nil, err
			case !there && !strings.HasPrefix(e.Path, "/run/"): // a start of a service makes those
			case e.Own:
				rec[e.Path] = kindTree
			default:
				rec[e.Path] = kindFile
			}
		}
	}
	return rec, nil
}

// writePaths writes and syncs the record of paths. It removes an empty one.
func (a *Agent) writePaths(rec pathRecord) error {
	p, err := open(a.pathsName())
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.sweep(); err != nil {
		return err
	}
	if len(rec) == 0 {
		if err := p.remove(false); err != nil && !isNotFound(err) {
			return err
		}
		return p.sync()
	}
	b, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return ioFault(p.path, err)
	}
	return p.replace(append(b, '\n'), 0o600, os.Geteuid(), os.Getegid())
}
