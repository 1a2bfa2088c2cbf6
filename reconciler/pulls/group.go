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

// queueRefs is where a forge's merge queue puts the groups that it would make main
// of, below the name of the branch.
const queueRefs = "refs/heads/gh-readonly-queue/"

// groupAgain is when a group is planned again that cannot be planned yet.
const groupAgain = 5 * time.Second

func (p *Planner) groupPrefix() string { return queueRefs + p.Branch + "/" }

// listGroups plans the groups that no webhook reported, and forgets those that are
// gone.
func (p *Planner) listGroups(ctx context.Context) error {
	refs, err := p.Repo.Refs(ctx, p.groupPrefix())
	if err != nil {
		return err
	}
	for _, ref := range p.publisher.queue.setGroups(refs) {
		p.Queue.Add(reconciler.Item{Task: reconciler.TaskGroup, Ref: ref})
	}
	return nil
}

// PlanGroup plans a group of the merge queue, and reports the checks on the head of
// the group, for which the queue waits. A group has no comment.
// Permissions and acknowledgements were checked on each pull request and are
// checked again after the merge. While nothing can be planned only documents are
// checked: a failing check would remove innocent changes from the queue.
func (p *Planner) PlanGroup(ctx context.Context, ref string) (again time.Duration, err error) {
	if !strings.HasPrefix(ref, p.groupPrefix()) {
		return 0, nil
	}
	head, err := p.Repo.FetchRef(ctx, ref)
	if errors.Is(err, reconciler.ErrNotFound) {
		p.publisher.queue.drop(target{ref: ref})
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	b, ok := p.basis()
	if !ok {
		return undecidedAgain, nil
	}
	b.in.Head, b.in.Acked = head, true
	proposal, err := p.Decider.Proposal(ctx, b.in)
	switch {
	case errors.Is(err, reconciler.ErrUnreadable), errors.Is(err, decide.ErrFrozen):
		proposal = unplanned(b, head, err)
	case err != nil:
		return 0, err
	}
	x := &publication{target: target{ref: ref}, head: head,
		checks: p.Render.Checks(proposal, plan.PullContext{Queue: true, Paused: b.paused})}
	if b.frozen != "" {
		x.checks = x.checks[:1]
		again = groupAgain
	}
	p.publisher.add(x)
	return again, nil
}
