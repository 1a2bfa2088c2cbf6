package decide

import (
	"context"
	"errors"
	"fmt"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
)

// ErrFrozen: a tree must not be taken over. It is empty, its platform is unreadable,
// or the documents in force no longer load. They stay in force.
var ErrFrozen = errors.New("not taken over")

// forced is a tree in force, evaluated.
type forced struct {
	*estate.Force
	guard     *guard
	before    *schema.Desired // in force before
	effective *schema.Effective
	permitted map[string]string // as in Standing
}

// enforce decides which part of main comes into force over previous.
func (d *Decider) enforce(ctx context.Context, in change) (*forced, error) {
	in.facts.takesOver = in.previous == nil
	g, err := d.compare(ctx, in)
	if err != nil {
		return nil, err
	}
	g.judge()
	before, main := g.before, g.main
	f, err := d.o.Loader.InForce(ctx, main, before, g.vetoes,
		d.ruled(before.Desired, in.today), d.refuse(before.Desired, in.today), operations(before.Desired, in.facts),
		gpuHours(before.Desired, in.facts),
		upgrades(before.Desired), uids(before.Desired),
		renamed(before.Desired), wholeMoves(g.moves, before, main))
	for _, frozen := range []error{estate.ErrEmpty, estate.ErrUnreadable, estate.ErrInForce} {
		if errors.Is(err, frozen) {
			return nil, fmt.Errorf("%w: %w", ErrFrozen, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return &forced{Force: f, guard: g, before: before.Desired, effective: d.Evaluate(f.Result.Desired, before.Desired, in.today),
		permitted: g.waiting(f)}, nil
}

// verdicts are the outcomes for the documents that the step touched, and for those
// that were held until now.
func (f *forced) verdicts(commit string) []Verdict {
	held := map[string]schema.Held{}
	for _, h := range f.Held {
		held[h.File] = h
	}
	var out []Verdict
	for _, doc := range f.guard.documents() {
		by, touched := f.guard.author(doc.File)
		h, isHeld := held[doc.File]
		if isHeld && !touched {
			continue // its own step reported it
		}
		scope := authority.Scope{Tenant: doc.Key.Tenant, Project: doc.Key.Project}
		v := Verdict{Commit: by.commit, By: by.in(scope), PullRequest: by.pullRequest, Document: doc,
			Authority: f.guard.decisions[doc.File]}
		if !touched {
			v.Commit = commit
		}
		if isHeld {
			v.Held = &h
		}
		out = append(out, v)
	}
	return out
}

// documents are the changes of documents, and of other files that needed a permission.
func (g *guard) documents() []plan.DocumentChange {
	docs := documents(g.changes, g.before, g.main, g.moves)
	listed := map[string]bool{}
	for _, doc := range docs {
		listed[doc.File], listed[doc.From] = true, true
	}
	for _, c := range g.changes {
		if len(g.decisions[c.Path]) > 0 && !listed[c.Path] {
			docs = append(docs, plan.DocumentChange{File: c.Path, Change: verb(c)})
		}
	}
	return docs
}

// judge fills the second group of fields.
func (g *guard) judge() {
	g.vetoes, g.decisions, g.unpermitted = map[string]estate.Veto{}, map[string][]authority.Decision{}, map[string]bool{}
	g.authorise()
	g.moves = movesOf(g.changes, g.before, g.main, func(from, to string) bool {
		return !g.isStrangers(to, []schema.PathChange{{Path: from}})
	})
	g.protect()
	g.holdMoves()
	g.blockDeletions()
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

// keptPause returns the blob of a permitted pause that never came into force because
// it is unreadable, and that was deleted without permission; or "".
func (g *guard) keptPause() string {
	blob := g.permitted[pauseFile]
	who, touched := g.author(pauseFile)
	switch {
	case blob == "" || touches(g.changes, pauseFile) || g.trust && touched:
		return ""
	case !touched:
		return blob
	}
	gone := schema.PathChange{Path: pauseFile, From: blob}
	key := schema.Key{Kind: schema.KindPause, Name: "pause"}
	if _, denied := denial(g.d.Permissions().decisions(who, g.before.Desired, g.main.Desired, key, gone)); denied {
		return blob
	}
	return ""
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
			g.decisions[c.Path] = g.decide(who, c)
			if why, denied := denial(g.decisions[c.Path]); denied {
				g.unpermitted[c.Path] = true
				g.refusePath(c.Path, CodeAuthority, schema.HeldUnauthorised, "%s", why)
			}
		default:
			g.unpermitted[c.Path] = true
			g.refusePath(c.Path, CodeAuthority, schema.HeldUnauthorised,
				"no user with the permission is known to have changed it; a user with the permission changes it again or comments /berth "+
					"apply with the commit that changed it; a revert needs no permission")
		}
	}
}
