package slurm

import (
	"cmp"
	"context"

	"berth/schema"
)

// A project is detached in this order, so that a crash at any point leaves no job without its
// account and no partition open to others: its account takes no new jobs; its queued jobs are
// cancelled and its running ones end; the records of what they used go to berth/status; partitions no longer name the account and its QoS;
// then associations, account and QoS are removed.

// detach ends the jobs of projects that are being detached, whose accounts are closed. An account
// without jobs is no longer in the record; the files and the removal of it follow. A project whose
// jobs run delays no other one.
func (c associations) detach(ctx context.Context) (waits waitList, err error) {
	var left []schema.EffectiveAttachment
	for _, a := range c.rec.Detaching {
		before := len(waits)
		if err := waits.unless(c.endProject(ctx, a)); err != nil {
			return nil, err
		}
		if len(waits) == before {
			if err := waits.unless(jobRecords{c.control}.recordUsage(ctx, a.ProjectID)); err != nil {
				return nil, err
			}
		}
		if len(waits) > before {
			left = append(left, a)
		}
	}
	if len(left) == len(c.rec.Detaching) {
		return waits, nil
	}
	c.rec.Detaching = left
	// A unit without attachments has another account.
	return waits, waits.unless(c.settleNow(ctx))
}

// endProject closes the account of a project and ends its jobs.
func (c associations) endProject(ctx context.Context, a schema.EffectiveAttachment) error {
	target, filter := accountTarget(a.ProjectID), only("--account="+a.ProjectID)
	if err := c.close(ctx, target); err != nil {
		return err
	}
	if err := c.jobs.cancelPending(ctx, filter); err != nil {
		return err
	}
	return c.jobs.endBy(ctx, cmp.Or(a.OnJobs, c.rec.Unit.Effective.OnJobs), target, filter)
}
