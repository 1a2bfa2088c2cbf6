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
	"berth/schema/audit"
	"berth/schema/authority"
	"berth/schema/estate"
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
func (h *CommandHandler) apply(ctx context.Context, r *request) (outcome, error) {
	frozen := h.Loop.Main().Frozen
	out, waits, known := h.applies.result(r.id())
	out.answered = func() { h.applies.drop(r.id()) }
	switch {
	case frozen != "" && known: // carried out before the freeze
		return out, nil
	case frozen != "":
		h.applies.drop(r.id())
		return refused("synchronization is frozen: " + frozen + "; repeat the command once it continues"), nil
	case waits:
		return outcome{wait: true}, nil
	}
	o, no, err := h.originOf(ctx, r)
	if err != nil || no != "" {
		return refused(no), err
	}
	if !known {
		if out, err = h.applyDocuments(ctx, r, o); err != nil || out.wait || out.reaction == reconciler.Refused && out.answer.Kind == plan.AnswerRepeat {
			return out, err
		}
	}
	units := h.staleOf(o)
	if len(units) == 0 || out.reaction == reconciler.Refused && known {
		return out, nil
	}
	stale, err := h.approvePlans(ctx, r, o, units)
	if err != nil || stale.wait || out.reaction == reconciler.Understood {
		return stale, err
	}
	if out.reaction == reconciler.Refused { // only of the documents
		out.reaction, out.answer.Kind, out.answer.Did, out.record = stale.reaction, stale.answer.Kind, stale.answer.Did, stale.record
	}
	out.answer.Why = strings.Trim(out.answer.Why+"; "+stale.answer.Why, "; ")
	return out, nil
}

// originOf finds the commit of main that a command names; no is the reason if it finds no single one.
func (h *CommandHandler) originOf(ctx context.Context, r *request) (o origin, no string, err error) {
	if o.history, err = h.Repo.Log(ctx, "", r.state.Main, maxHistory); err != nil {
		return o, "", err
	}
	named := r.Args[0]
	is := func(c reconciler.Commit) bool { return strings.HasPrefix(c.ID, named) }
	at := slices.IndexFunc(o.history, is)
	switch merged := r.pull.MergeCommit; {
	case at < 0 && r.pull.Open:
		return o, fmt.Sprintf("no commit of %s begins with %s, and nothing is held before the merge; name a commit of %s", h.Branch, reconciler.Short(named), h.Branch), nil
	case at < 0 && merged != "":
		return o, fmt.Sprintf("no commit of %s begins with %s; this pull request was merged as %s: use /berth apply %s", h.Branch, reconciler.Short(named), reconciler.Short(merged), reconciler.Short(merged)), nil
	case at < 0:
		return o, fmt.Sprintf("no commit of %s begins with %s; name the commit that brought the change to %s", h.Branch, reconciler.Short(named), h.Branch), nil
	case slices.ContainsFunc(o.history[at+1:], is):
		return o, fmt.Sprintf("several commits of %s begin with %s; give more digits", h.Branch, named), nil
	}
	o.commit = o.history[at]
	near := slices.Clone(o.history[max(0, at-nearHistory):min(len(o.history), at+nearHistory)])
	slices.Reverse(near)
	i := slices.IndexFunc(near, func(c reconciler.Commit) bool { return c.ID == o.commit.ID })
	pr, ok, err := provenance.NewHistory(h.Repo, h.Forge, h.Branch, near).MergedBy(ctx, i)
	if err != nil {
		return o, "", err
	}
	if ok {
		o.pull = pr
		return o, "", nil
	}
	o.signed, err = h.Repo.Evidence(ctx, o.commit.ID)
	return o, "", err
}

// applyDocuments decides a command about the held documents of a commit.
func (h *CommandHandler) applyDocuments(ctx context.Context, r *request, o origin) (outcome, error) {
	touched, err := provenance.Touched(ctx, h.Repo, o.commit)
	if err != nil {
		return outcome{}, err
	}
	a := decide.Apply{
		By: r.comment.Author, BreakGlass: r.Reason, Commit: o.commit.ID, Touched: touched, Author: o.pull.Author, PullRequest: o.pull.Number,
		Payload: o.signed.Payload, Signature: o.signed.Signature,
	}
	got, err := h.Decider.Apply(ctx, h.applyInput(r.state), a)
	if errors.Is(err, decide.ErrFrozen) || errors.Is(err, reconciler.ErrUnreadable) {
		return refused(err.Error()), nil
	}
	if err != nil {
		return outcome{}, err
	}
	s := &plan.Status{Revision: o.commit.ID}
	if got.Digest == "" {
		out, err := h.nothingApplied(ctx, o, got)
		if err == nil && slices.ContainsFunc(got.Left, func(d plan.Held) bool { return d.Reason == estate.HeldUnauthorised }) {
			h.Status.RecordDenied(h.auditRecord("change.apply", s, r, audit.Denied, authority.Decision{Reason: out.answer.Why}))
		}
		return out, err
	}
	switch shown, since := h.reviews.applyShown(o.commit.ID, got.Digest, r.comment.When); {
	case since: // the command is older than the plan that it would confirm
		return refused("the plan was posted after this command; read it below, then repeat the command"), nil
	case !shown:
		out := refused("this plan was not shown before")
		out.answer.Kind, out.answer.Proposal, out.answer.Left = plan.AnswerRepeat, &got.Proposal, leftOf(got)
		out.record = true
		out.answered = func() {
			h.reviews.showApply(r.pull.Number, plan.ApplyShown{Commit: o.commit.ID, Digest: got.Digest, Told: h.Now()})
		}
		return out, nil
	}
	h.Status.Record(h.auditRecord("change.apply", s, r, audit.Allowed,
		authority.Decision{Allowed: true, Reason: fmt.Sprintf("%d documents of %s; plan %s", len(got.Taken), reconciler.Short(o.commit.ID), reconciler.Short(got.Digest))}))
	if err := h.flush(ctx); err != nil {
		return outcome{}, err
	}
	h.applies.add(Applying{r.id(), a, got.Digest})
	return outcome{wait: true}, nil
}

