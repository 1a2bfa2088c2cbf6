package agent

import (
	"context"

	"berth/runtimes"
)

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

func withOp(err error, op runtimes.Op) error {
	f := *faultOf(err)
	f.Op = Summary(op)
	return &f
}
