package pulls

import (
	"context"
	"strings"

	"berth/reconciler/plan"
)

// retry has the units of a merged pull request tried again that failed for good, or
// wait for their next try.
func (c *commands) retry(ctx context.Context, r *request) (outcome, error) {
	if !r.pull.Merged {
		return nothingToDo("the pull request is not merged"), nil
	}
	units := c.units(func(s *plan.Status) bool { return s.Retry != nil && c.isOf(s, r.pull) })
	if len(units) == 0 {
		return nothingToDo("no instance of this pull request gave up or waits to try again"), nil
	}
	retried, no, err := c.changeUnits(ctx, r, r.pull, units, "unit.retry", func(was, now *plan.Status) (string, bool) {
		waits := now.Revision == was.Revision && now.Retry != nil // else it is tried already, or another commit changed it
		now.Retry = nil
		return "", waits
	})
	c.Loop.Retried(len(retried))
	switch {
	case err != nil:
		return outcome{}, err
	case len(no) == len(units):
		return refused(joinSome(no)), nil
	}
	return recorded(strings.TrimSpace("retried "+joinSome(retried)), no), nil
}