// leftOf lists the documents of a commit that a command does not bring into force.
func leftOf(got decide.Applied) []plan.Held {
	left := slices.Clone(got.Left)
	for _, path := range got.Replaced {
		left = append(left, plan.Held{File: path, Message: "a later commit replaced it"})
	}
	return left
}

// nothingApplied is the outcome of a command that brings no document into force.
func (h *CommandHandler) nothingApplied(ctx context.Context, o origin, got decide.Applied) (outcome, error) {
	var no []string
	for _, d := range got.Left {
		no = append(no, fmt.Sprintf("%s stays held (%s): %s", d.File, d.Why(), d.Message))
	}
	switch {
	case len(no) > 0:
		return refused(joinSome(no)), nil
	case len(got.Replaced) == 0 || len(h.staleOf(o)) > 0:
		return nothingToDo("nothing that this commit changed is held"), nil
	}
	file := got.Replaced[0]
	by, err := h.replacedBy(ctx, o, file)
	if by == "" {
		return refused(fmt.Sprintf("a later commit replaced %s; use /berth apply with the newest commit that changed it", file)), err
	}
	return refused(fmt.Sprintf("%s replaced %s; use /berth apply %s", reconciler.Short(by), file, reconciler.Short(by))), err
}

// replacedBy is the newest commit of main that changed a path after the origin; ""
// if it is not among the last maxReplacing.
func (h *CommandHandler) replacedBy(ctx context.Context, o origin, path string) (string, error) {
	for _, c := range o.history[:min(len(o.history), maxReplacing)] {
		if c.ID == o.commit.ID {
			break
		}
		paths, err := provenance.Touched(ctx, h.Repo, c)
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(paths, func(p reconciler.PathChange) bool { return p.Path == path }) {
			return c.ID, nil
		}
	}
	return "", nil
}

// staleOf lists the units whose plan is held as stale after the merge of a commit.
func (h *CommandHandler) staleOf(o origin) []*plan.Status {
	return h.units(func(s *plan.Status) bool {
		return s.Review != nil && s.Review.Stale != nil &&
			(s.Revision == o.commit.ID || o.pull.MergeCommit == o.commit.ID && s.Review.Pull == o.pull.Number)
	})
}

// approvePlans approves the stale plans of units as the roll-out comment shows
// them.
func (h *CommandHandler) approvePlans(ctx context.Context, r *request, o origin, units []*plan.Status) (outcome, error) {
	if slices.ContainsFunc(units, func(s *plan.Status) bool { return postedPlan(s) == nil }) {
		return outcome{wait: true}, nil // until the plan is posted nobody can have read it
	}
	permissions, err := h.permissionsFor(ctx, r, o.pull, units)
	if err != nil {
		return outcome{}, err
	}
	var no []string
	approved := 0
	for i, s := range units {
		if postedPlan(s).Told.After(r.comment.When) {
			no = append(no, fmt.Sprintf("the plan of %s was posted after this command; read it, then repeat the command", s.Key))
			continue
		}
		d := permissions[i]
		if !d.Allowed {
			h.Status.RecordDenied(h.auditRecord("plan.meant", s, r, audit.Denied, d))
			no = append(no, d.Message())
			continue
		}
		if !amend(h.Status, s.Key, func(now *plan.Status) bool {
			if now.Revision != s.Revision || now.Review == nil || now.Review.Stale == nil || now.Review.Stale.Now != s.Review.Stale.Now {
				return false
			}
			review := *now.Review
			review.Meant, review.By = review.Stale.Now, r.comment.Author
			now.Review, now.Retry = &review, nil
			return true
		}) {
			no = append(no, fmt.Sprintf("the plan of %s changed meanwhile; read the new plan, then repeat the command", s.Key))
			continue
		}
		h.Status.Record(h.auditRecord("plan.meant", s, r, audit.Allowed, d))
		h.Queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: s.Key})
		approved++
	}
	if approved == 0 {
		return refused(joinSome(no)), nil
	}
	out := done("applied")
	out.record, out.answer.Why = true, joinSome(no)
	return out, nil
}
