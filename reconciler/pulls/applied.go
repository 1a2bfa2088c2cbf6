package pulls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"berth/reconciler"
	"berth/reconciler/command"
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
	// nearHistory is how many commits around one are looked at to find the pull
	// request that it is of.
	nearHistory = 100
	// maxReplacing is how many commits of main are compared to find the one that
	// replaced a document.
	maxReplacing = 500
)

// applies are the commands that the estate task is to carry out, and their
// outcomes. They are lost with the process: the next daemon reads a command
// without an answer again.
type applies struct {
	mu      sync.Mutex
	waiting map[remarkID]Applying
	done    map[remarkID]reply
}

// Applying is one command: its request, and the digest of the plan that was posted.
type Applying struct {
	remark remarkID
	Apply  decide.Apply
	Digest string
}

func (a *applies) ask(one Applying) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting, a.done = map[remarkID]Applying{}, map[remarkID]reply{}
	}
	a.waiting[one.remark] = one
}

// next returns the oldest command that waits.
func (a *applies) next() (Applying, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var first Applying
	for id, one := range a.waiting {
		if first.remark.id == 0 || id.id < first.remark.id {
			first = one
		}
	}
	return first, len(a.waiting) > 0
}

func (a *applies) decided(id remarkID, out reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.done) > maxTried {
		clear(a.done)
	}
	delete(a.waiting, id)
	a.done[id] = out
}

// result is the outcome of a command, if it is known. waits is true while the
// estate task has not decided it. The outcome is kept until drop: the answer may
// have to be tried again.
func (a *applies) result(id remarkID) (out reply, waits, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, waits = a.waiting[id]
	out, known = a.done[id]
	return out, waits, known
}

// drop forgets a command and its outcome.
func (a *applies) drop(id remarkID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, id)
	delete(a.done, id)
}

// origin is a commit of main that a command names, and the evidence of its author.
type origin struct {
	commit  reconciler.Commit
	history []reconciler.Commit    // of main, newest first
	pull    reconciler.PullRequest // whose merge the commit is; the zero value: none
	signed  reconciler.Evidence    // signature of a commit that no pull request brought
}

// applyHeld brings into force what a commit of main changed and what is held of it
// as unauthorized, as a stale plan or as a blocked deletion. The user must have
// been able to read the plan: a plan that was not posted before is posted, and the
// command has to be repeated.
func (r *Pulls) applyHeld(ctx context.Context, st *reconciler.State, c command.Command, pr reconciler.PullRequest, rem reconciler.CommandComment) (reply, error) {
	id := remarkID{rem.Pull, rem.ID}
	frozen := r.o.Main().Frozen
	out, waits, known := r.applies.result(id)
	out.answered = func() { r.applies.drop(id) }
	switch {
	case frozen != "" && known: // it was carried out before the freeze
		return out, nil
	case frozen != "":
		r.applies.drop(id)
		return refuse("synchronization is frozen: " + frozen + "; repeat the command once it continues"), nil
	case waits:
		return reply{wait: true}, nil
	}
	o, no, err := r.originOf(ctx, st, c, pr)
	if err != nil || no != "" {
		return refuse(no), err
	}
	if !known {
		if out, err = r.applyDocuments(ctx, st, c, o, pr, rem); err != nil || out.wait || out.reaction == reconciler.Refused && out.answer.Kind == plan.AnswerRepeat {
			return out, err
		}
	}
	units := r.staleOf(o)
	if len(units) == 0 || out.reaction == reconciler.Refused && known {
		return out, nil
	}
	stale, err := r.applyStale(ctx, st, o, pr, rem, units)
	if err != nil || stale.wait || out.reaction == reconciler.Understood {
		return stale, err
	}
	if out.reaction == reconciler.Refused { // of the documents; the units are another matter
		out.reaction, out.answer.Kind, out.answer.Did, out.record = stale.reaction, stale.answer.Kind, stale.answer.Did, stale.record
	}
	out.answer.Why = strings.Trim(out.answer.Why+"; "+stale.answer.Why, "; ")
	return out, nil
}

