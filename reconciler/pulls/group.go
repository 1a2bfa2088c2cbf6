package pulls

import (
	"context"
	"errors"
	"strings"
	"time"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
)

// queueRefs is where a forge's merge queue puts the groups that it would make
// main of, below the branch's name.
const queueRefs = "refs/heads/gh-readonly-queue/"

// groupAgain is when a group is looked at again that cannot be planned yet.
const groupAgain = 5 * time.Second

func (r *Pulls) groupsOf() string { return queueRefs + r.o.Branch + "/" }

// listGroups finds the groups that no webhook told of, and forgets those that
// are gone.
func (r *Pulls) listGroups(ctx context.Context) error {
	refs, err := r.o.Repo.Refs(ctx, r.groupsOf())
	if err != nil {
		return err
	}
	r.shows.listed(refs)
	for ref := range refs {
		if !r.shows.knows(target{ref: ref}) {
			r.o.Enqueue(reconciler.Item{Task: reconciler.TaskGroup, Ref: ref})
		}
	}
	for _, ref := range r.shows.refs() {
		if refs[ref] == "" {
			r.shows.drop(target{ref: ref})
		}
	}
	return nil
}

// PlanGroup plans what a group of the merge queue would do, and has its
// checks reported on the group's head, without which the queue stands still.
// There is nobody to comment to, and whose right it is and who acknowledges what
// it deletes was asked on each pull request and is asked again once it is merged. While nothing can be planned,
// only what is written is judged: a check that fails would throw out of the
// queue what has done nothing wrong.
func (r *Pulls) PlanGroup(ctx context.Context, ref string) (again time.Duration, err error) {
	if !strings.HasPrefix(ref, r.groupsOf()) {
		return 0, nil
	}
	head, err := r.o.Repo.FetchRef(ctx, ref)
	if errors.Is(err, reconciler.ErrNotFound) {
		r.shows.drop(target{ref: ref})
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	b, ok := r.basis()
	if !ok {
		return undecidedAgain, nil
	}
	c := plan.PullContext{Queue: true, Paused: b.paused}
	b.in.Head, b.in.Acked = head, true
	p, err := r.o.Decider.Proposal(ctx, b.in)
	switch {
	case errors.Is(err, reconciler.ErrUnreadable), errors.Is(err, decide.ErrFrozen):
		p = notLookedAt(b, head, err)
	case err != nil:
		return 0, err
	}
	x := &showing{target: target{ref: ref}, head: head, checks: r.o.Render.Checks(p, c)}
	if b.frozen != "" {
		x.checks = x.checks[:1]
		again = groupAgain
	}
	if r.shows.add(x) {
		r.o.Enqueue(reconciler.Item{Task: reconciler.TaskShow})
	}
	return again, nil
}
