package decide

import (
	"cmp"
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

// look fills the second group of fields.
func (g *guard) look() {
	g.vetoes, g.decisions, g.unpermitted = map[string]estate.Veto{}, map[string][]authority.Decision{}, map[string]bool{}
	g.moves = movesOf(g.changes, g.before, g.main)
	g.authorise()
	g.protect()
	for _, rule := range g.d.o.Rules {
		for _, d := range rule(g.before.Desired, g.main.Desired) {
			if d.Severity == schema.SeverityError {
				g.refuse(d, schema.HeldDenied)
			} else {
				g.found = append(g.found, d)
			}
		}
	}
	g.holdMoves()
	g.blockDeletions()
}

// authorise decides the permissions for each changed path. A path that was permitted
// before and has the same content stays permitted. A difference that no step touched
// is unauthorized.
func (g *guard) authorise() {
	for _, c := range g.changes {
		who, touched := g.author(c.Path)
		blob, waited := g.permitted[c.Path]
		switch {
		case waited && blob == c.To:
		case g.trust && (touched || !g.waits[c.Path]):
		case touched:
			ds := g.d.decisions(who, g.before.Desired, g.main.Desired, g.key(c.Path), c)
			g.decisions[c.Path] = ds
			if why, denied := denial(ds); denied {
				g.unpermitted[c.Path] = true
				g.refusePath(c.Path, CodeAuthority, schema.HeldUnauthorised, "%s", why)
			}
		default:
			g.unpermitted[c.Path] = true
			g.refusePath(c.Path, CodeAuthority, schema.HeldUnauthorised, "no user with the permission is known to have changed it; a user with the permission changes it again or comments /berth apply with the commit that changed it; a revert needs no permission")
		}
	}
}

// refuse vetoes a changed path.
func (g *guard) refuse(d schema.Diagnostic, reason string) {
	if !touches(g.changes, d.File) {
		return
	}
	if _, ok := g.vetoes[d.File]; !ok {
		g.vetoes[d.File] = estate.Veto{Reason: reason, Message: d.Message}
	}
	g.found = append(g.found, d)
}

func (g *guard) refusePath(path, code, reason, format string, args ...any) {
	g.refuse(schema.Diagnostic{Severity: schema.SeverityError, Code: code, File: path, Line: 1, Column: 1, Message: fmt.Sprintf(format, args...)}, reason)
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

// waiting are the paths that are permitted and held, as in Standing. In a part that
// cannot be read they stay as they were.
func (g *guard) waiting(f *estate.Force) map[string]string {
	out := map[string]string{}
	for _, c := range g.changes {
		was, waited := g.permitted[c.Path]
		switch _, held := f.Replace[c.Path]; {
		case !held:
		case !g.unpermitted[c.Path]:
			out[c.Path] = c.To
		case waited: // an unpermitted change over it takes nothing away
			out[c.Path] = was
		}
	}
	for path, blob := range f.Replace {
		if touches(g.changes, path) {
			continue
		}
		if h := g.before.Desired.Header(g.before.Key(path)); h != nil && blob == "" {
			out[path] = h.Blob // it was in force, and gave way
		}
	}
	for path, blob := range g.permitted {
		if unread(f, path) {
			out[path] = blob
		}
	}
	if blob := g.keptPause(); blob != "" {
		out[pauseFile] = blob
	}
	return out
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

// touches returns true if a change touches a file. changes is sorted by path.
func touches(changes []schema.PathChange, file string) bool {
	_, ok := slices.BinarySearchFunc(changes, file, func(c schema.PathChange, path string) int { return strings.Compare(c.Path, path) })
	return ok
}