// originOf is the commit of main that a command names; no says why there is none.
func (r *Pulls) originOf(ctx context.Context, st *reconciler.State, c command.Command, pr reconciler.PullRequest) (o origin, no string, err error) {
	if o.history, err = r.o.Repo.Log(ctx, "", st.Main, maxHistory); err != nil {
		return o, "", err
	}
	at := slices.IndexFunc(o.history, func(x reconciler.Commit) bool { return c.Names(x.ID) })
	switch {
	case at < 0 && pr.Open:
		return o, fmt.Sprintf("no commit of %s begins with %s, and nothing is held before the merge; name a commit of %s", r.o.Branch, reconciler.Short(c.Bound), r.o.Branch), nil
	case at < 0 && pr.MergeCommit != "":
		return o, fmt.Sprintf("no commit of %s begins with %s; this pull request was merged as %s: use /berth apply %s", r.o.Branch, reconciler.Short(c.Bound), reconciler.Short(pr.MergeCommit), reconciler.Short(pr.MergeCommit)), nil
	case at < 0:
		return o, fmt.Sprintf("no commit of %s begins with %s; name the commit that brought the change to %s", r.o.Branch, reconciler.Short(c.Bound), r.o.Branch), nil
	case slices.ContainsFunc(o.history[at+1:], func(x reconciler.Commit) bool { return c.Names(x.ID) }):
		return o, fmt.Sprintf("several commits of %s begin with %s; give more digits", r.o.Branch, c.Bound), nil
	}
	o.commit = o.history[at]
	near := slices.Clone(o.history[max(0, at-nearHistory):min(len(o.history), at+nearHistory)])
	slices.Reverse(near)
	i := slices.IndexFunc(near, func(x reconciler.Commit) bool { return x.ID == o.commit.ID })
	brought, ok, err := provenance.NewHistory(r.o.Repo, r.o.Forge, r.o.Branch, near).MergedBy(ctx, i)
	if err != nil {
		return o, "", err
	}
	if ok {
		o.pull = brought
		return o, "", nil
	}
	o.signed, err = r.o.Repo.Evidence(ctx, o.commit.ID)
	return o, "", err
}

// applyDocuments decides a command about the held documents of a commit.
func (r *Pulls) applyDocuments(ctx context.Context, st *reconciler.State, c command.Command, o origin, pr reconciler.PullRequest, rem reconciler.CommandComment) (reply, error) {
	touched, err := provenance.Touched(ctx, r.o.Repo, o.commit)
	if err != nil {
		return reply{}, err
	}
	a := decide.Apply{
		By: rem.Author, BreakGlass: c.Reason, Commit: o.commit.ID, Touched: touched, Author: o.pull.Author, PullRequest: o.pull.Number,
		Payload: o.signed.Payload, Signature: o.signed.Signature,
	}
	got, err := r.o.Decider.Apply(ctx, r.ApplyInput(st), a)
	if errors.Is(err, decide.ErrFrozen) || errors.Is(err, reconciler.ErrUnreadable) {
		return refuse(err.Error()), nil
	}
	if err != nil {
		return reply{}, err
	}
	id, s := remarkID{rem.Pull, rem.ID}, &plan.Status{Revision: o.commit.ID}
	if got.Digest == "" {
		out, err := r.nothingTaken(ctx, o, got, len(r.staleOf(o)) > 0)
		if err == nil && slices.ContainsFunc(got.Left, func(h plan.Held) bool { return h.Reason == estate.HeldUnauthorised }) {
			r.o.Status.RecordDenied(commanded("change.apply", s, pr, rem, audit.Denied, authority.Decision{Reason: out.answer.Why}, r.o.Now()))
		}
		return out, err
	}
	switch shown, since := r.reviews.applyShown(o.commit.ID, got.Digest, rem.When); {
	case since: // the command is older than what it would confirm
		return refuse("the plan was posted after this command; read it below, then repeat the command"), nil
	case !shown:
		out := refuse("")
		out.answer.Kind, out.answer.Why, out.answer.Proposal, out.answer.Left = plan.AnswerRepeat, "this plan was not shown before", &got.Proposal, r.leftOf(o, got)
		out.record = true
		out.answered = func() {
			r.reviews.showApply(rem.Pull, plan.ApplyShown{Commit: o.commit.ID, Digest: got.Digest, Told: r.o.Now()})
		}
		return out, nil
	}
	r.o.Status.Record(commanded("change.apply", s, pr, rem, audit.Allowed, authority.Decision{Allowed: true, Reason: fmt.Sprintf("%d documents of %s; plan %s", len(got.Taken), reconciler.Short(o.commit.ID), reconciler.Short(got.Digest))}, r.o.Now()))
	if err := r.persisted(ctx); err != nil {
		return reply{}, err
	}
	r.applies.ask(Applying{id, a, got.Digest})
	r.o.Enqueue(reconciler.Item{Task: reconciler.TaskEstate})
	return reply{wait: true}, nil
}

// ApplyInput returns the trees and memory that a command is decided on.
func (r *Pulls) ApplyInput(st *reconciler.State) decide.Input {
	mem := r.o.Status.Memory()
	return decide.Input{Repo: r.o.Repo, Base: st.Main, InForce: st.InForce, Permitted: st.Permitted, Today: r.today(), Memory: &mem, Rules: r.o.Rules}
}

