package agent

import "berth/runtimes"

// pathKind is the kind of a recorded path.
type pathKind string

const (
	kindFile pathKind = "file" // a file or link
	kindDir  pathKind = "dir"  // a directory that may get foreign files: removed only when empty
	kindTree pathKind = "tree" // a directory that belongs to Berth with all its content
)

// target is a path that an operation makes or removes.
type target struct {
	path string
	kind pathKind // of the path that is made; empty: it is removed
	// shared: a foreign path is used without a change.
	shared bool
}

// making describes the path that an operation makes, for the check of the profiles.
func making(op runtimes.Op) (runtimes.Making, bool) {
	switch {
	case op.Write != nil:
		w := op.Write
		return runtimes.Making{Kind: "file", Path: w.Path, Data: w.Data, Mode: w.Mode, Owner: w.Owner, Group: w.Group}, true
	case op.Secret != nil:
		s := op.Secret
		return runtimes.Making{Kind: "secret", Path: s.Path, Mode: s.Mode, Owner: s.Owner, Group: s.Group}, true
	case op.Link != nil:
		return runtimes.Making{Kind: "link", Path: op.Link.Path}, true
	case op.Dir != nil:
		d := op.Dir
		return runtimes.Making{Kind: "dir", Path: d.Path, Mode: d.Mode, Owner: d.Owner, Group: d.Group}, true
	}
	return runtimes.Making{}, false
}

// targets lists the paths that an operation makes or removes, in order, without paths
// that the profile refuses.
func (l *allowList) targets(op runtimes.Op) []target {
	made, makes := making(op)
	switch {
	case makes && l.checkMake(made) != nil:
	case op.Dir != nil:
		return []target{{op.Dir.Path, dirKind(*op.Dir), !op.Dir.Own}}
	case makes:
		return []target{{made.Path, kindFile, false}}
	case op.Remove != nil && l.check(op.Remove.Path) == nil:
		return []target{{op.Remove.Path, "", op.Remove.IfEmpty}}
	case op.Service != nil && (op.Service.Verb == "start" || op.Service.Verb == "restart"):
		if spec, err := l.service(op.Service); err == nil {
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
