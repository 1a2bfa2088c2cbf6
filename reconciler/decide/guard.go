package decide

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
)

// CodeAuthority is the code of the finding that the author of a change lacks a
// permission.
const CodeAuthority = "authority.denied"

// change is the input of enforce.
type change struct {
	main, previous schema.Snapshot // previous nil: nothing was in force
	permitted      map[string]string
	commit         string
	authored       map[string]subject
	acks           []subject
	today          string
	facts          Facts
	trust          bool            // no permission is asked for
	waits          map[string]bool // unauthorized paths that trust does not cover, unless they are authored
	acked          bool            // deletions of the authored paths are acknowledged
}

// guard judges a change as a whole, before any of it comes into force.
type guard struct {
	change
	d            *Decider
	before, main *estate.Result
	changes      []schema.PathChange // from what is in force to main, sorted by path

	moves       map[string]string // new path, by old path
	vetoes      map[string]estate.Veto
	found       []schema.Diagnostic
	decisions   map[string][]authority.Decision // by path
	unpermitted map[string]bool                 // paths whose change nobody with the permission made
}

// compare loads both trees of a change. It does not judge the difference.
func (d *Decider) compare(ctx context.Context, in change) (*guard, error) {
	previous := in.previous
	if previous == nil {
		previous = estate.Files(nil)
	}
	g := &guard{d: d, change: in}
	var err error
	if g.before, err = d.o.Loader.Load(ctx, previous); err != nil {
		return nil, fmt.Errorf("the tree in force: %w", err)
	}
	if g.main, err = d.o.Loader.LoadOver(ctx, in.main, g.before); err != nil {
		return nil, fmt.Errorf("the tree to decide: %w", err)
	}
	if g.changes, err = d.o.Loader.Compare(ctx, previous, in.main); err != nil && !errors.Is(err, estate.ErrUnreadable) {
		return nil, err
	}
	return g, nil
}

// refuse vetoes a changed path.
func (g *guard) refuse(path, code string, veto estate.Veto) {
	if !touches(g.changes, path) {
		return
	}
	if _, ok := g.vetoes[path]; !ok {
		g.vetoes[path] = veto
	}
	g.found = append(g.found, errorAt(path, code, veto.Message))
}

func (g *guard) refusePath(path, code string, reason schema.HeldReason, format string, args ...any) {
	g.refuse(path, code, estate.Veto{Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// errorAt returns an error about a file as a whole.
func errorAt(file, code, message string) schema.Diagnostic {
	return schema.Diagnostic{Severity: schema.SeverityError, Code: code, File: file, Line: 1, Column: 1, Message: message}
}

// as returns d with another severity.
func as(s schema.Severity, d schema.Diagnostic) schema.Diagnostic {
	d.Severity = s
	return d
}

// decide returns the decisions about the change of one path.
func (g *guard) decide(who subject, c schema.PathChange) []authority.Decision {
	return g.d.Permissions().decisions(who, g.before.Desired, g.main.Desired, g.key(c.Path), c)
}

// key is the present or former key of a changed path; zero for no document.
func (g *guard) key(path string) schema.Key { return cmp.Or(g.main.Key(path), g.before.Key(path)) }

// author is the author of a path. If a step names only a directory above it, because
// the change was too large to list, its author is unknown.
func (g *guard) author(path string) (subject, bool) {
	if who, ok := g.authored[path]; ok {
		return who, true
	}
	for dir := range above(path) {
		if who, ok := g.authored[dir]; ok {
			return subject{commit: who.commit}, true
		}
	}
	return subject{}, false
}

// above are the directories that a path is in, the nearest first.
func above(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for cut := strings.LastIndexByte(path, '/'); cut >= 0; cut = strings.LastIndexByte(path, '/') {
			if path = path[:cut]; !yield(path) {
				return
			}
		}
	}
}

// touches returns true if a change touches a file. changes is sorted by path.
func touches(changes []schema.PathChange, file string) bool {
	_, ok := slices.BinarySearchFunc(changes, file, func(c schema.PathChange, path string) int { return strings.Compare(c.Path, path) })
	return ok
}

// unread returns true if a path is in an unreadable part.
func unread(f *estate.Force, path string) bool {
	for dir := range above(path) {
		if _, ok := f.Replace[dir]; ok {
			return true
		}
	}
	return false
}
