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
	d            *Decider
	before, main *estate.Result
	changes      []schema.PathChange // from what is in force to main, sorted by path
	commit       string              // of the step
	authored     map[string]subject  // authors of the paths that the step touches
	permitted    map[string]string   // as in Standing
	acks         []subject           // users who acknowledge deletions
	trust        bool                // no permission is asked for
	waits        map[string]bool     // unauthorized paths that trust does not cover, unless the step touches them
	acked        bool                // deletions of the step are acknowledged elsewhere

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
				g.refuse(d, estate.HeldDenied)
			} else {
				g.found = append(g.found, d)
			}
		}
	}
	g.holdMoves()
	g.blockDeletions()
}

// refuse vetoes a changed path.
func (g *guard) refuse(d schema.Diagnostic, reason string) {
	if _, ok := slices.BinarySearchFunc(g.changes, d.File, func(c schema.PathChange, p string) int { return cmp.Compare(c.Path, p) }); !ok {
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

// key is what a changed path declares, or declared; zero for no document.
func (g *guard) key(path string) schema.Key {
	if k := g.main.Key(path); !k.IsZero() {
		return k
	}
	return g.before.Key(path)
}

// author is who touched a path. Where a change names only a directory that it is
// in, as there was too much to list or nothing to compare with, somebody did and
// nobody knows who: not all that is there is of whoever touched it last.
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

// waiting is what of a change is permitted and does not come into force: path →
// main's blob. Of a part that cannot be read it is what was known before.
func (g *guard) waiting(f *estate.Force) map[string]string {
	out := map[string]string{}
	for _, c := range g.changes {
		was, waited := g.permitted[c.Path]
		switch _, held := f.Replace[c.Path]; {
		case !held:
		case !g.unpermitted[c.Path]:
			out[c.Path] = c.To
		case waited: // who overwrites it without the right takes nothing from it
			out[c.Path] = was
		}
	}
	for path, blob := range f.Replace {
		if _, changed := slices.BinarySearchFunc(g.changes, path, func(c schema.PathChange, p string) int { return cmp.Compare(c.Path, p) }); changed {
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
	if blob := g.brake(); blob != "" {
		out[pauseFile] = blob
	}
	return out
}

// unread says whether a path is in a part that cannot be read.
func unread(f *estate.Force, path string) bool {
	for dir := range above(path) {
		if _, ok := f.Replace[dir]; ok {
			return true
		}
	}
	return false
}

// authorise asks for the rights of who touched each path. What waited already,
// was permitted and was not touched waits on; what else differs from what is in
// force has nobody's right behind it, however it came to.
func (g *guard) authorise() {
	for _, c := range g.changes {
		who, touched := g.author(c.Path)
		blob, waited := g.permitted[c.Path]
		switch {
		case waited && blob == c.To: // permitted already, by the rules before it, and nobody with the right took it back
		case g.trust && (touched || !g.waits[c.Path]):
		case touched:
			ds := g.d.decisions(who, g.before.Desired, g.main.Desired, g.key(c.Path), c)
			g.decisions[c.Path] = ds
			if why, denied := denial(ds); denied {
				g.unpermitted[c.Path] = true
				g.refusePath(c.Path, CodeAuthority, estate.HeldUnauthorised, "%s", why)
			}
		default:
			g.unpermitted[c.Path] = true
			g.refusePath(c.Path, CodeAuthority, estate.HeldUnauthorised, "no user with the permission is known to have changed it; a user with the permission changes it again or comments /berth apply with the commit that changed it; a revert needs no permission")
		}
	}
}
