package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

// Berth never overwrites or deletes what it did not make. The record of paths
// says what Berth made: a path is entered, durably, before it is made, and is
// dropped after it was removed. A path that exists and is not on the record is
// foreign: an operation that would write or remove it fails with CodeForeign
// before its request has any effect.

// pathKind says what of a recorded path is Berth's.
type pathKind string

const (
	kindFile pathKind = "file" // a file or link
	kindDir  pathKind = "dir"  // a directory that may come to hold foreign files: removed only when empty
	kindTree pathKind = "tree" // a directory that is Berth's with all in it
)

// pathRecord is the paths that Berth made on this host.
type pathRecord map[string]pathKind

// has says whether Berth made the path, or a tree that it lies in.
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

// drop removes a path from the record, and all below it if it was a tree. Below
// another directory, a request beside this one may be about to make what it
// claimed.
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
	kind pathKind // what is made; empty: it is removed
	// shared: it may exist without being Berth's, and is then left as it is.
	shared bool
}

// targets lists what an operation makes or removes, in order. What the profile
// does not allow is left out: the operation itself refuses it.
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

// serviceTargets lists what a service makes, without its pid file: the process in
// it decides, and a stale pid file has no owner.
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

// claim enters what a request will make in the record of paths. It fails, and
// enters nothing, if an operation would write or remove a foreign path.
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
				return withOp(refuse("%s may hold files that Berth did not make; it is removed only when empty", plain(t.path)), op)
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

// settle drops from the record what a request removed, or claimed and did not
// make. A record that names a path that is gone does no harm.
func (a *Agent) settle(ctx context.Context, ops []runtimes.Op) error {
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
			continue // its daemon makes files later
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

// exists looks for a path without following links. A path that leads through a
// link counts as missing: no operation follows it.
func exists(name string) (bool, error) {
	p, err := open(name)
	if err != nil {
		if code := faultOf(err).Code; code == CodeNotFound || code == CodeRefused {
			return false, nil
		}
		return false, err
	}
	defer p.close()
	var st unix.Stat_t
	switch err := unix.Fstatat(p.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW); err {
	case nil:
		return true, nil
	case unix.ENOENT:
		return false, nil
	default:
		return false, ioFault(name, err)
	}
}

// made says whether Berth made a path.
func (a *Agent) made(name string) (bool, error) {
	rec, err := a.readPaths()
	return err == nil && rec.has(name), err
}

func (a *Agent) pathsName() string { return filepath.Join(a.state, "paths.json") }

// readPaths reads the record of paths. Where there is none, as after an upgrade
// from a helper that kept none, the runtimes' own records say what is Berth's.
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
			case !there && !strings.HasPrefix(e.Path, "/run/"): // those come with a service's start
			case e.Own:
				rec[e.Path] = kindTree
			default:
				rec[e.Path] = kindFile
			}
		}
	}
	return rec, nil
}

// writePaths writes the record of paths durably; an empty one is removed.
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
