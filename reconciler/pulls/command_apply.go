package pulls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/reconciler/provenance"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/authority"
)

const (
	// maxHistory is how many commits of main a command may name.
	maxHistory = 20_000
	// nearHistory is how many commits around one are searched for its pull request.
	nearHistory = 100
	// maxReplacing is how many commits of main are compared to find the one that
	// replaced a document.
	maxReplacing = 500
)

// origin is a commit of main that a command names, and the evidence of its author.
type origin struct {
	commit  reconciler.Commit
	history []reconciler.Commit    // of main, newest first
	pull    reconciler.PullRequest // whose merge the commit is; zero: none
	signed  reconciler.Evidence    // of a commit that no pull request brought
}

// apply brings the held changes of a commit of main into force: unauthorized ones,
// stale plans and blocked deletions. The user must have been able to read the plan:
// a plan that was not posted before is posted, and the user repeats the command.
func (c *commands) apply(ctx context.Context, r *request) (outcome, error) {
	frozen := c.Loop.Main().Frozen
	out, waits, known := c.applies.pending.result(r.id())
	out.answered = func() { c.applies.pending.drop(r.id()) }
	switch {
	case frozen != "" && known: // carried out before the freeze
		return out, nil
	case frozen != "":
		c.applies.pending.drop(r.id())
		return refused("synchronization is frozen: " + frozen + "; repeat the command once it continues"), nil
	case waits:
		return outcome{wait: true}, nil
	}
	o, no, err := c.originOf(ctx, r)
	if err != nil || no != "" {
		return refused(no), err
	}
	if !known {
		if out, err = c.applyDocuments(ctx, r, o); err != nil || out.wait || out.reaction == reconciler.Refused &&
			out.answer.Kind == plan.AnswerRepeat {
			return out, err
		}
	}
	units := c.staleOf(o)
	if len(units) == 0 || out.reaction == reconciler.Refused && known {
		return out, nil
	}
	stale, err := c.approvePlans(ctx, r, o, units)
	if err != nil || stale.wait || out.reaction == reconciler.Understood {
		return stale, err
	}
	if out.reaction == reconciler.Refused { // only of the documents
		out.reaction, out.answer.Kind, out.answer.Did, out.record = stale.reaction, stale.answer.Kind, stale.answer.Did, stale.record
	}
	out.answer.Why = strings.Trim(out.answer.Why+"; "+stale.answer.Why, "; ")
	return out, nil
}

// originOf finds the commit of main that a command names; no is the reason if there is
// no single one.
func (c *commands) originOf(ctx context.Context, r *request) (o origin, no string, err error) {
	if o.history, err = c.Repo.Log(ctx, "", r.state.Main, maxHistory); err != nil {
		return o, "", err
	}
	named := r.Args[0]
	is := func(c reconciler.Commit) bool { return strings.HasPrefix(c.ID, named) }
	at := slices.IndexFunc(o.history, is)
	switch merged := r.pull.MergeCommit; {
	case at < 0 && r.pull.Open:
		return o, fmt.Sprintf("no commit of %s begins with %s, and nothing is held before the merge; name a commit of %s", c.Branch,
			reconciler.Short(named), c.Branch), nil
	case at < 0 && merged != "":
		return o, fmt.Sprintf("no commit of %s begins with %s; this pull request was merged as %s: use /berth apply %s", c.Branch,
			reconciler.Short(named), reconciler.Short(merged), reconciler.Short(merged)), nil
	case at < 0:
		return o, fmt.Sprintf("no commit of %s begins with %s; name the commit that brought the change to %s", c.Branch,
			reconciler.Short(named), c.Branch), nil
	case slices.ContainsFunc(o.history[at+1:], is):
		return o, fmt.Sprintf("several commits of %s begin with %s; give more digits", c.Branch, named), nil
	}
	o.commit = o.history[at]
	near := slices.Clone(o.history[max(0, at-nearHistory):min(len(o.history), at+nearHistory)])
	slices.Reverse(near)
	i := slices.IndexFunc(near, func(c reconciler.Commit) bool { return c.ID == o.commit.ID })
	pr, ok, err := provenance.NewHistory(c.Repo, c.Forge, c.Branch, near).MergedBy(ctx, i)
	if err != nil {
		return o, "", err
	}
	if ok {
		o.pull = pr
		return o, "", nil
	}
	o.signed, err = c.Repo.Evidence(ctx, o.commit.ID)
	return o, "", err
}

