package pulls

import (
	"context"
	"errors"
	"time"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
)

// groupAgain is when a group is planned again that cannot be planned yet.
const groupAgain = 5 * time.Second

// listGroups plans the groups that no webhook reported, and forgets those that are
// gone.
func (p *Planner) listGroups(ctx context.Context) error {
	refs, err := p.Repo.Groups(ctx)
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
	head, err := p.Repo.FetchGroup(ctx, ref)
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