// leftOf lists the documents of a commit that a command does not bring into force.
func (r *Pulls) leftOf(o origin, got decide.Applied) []plan.Held {
	left := slices.Clone(got.Left)
	for _, path := range got.Replaced {
		left = append(left, plan.Held{File: path, Message: "a later commit replaced it"})
	}
	return left
}

// nothingTaken is the reply to a command that brings no document into force. stale
// is true if the command has a stale plan to approve.
func (r *Pulls) nothingTaken(ctx context.Context, o origin, got decide.Applied, stale bool) (reply, error) {
	var no []string
	for _, h := range got.Left {
		no = append(no, fmt.Sprintf("%s stays held (%s): %s", h.File, h.Why(), h.Message))
	}
	switch {
	case len(no) > 0:
		return refuse(someOf(no)), nil
	case stale || len(got.Replaced) == 0:
		return nothing("nothing that this commit changed is held"), nil
	}
	by, err := r.replacedBy(ctx, o, got.Replaced[0])
	if by == "" {
		return refuse(fmt.Sprintf("a later commit replaced %s; use /berth apply with the newest commit that changed it", got.Replaced[0])), err
	}
	return refuse(fmt.Sprintf("%s replaced %s; use /berth apply %s", reconciler.Short(by), got.Replaced[0], reconciler.Short(by))), err
}

// replacedBy is the newest commit of main that changed a path after the origin's;
// "" if it is not among the last maxReplacing.
func (r *Pulls) replacedBy(ctx context.Context, o origin, path string) (string, error) {
	for _, c := range o.history[:min(len(o.history), maxReplacing)] {
		if c.ID == o.commit.ID {
			break
		}
		paths, err := provenance.Touched(ctx, r.o.Repo, c)
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
func (r *Pulls) staleOf(o origin) []*plan.Status {
	var out []*plan.Status
	for _, s := range r.o.Status.Memory().All() {
		if s.Review != nil && s.Review.Stale != nil &&
			(s.Revision == o.commit.ID || o.pull.MergeCommit == o.commit.ID && s.Review.Pull == o.pull.Number) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *plan.Status) int { return a.Key.Compare(b.Key) })
	return out
}

// applyStale approves the plans of units that are held as stale, as the roll-out
// comment shows them now.
func (r *Pulls) applyStale(ctx context.Context, st *reconciler.State, o origin, pr reconciler.PullRequest, rem reconciler.CommandComment, units []*plan.Status) (reply, error) {
	if slices.ContainsFunc(units, func(s *plan.Status) bool { return offerOf(s) == nil }) {
		return reply{wait: true}, nil // until the plan is posted nobody can have read it
	}
	rights, err := r.rights(ctx, st, o.pull, rem.Author, units)
	if err != nil {
		return reply{}, err
	}
	var no []string
	approved := 0
	for i, s := range units {
		if offerOf(s).Told.After(rem.When) {
			no = append(no, fmt.Sprintf("the plan of %s was posted after this command; read it, then repeat the command", s.Key))
			continue
		}
		d := rights[i]
		if !d.Allowed {
			r.o.Status.RecordDenied(commanded("plan.meant", s, pr, rem, audit.Denied, d, r.o.Now()))
			no = append(no, d.Reason)
			continue
		}
		if !r.amend(s.Key, func(now *plan.Status) bool {
			if now.Revision != s.Revision || now.Review == nil || now.Review.Stale == nil || now.Review.Stale.Now != s.Review.Stale.Now {
				return false
			}
			review := *now.Review
			review.Meant, review.By = review.Stale.Now, rem.Author
			now.Review, now.Retry = &review, nil
			return true
		}) {
			no = append(no, fmt.Sprintf("the plan of %s changed meanwhile; read the new plan, then repeat the command", s.Key))
			continue
		}
		r.o.Status.Record(commanded("plan.meant", s, pr, rem, audit.Allowed, d, r.o.Now()))
		r.o.Enqueue(reconciler.Item{Task: reconciler.TaskUnit, Unit: s.Key})
		approved++
	}
	if approved == 0 {
		return refuse(someOf(no)), nil
	}
	out := did("applied")
	out.record, out.answer.Why = true, someOf(no)
	return out, nil
}

// NextApply is the oldest command to apply a commit that waits for the estate task;
// false: none waits.
func (r *Pulls) NextApply() (Applying, bool) { return r.applies.next() }

// AnswerApply answers a command that the estate task carried out, or refused: then
// no is the reason. more is what people need to know besides.
func (r *Pulls) AnswerApply(one Applying, no string, more ...string) {
	out := refuse(no)
	if no == "" {
		out = did("applied")
		out.record, out.answer.Why = true, someOf(more)
	}
	r.applies.decided(one.remark, out)
	r.o.Enqueue(reconciler.Item{Task: reconciler.TaskCommands})
	r.o.Enqueue(reconciler.Item{Task: reconciler.TaskEstate}) // others may wait
}