// applyDocuments decides a command about the held documents of a commit.
func (c *commands) applyDocuments(ctx context.Context, r *request, o origin) (outcome, error) {
	touched, err := provenance.Touched(ctx, c.Repo, o.commit)
	if err != nil {
		return outcome{}, err
	}
	a := decide.Apply{
		By: r.comment.Author, BreakGlass: r.Reason, Commit: o.commit.ID, Touched: touched, Author: o.pull.Author,
		PullRequest: o.pull.Number,
		Payload:     o.signed.Payload, Signature: o.signed.Signature,
	}
	got, err := c.Decider.Apply(ctx, c.applyInput(r.state), a)
	if errors.Is(err, decide.ErrFrozen) || errors.Is(err, reconciler.ErrUnreadable) {
		return refused(err.Error()), nil
	}
	if err != nil {
		return outcome{}, err
	}
	s := &plan.Status{LastApplied: plan.LastApplied{Revision: o.commit.ID}}
	if got.Digest == "" {
		out, err := c.nothingApplied(ctx, o, got)
		if err == nil && slices.ContainsFunc(got.Left, func(d schema.Held) bool { return d.Reason == schema.HeldUnauthorised }) {
			c.Status.RecordDenied(c.auditRecord("change.apply", s, r, audit.Denied, authority.Decision{Reason: out.answer.Why}))
		}
		return out, err
	}
	switch shown, since := c.reviews.applyShown(o.commit.ID, got.Digest, r.comment.When); {
	case since: // the command is older than the plan that it would confirm
		return refused("the plan was posted after this command; read it below, then repeat the command"), nil
	case !shown:
		out := refused("this plan was not shown before")
		out.answer.Kind, out.answer.Proposal, out.answer.Left = plan.AnswerRepeat, &got.Proposal, leftOf(got)
		out.record = true
		out.answered = func() {
			c.reviews.showApply(r.pull.Number, plan.ApplyShown{Commit: o.commit.ID, Digest: got.Digest, At: c.Now()})
		}
		return out, nil
	}
	c.Status.Record(c.auditRecord("change.apply", s, r, audit.Allowed,
		authority.Decision{Allowed: true,
			Reason: fmt.Sprintf("%d documents of %s; plan %s", len(got.Taken), reconciler.Short(o.commit.ID),
				reconciler.Short(got.Digest))}))
	if err := c.flush(ctx); err != nil {
		return outcome{}, err
	}
	c.applies.pending.add(r.id(), Applying{r.id(), a, got.Digest})
	c.Queue.Add(reconciler.Item{Task: reconciler.TaskEstate})
	return outcome{wait: true}, nil
}

// leftOf lists the documents of a commit that a command does not bring into force.
func leftOf(got decide.Applied) []schema.Held {
	left := slices.Clone(got.Left)
	for _, path := range got.Replaced {
		left = append(left, schema.Held{File: path, Message: "a later commit replaced it"})
	}
	return left
}

// nothingApplied is the outcome of a command that brings no document into force.
func (c *commands) nothingApplied(ctx context.Context, o origin, got decide.Applied) (outcome, error) {
	var no []string
	for _, d := range got.Left {
		no = append(no, fmt.Sprintf("%s stays held (%s): %s", d.File, d.Why(), d.Message))
	}
	switch {
	case len(no) > 0:
		return refused(joinSome(no)), nil
	case len(got.Replaced) == 0 || len(c.staleOf(o)) > 0:
		return nothingToDo("nothing that this commit changed is held"), nil
	}
	file := got.Replaced[0]
	by, err := c.replacedBy(ctx, o, file)
	if by == "" {
		return refused(fmt.Sprintf("a later commit replaced %s; use /berth apply with the newest commit that changed it", file)), err
	}
	return refused(fmt.Sprintf("%s replaced %s; use /berth apply %s", reconciler.Short(by), file, reconciler.Short(by))), err
}

// replacedBy is the newest commit of main that changed a path after the origin; ""
// if it is not among the last maxReplacing.
func (c *commands) replacedBy(ctx context.Context, o origin, path string) (string, error) {
	for _, later := range o.history[:min(len(o.history), maxReplacing)] {
		if later.ID == o.commit.ID {
			break
		}
		paths, err := provenance.Touched(ctx, c.Repo, later)
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(paths, func(p reconciler.PathChange) bool { return p.Path == path }) {
			return later.ID, nil
		}
	}
	return "", nil
}

// staleOf lists the units whose plan is held as stale after the merge of a commit.
func (c *commands) staleOf(o origin) []*plan.Status {
	return c.units(func(s *plan.Status) bool {
		return s.Review != nil && s.Review.Stale != nil &&
			(s.Revision == o.commit.ID || o.pull.MergeCommit == o.commit.ID && s.Review.Pull == o.pull.Number)
	})
}

// approvePlans approves the stale plans of units as the roll-out comment shows
// them.
func (c *commands) approvePlans(ctx context.Context, r *request, o origin, units []*plan.Status) (outcome, error) {
	if slices.ContainsFunc(units, func(s *plan.Status) bool { return postedPlan(s) == nil }) {
		return outcome{wait: true}, nil // until the plan is posted nobody can have read it
	}
	approved, no, err := c.changeUnits(ctx, r, o.pull, units, "plan.meant", func(was, now *plan.Status) (string, bool) {
		if postedPlan(was).At.After(r.comment.When) {
			return fmt.Sprintf("the plan of %s was posted after this command; read it, then repeat the command", was.Key), false
		}
		if now.Revision != was.Revision || now.Review == nil || now.Review.Stale == nil || now.Review.Stale.Now != was.Review.Stale.Now {
			return fmt.Sprintf("the plan of %s changed meanwhile; read the new plan, then repeat the command", was.Key), false
		}
		review := *now.Review
		review.Meant, review.By = review.Stale.Now, r.comment.Author
		now.Review, now.Retry = &review, nil
		return "", true
	})
	switch {
	case err != nil:
		return outcome{}, err
	case len(approved) == 0:
		return refused(joinSome(no)), nil
	}
	return recorded("applied", no), nil
}
