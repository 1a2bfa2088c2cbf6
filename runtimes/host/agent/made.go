package agent

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"strings"

	"berth/runtimes"
)

// Berth never overwrites or deletes a path that it did not make. A path is added to
// the record of paths, with a sync, before it is made, and is dropped after its
// removal. An existing path that is not in the record is foreign: an operation that
// would write or remove it fails with runtimes.CodeForeign before its request has any effect.

// madePaths keeps the record of paths that Berth made on this host.
type madePaths struct {
	state stateDir
	allow *allowList
}

// pathRecord has the recorded paths.
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
		if code := faultOf(err).Code; code == runtimes.CodeNotFound || code == runtimes.CodeRefused {
			return false, nil
		}
		return false, err
	}
	defer p.close()
	_, there, err := p.lstat()
	return there, err
}

// claim adds the paths that a request will make to the record. If an operation would
// write or remove a foreign path, it fails and adds nothing.
func (m madePaths) claim(ctx context.Context, ops []runtimes.Op) error {
	return m.update(ctx, func(rec pathRecord) error {
		for _, op := range ops {
			for _, t := range m.allow.targets(op) {
				if err := rec.claim(t, op); err != nil {
					return withOp(err, Summary(op))
				}
			}
		}
		return nil
	})
}

// claim adds a path that op will make, and refuses a foreign one.
func (r pathRecord) claim(t target, op runtimes.Op) error {
	if r[t.path] == kindDir && op.Remove != nil && op.Remove.Tree {
		return refuse("%s may contain files that Berth did not make and is removed only when empty", plain(t.path))
	}
	if r.has(t.path) {
		return nil
	}
	there, err := exists(t.path)
	if err != nil {
		return err
	}
	if there && !t.shared {
		return &Fault{Code: runtimes.CodeForeign, Message: foreignPath(t.path)}
	}
	if !there && t.kind != "" {
		r[t.path] = t.kind
	}
	return nil
}

// dropMissing drops paths from the record that a request removed, or claimed and did
// not make.
func (m madePaths) dropMissing(ctx context.Context, ops []runtimes.Op) error {
	return m.update(ctx, func(rec pathRecord) error {
		for _, op := range ops {
			if op.Service != nil {
				continue // the daemon makes its files later
			}
			for _, t := range m.allow.targets(op) {
				if there, err := exists(t.path); err == nil && !there {
					rec.drop(t.path)
				}
			}
		}
		return nil
	})
}

// update changes the record under its lock and writes it if it differs.
func (m madePaths) update(ctx context.Context, change func(pathRecord) error) error {
	lock, err := m.state.lock(ctx, lockPaths, false)
	if err != nil {
		return err
	}
	defer lock.Close()
	rec, err := m.read()
	if err != nil {
		return err
	}
	before := maps.Clone(rec)
	if err := change(rec); err != nil || maps.Equal(rec, before) {
		return err
	}
	return m.write(rec)
}

// foreign describes those of paths that exist and that Berth did not make.
func (m madePaths) foreign(paths []string) ([]string, error) {
	rec, err := m.read()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, p := range paths {
		there, err := exists(p)
		if err != nil {
			return nil, err
		}
		if there && !rec.has(p) {
			found = append(found, foreignPath(p))
		}
	}
	return found, nil
}

// made reports whether Berth made a path.
func (m madePaths) made(name string) (bool, error) {
	rec, err := m.read()
	return err == nil && rec.has(name), err
}

const pathsFile = "paths.json"

// read reads the record of paths. Without one, or with a damaged one, it derives the
// record from the runtimes' records.
func (m madePaths) read() (pathRecord, error) {
	rec := pathRecord{}
	found, err := m.state.readJSON(pathsFile, &rec)
	if err != nil {
		return nil, err
	}
	if !found {
		return m.derive()
	}
	return rec, nil
}

func (m madePaths) derive() (pathRecord, error) {
	rec := pathRecord{}
	for _, p := range m.allow.profiles {
		if p.DerivePaths == nil {
			continue
		}
		for _, e := range p.DerivePaths(os.DirFS("/")) {
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

// write writes and syncs the record of paths. It removes an empty one.
func (m madePaths) write(rec pathRecord) error {
	if len(rec) > 0 {
		return m.state.writeJSON(pathsFile, rec)
	}
	return m.state.remove(pathsFile)
}
