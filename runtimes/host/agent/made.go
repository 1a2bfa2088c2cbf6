package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"berth/runtimes"
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

// target is a path that an operation makes or removes.
type target struct {
	path string
	kind pathKind // of the path that is made; empty: it is removed
	// shared: a foreign path is used without a change.
	shared bool
}

// targets lists the paths that an operation makes or removes, in order, without paths
// that the profile refuses.
func (a *Agent) targets(op runtimes.Op) []target {
	made := func(m runtimes.Making, kind pathKind, shared bool) []target {
		if a.allow.checkMake(m) != nil {
			return nil
		}
		return []target{{m.Path, kind, shared}}
	}
	switch {
	case op.Write != nil:
		w := op.Write
		return made(runtimes.Making{Kind: "file", Path: w.Path, Data: w.Data, Mode: w.Mode, Owner: w.Owner, Group: w.Group}, kindFile, false)
	case op.Secret != nil:
		s := op.Secret
		return made(runtimes.Making{Kind: "secret", Path: s.Path, Mode: s.Mode, Owner: s.Owner, Group: s.Group}, kindFile, false)
	case op.Link != nil:
		return made(runtimes.Making{Kind: "link", Path: op.Link.Path}, kindFile, false)
	case op.Dir != nil:
		d := op.Dir
		return made(runtimes.Making{Kind: "dir", Path: d.Path, Mode: d.Mode, Owner: d.Owner, Group: d.Group}, dirKind(*d), !d.Own)
	case op.Remove != nil && a.allow.check(op.Remove.Path) == nil:
		return []target{{op.Remove.Path, "", op.Remove.IfEmpty}}
	case op.Service != nil && (op.Service.Verb == "start" || op.Service.Verb == "restart"):
		if spec, err := a.serviceSpec(op.Service); err == nil {
			return serviceTargets(spec)
		}
	}
	return nil
}

func dirKind(d runtimes.MakeDir) pathKind {
	if d.Own {
		return kindTree
	}
	return kindDir
}

// serviceTargets lists the paths that a service makes, without its pid file: the
// process in it is checked instead.
func serviceTargets(spec runtimes.ServiceSpec) []target {
	var list []target
	for _, d := range spec.RunDirs {
		list = append(list, target{d.Path, dirKind(d), !d.Own})
	}
	for _, l := range spec.Links {
		list = append(list, target{l.Path, kindFile, false})
	}
	files := spec.Files
	if spec.LogFile != "" {
		files = append([]string{spec.LogFile}, files...)
	}
	for _, f := range files {
		list = append(list, target{f, kindFile, false})
	}
	return list
}

// claim adds the paths that a request will make to the record. If an operation would
// write or remove a foreign path, it fails and adds nothing.
func (a *Agent) claim(ctx context.Context, ops []runtimes.Op) error {
	lock, err := a.lock(ctx, lockPaths, false)
	if err != nil {
		return err
	}
	defer lock.Close()
	rec, err := a.readPaths()
	if err != nil {
		return err
	}
	changed := false
	for _, op := range ops {
		for _, t := range a.targets(op) {
			if rec[t.path] == kindDir && op.Remove != nil && op.Remove.Tree {
				return withOp(refuse("%s may contain files that Berth did not make and is removed only when empty", plain(t.path)), op)
			}
			if rec.has(t.path) {
				continue
			}
			there, err := exists(t.path)
			if err != nil {
				return withOp(err, op)
			}
			if there && !t.shared {
				return withOp(&Fault{Code: CodeForeign, Message: foreignPath(t.path)}, op)
			}
			if !there && t.kind != "" {
				rec[t.path] = t.kind
				changed = true
			}
		}
	}
	if !changed {
		return nil
	}
	return a.writePaths(rec)
}

// dropMissing drops paths from the record that a request removed, or claimed and did
// not make.
func (a *Agent) dropMissing(ctx context.Context, ops []runtimes.Op) error {
	lock, err := a.lock(ctx, lockPaths, false)
	if err != nil {
		return err
	}
	defer lock.Close()
	rec, err := a.readPaths()
	if err != nil {
		return err
	}
	before := len(rec)
	for _, op := range ops {
		if op.Service != nil {
			continue // the daemon makes its files later
		}
		for _, t := range a.targets(op) {
			if there, err := exists(t.path); err == nil && !there {
				rec.drop(t.path)
			}
		}
	}
	if len(rec) == before {
		return nil
	}
	return a.writePaths(rec)
}

func foreignPath(name string) string {
	return fmt.Sprintf("%s exists and was not made by Berth; move it away, then try again", plain(name))
}

func withOp(err error, op runtimes.Op) error {
	f := *faultOf(err)
	f.Op = Summary(op)
	return &f
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
