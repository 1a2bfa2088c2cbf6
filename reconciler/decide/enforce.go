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

// change is the input of enforce.
type change struct {
	main, previous schema.Snapshot // previous nil: nothing was in force
	permitted      map[string]string
	commit         string
	authored       map[string]subject
	acks           []subject
	today          string
	trust          bool            // no permission is asked for
	waits          map[string]bool // unauthorized paths that trust does not cover, unless they are authored
	acked          bool            // deletions of the authored paths are acknowledged
}

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
	previous := in.previous
	if previous == nil {
		previous = estate.Files(nil)
	}
	before, err := d.o.Loader.Load(ctx, previous)
	if err != nil {
		return nil, fmt.Errorf("the tree in force: %w", err)
	}
	main, err := d.o.Loader.LoadOver(ctx, in.main, before)
	if err != nil {
		return nil, fmt.Errorf("the new tree: %w", err)
	}
	g := &guard{d: d, before: before, main: main, change: in}
	if g.changes, err = d.o.Loader.Compare(ctx, previous, in.main); err != nil && !errors.Is(err, estate.ErrUnreadable) {
		return nil, err
	}
	g.look()
	f, err := d.o.Loader.InForce(ctx, in.main, in.previous, g.vetoes,
		d.refuse(before.Desired, in.today), upgrades(before.Desired), always(renamedInstances(before.Desired, main.Desired)), wholeMoves(g.moves, before, main))
	for _, frozen := range []error{estate.ErrEmpty, estate.ErrUnreadable, estate.ErrInForce} {
		if errors.Is(err, frozen) {
			return nil, fmt.Errorf("%w: %w", ErrFrozen, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return &forced{Force: f, guard: g, before: before.Desired, effective: d.Evaluate(f.Result.Desired, before.Desired, in.today), permitted: g.waiting(f)}, nil
}

// loadAt loads the tree of a commit.
func (d *Decider) loadAt(ctx context.Context, repo Repo, commit string) (*estate.Result, error) {
	tree, err := repo.Snapshot(ctx, commit)
	if err != nil {
		return nil, err
	}
	return d.o.Loader.Load(ctx, tree)
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
		v := Verdict{Commit: by.commit, By: by.in(scope), PullRequest: by.pullRequest, Document: doc, Authority: f.guard.decisions[doc.File]}
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
	docs := documents(g.changes, g.before, g.main)
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

// verb returns the verb for the change of a path.
func verb(c schema.PathChange) string {
	switch "" {
	case c.From:
		return "added"
	case c.To:
		return "deleted"
	}
	return "modified"
}
