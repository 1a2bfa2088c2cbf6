package pulls

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
)

const (
	// flushTimeout is how long recording a result may take before it is published.
	flushTimeout = 15 * time.Second
	// maxPublishTries is how often publishing one result is tried.
	maxPublishTries = 8
	// movedAgain is when a pull request whose head moved is planned again.
	movedAgain = 2 * time.Second
)

// Publisher publishes plans and checks at the forge.
type Publisher struct {
	*env
	queue *publishQueue
}

// ShowAgain publishes the result of a pull request, or with 0 of all, at the next
// plan even if it is the same.
func (p *Publisher) ShowAgain(pull int) { p.queue.request(pull) }

// Shows reports whether checks are shown on a commit, or will be: it is the head of
// an open pull request as far as is known, or of a group of the merge queue.
func (p *Publisher) Shows(commit string) bool { return p.queue.isOn(commit) || p.open.hasHead(commit) }

// Shown returns the records of the last and of the next publication on a pull request; nil: none.
func (p *Publisher) Shown(pull int) (shown, next *plan.Shown) { return p.reviews.shownOf(pull) }

// add takes in a result.
func (p *Publisher) add(x *publication) {
	if p.queue.add(x) {
		p.Queue.Add(reconciler.Item{Task: reconciler.TaskShow})
	}
}

// Publish publishes the most urgent result, and returns when to publish another; 0:
// nothing waits. It is one item of its queue, so that comments on roll-outs and
// answers have their turn in between.
func (p *Publisher) Publish(ctx context.Context) (again time.Duration, err error) {
	x, wait := p.queue.next(p.Now(), p.Status.PushSoon(p.queue.recorded()))
	if x == nil {
		return wait, nil
	}
	err = p.publish(ctx, x)
	var later *reconciler.RetryAfterError
	switch {
	case ctx.Err() != nil:
		return 0, nil
	case err == nil:
		p.queue.done(x, true)
	case errors.As(err, &later): // the forge would refuse any other one too
		p.queue.pause(later.At)
		return 0, err
	case errors.Is(err, reconciler.ErrHeadMoved):
		p.Log.Info("pull request changed; comment not updated", "pull", x.pull, "planned", reconciler.Short(x.head), "reason", err)
		p.queue.done(x, false)
		p.open.markStale(x.pull)
		p.Queue.AddAfter(reconciler.Item{Task: reconciler.TaskPull, Pull: x.pull}, movedAgain)
	case errors.Is(err, reconciler.ErrNotFound):
		p.Log.Warn("checks or comment not published: the pull request or commit is gone", "target", x.target.String(), "error", err)
		p.queue.done(x, false)
	default:
		tries := p.queue.retry(x, p.Now().Add(min(500*time.Millisecond<<min(x.tries, 10), 30*time.Second)))
		p.Log.Warn("checks or comment not published; trying again", "target", x.target.String(), "tries", tries, "error", err)
		if tries >= maxPublishTries {
			p.queue.done(x, false)
		}
	}
	return time.Nanosecond, nil
}

// publish publishes a result in this order: it is recorded, then come the checks,
// then the comment. So an interruption leaves no check without its comment waiting,
// and nothing is shown that is unknown after a restart. A pull request that was
// merged on an earlier plan keeps that plan: nobody saw the new one. If the earlier one
// did not pass, a merge after the new checks is a merge on the new plan.
func (p *Publisher) publish(ctx context.Context, x *publication) error {
	if x.pull == 0 {
		return p.report(ctx, x)
	}
	flush, cancel := context.WithTimeout(ctx, flushTimeout)
	err := p.Status.FlushTo(flush, x.recorded)
	cancel()
	if err != nil {
		return fmt.Errorf("%s: record the result before it is published: %w", x.target, err)
	}
	v := p.reviews.review(x.pull)
	earlier := v != nil && v.Head == x.head && v.Key != x.shown.Key // another plan of the same head was shown
	passed := earlier && v.Passed
	if earlier {
		if _, err := p.pullOf(ctx, x, true); err != nil {
			return err
		}
	}
	if err := p.report(ctx, x); err != nil {
		return err
	}
	if !passed || x.plan == nil {
		p.reviews.wasShown(x.pull, x.shown)
	}
	if x.plan == nil {
		return nil
	}
	pr, err := p.pullOf(ctx, x, passed)
	if err != nil {
		return err
	}
	if passed {
		p.reviews.wasShown(x.pull, x.shown)
	}
	if !p.isCurrent(pr, x) {
		return fmt.Errorf("planned at %s, but the forge has it at %s for %s (open: %t): %w", reconciler.Short(x.head),
			reconciler.Short(pr.Head), pr.BaseBranch, pr.Open, reconciler.ErrHeadMoved)
	}
	return p.Forge.Comment(ctx, x.pull, reconciler.Comment{Plan: x.plan})
}

// isCurrent reports whether a pull request has the head of a result, also if it was merged as soon as the checks succeeded.
func (p *Publisher) isCurrent(pr reconciler.PullRequest, x *publication) bool {
	return pr.Head == x.head && (pr.Open || pr.Merged) && pr.BaseBranch == p.Branch
}

// report reports the checks of a result.
func (p *Publisher) report(ctx context.Context, x *publication) error {
	for _, c := range x.checks {
		c.Pull = x.pull
		if err := p.Forge.Report(ctx, x.head, c); err != nil {
			return fmt.Errorf("%s: check %s: %w", x.target, c.Name, err)
		}
	}
	return nil
}

// pullOf reads the pull request of a result; ErrHeadMoved if it was merged on an
// earlier plan.
func (p *Publisher) pullOf(ctx context.Context, x *publication, earlier bool) (reconciler.PullRequest, error) {
	pr, err := p.Forge.Pull(ctx, x.pull)
	if err == nil && earlier && pr.Merged {
		p.reviews.notShown(x.pull, x.shown)
		err = fmt.Errorf("merged on the plan that was shown before: %w", reconciler.ErrHeadMoved)
	}
	return pr, err
}
