package pulls

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/authority"
)

// acknowledgeDeletion acknowledges a held deletion. Here it is only checked whether
// there is such a deletion and whether the user may acknowledge it. The decision
// that releases the deletion reads the comment and the permission again.
func (c *commands) acknowledgeDeletion(ctx context.Context, r *request) (outcome, error) {
	_, deciding, tried := c.acks.pending.result(r.id())
	if deciding {
		return outcome{wait: true}, nil // the decision may be in force already
	}
	held, ok, err := c.heldFor(ctx, r)
	if err != nil {
		return outcome{}, err
	}
	if !ok {
		return outcome{wait: true}, nil
	}
	if tried {
		held = c.state().Held // r.state may be older than the decision
	}
	pr, digest := r.pull, r.Args[0]
	if !pr.Merged && !pr.Open {
		return nothingToDo("the pull request was closed without a merge"), nil
	}
	digests := digestsOf(held)
	isHeld := slices.Contains(digests, digest)
	if tried {
		c.acks.pending.drop(r.id())
	}
	switch {
	case tried && !isHeld:
		return done("acknowledged"), nil
	case tried:
		return refused("the deletion stays held: the user who acknowledges it needs write access to the repository and " +
			"deletions.acknowledge at that moment"), nil
	case len(digests) == 0, pr.Merged && r.comment.When.Before(c.began) && !isHeld: // an earlier run may have released it
		return nothingToDo("no deletion waits for an acknowledgement"), nil
	case !isHeld:
		return refused(fmt.Sprintf("the deletion that is held now has the digest %s; read it, then acknowledge that digest", digests[0])),
			nil
	}
	tenant := tenantOf(held, digest)
	d := c.Decider.Permissions().May(r.state.Desired, r.comment.Author, authority.DeletionsAcknowledge, authority.Scope{Tenant: tenant})
	one := c.auditRecord("deletion.acknowledge",
		&plan.Status{LastApplied: plan.LastApplied{Revision: cmp.Or(pr.MergeCommit, r.state.Main)}}, r, audit.Allowed, d)
	one.OrgID, one.Reason = tenant, digest
	if !d.Allowed {
		one.Verdict, one.Reason = audit.Denied, d.Reason
		c.Status.RecordDenied(one)
		return refused(d.Message()), nil
	}
	c.Status.Record(one)
	if pr.Merged {
		c.acks.pending.add(r.id(), Acked{r.id(), pr.MergeCommit, digest})
		c.Queue.Add(reconciler.Item{Task: reconciler.TaskEstate})
		return outcome{wait: true}, nil // until that is decided
	}
	c.planAgain(pr.Number)
	return recorded("acknowledged", nil), nil
}

// heldFor lists the held changes: now, for a merged pull request, or after the merge,
// for an open one; false while it is too early to plan that.
func (c *commands) heldFor(ctx context.Context, r *request) ([]schema.Held, bool, error) {
	if !r.pull.Open {
		return r.state.Held, true, nil
	}
	b, ok := c.planner.basis()
	if !ok {
		return nil, false, nil
	}
	p, _, err := c.planner.withoutAcks(ctx, &openPull{PullRequest: r.pull}, b, &b.in)
	return p.Held, true, err
}

// tenantOf is the tenant of the deletion with a digest.
func tenantOf(held []schema.Held, digest string) string {
	i := slices.IndexFunc(held, func(h schema.Held) bool { return h.Ack == digest })
	if k := held[i].Key; k.Kind != schema.KindTenant {
		return k.Tenant
	}
	return held[i].Key.Name
}
