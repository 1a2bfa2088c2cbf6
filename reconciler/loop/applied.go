package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/reconciler"
	"berth/reconciler/command"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/reconciler/provenance"
	"berth/schema"
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
	// applyKept is how long it is remembered that the plan of a command was posted.
	// A command that comes later has its plan posted again.
	applyKept = 7 * 24 * time.Hour
)

// applies are the commands that the estate task is to carry out, and their
// outcomes. They are lost with the process: the next daemon reads a command
// without an answer again.
type applies struct {
	mu      sync.Mutex
	waiting map[remarkID]applying
	done    map[remarkID]reply
}

// applying is one command: its request, and the digest of the plan that was posted.
type applying struct {
	remark remarkID
	apply  decide.Apply
	digest string
}

func (a *applies) ask(one applying) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting, a.done = map[remarkID]applying{}, map[remarkID]reply{}
	}
	a.waiting[one.remark] = one
}

// next returns the oldest command that waits.
func (a *applies) next() (applying, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var first applying
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
func (r *Reconciler) applyHeld(ctx context.Context, st *reconciler.State, c command.Command, pr reconciler.PullRequest, rem reconciler.CommandComment) (reply, error) {
	id := remarkID{rem.Pull, rem.ID}
	r.mu.Lock()
	frozen := r.frozen
	r.mu.Unlock()
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
func (r *Reconciler) originOf(ctx context.Context, st *reconciler.State, c command.Command, pr reconciler.PullRequest) (o origin, no string, err error) {
	if o.history, err = r.o.Repo.Log(ctx, "", st.Main, maxHistory); err != nil {
		return o, "", err
	}
	at := slices.IndexFunc(o.history, func(x reconciler.Commit) bool { return c.Names(x.ID) })
	switch {
	case at < 0 && pr.Open:
		return o, fmt.Sprintf("no commit of %s begins with %s, and nothing is held before the merge; name a commit of %s", r.o.Branch, short(c.Bound), r.o.Branch), nil
	case at < 0 && pr.MergeCommit != "":
		return o, fmt.Sprintf("no commit of %s begins with %s; this pull request was merged as %s: use /berth apply %s", r.o.Branch, short(c.Bound), short(pr.MergeCommit), short(pr.MergeCommit)), nil
	case at < 0:
		return o, fmt.Sprintf("no commit of %s begins with %s; name the commit that brought the change to %s", r.o.Branch, short(c.Bound), r.o.Branch), nil
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
func (r *Reconciler) applyDocuments(ctx context.Context, st *reconciler.State, c command.Command, o origin, pr reconciler.PullRequest, rem reconciler.CommandComment) (reply, error) {
	touched, err := provenance.Touched(ctx, r.o.Repo, o.commit)
	if err != nil {
		return reply{}, err
	}
	a := decide.Apply{
		By: rem.Author, BreakGlass: c.Reason, Commit: o.commit.ID, Touched: touched, Author: o.pull.Author, PullRequest: o.pull.Number,
		Payload: o.signed.Payload, Signature: o.signed.Signature,
	}
	got, err := r.decider.Apply(ctx, r.applyInput(st), a)
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
			r.Audit(commanded("change.apply", s, pr, rem, audit.Denied, authority.Decision{Reason: out.answer.Why}, r.o.Now()))
		}
		return out, err
	}
	switch shown, since := r.writer.applyShown(o.commit.ID, got.Digest, rem.When); {
	case since: // the command is older than what it would confirm
		return refuse("the plan was posted after this command; read it below, then repeat the command"), nil
	case !shown:
		out := refuse("")
		out.answer.Kind, out.answer.Why, out.answer.Proposal, out.answer.Left = plan.AnswerRepeat, "this plan was not shown before", &got.Proposal, r.leftOf(o, got)
		out.record = true
		out.answered = func() {
			r.writer.showApply(rem.Pull, plan.ApplyShown{Commit: o.commit.ID, Digest: got.Digest, Told: r.o.Now()})
		}
		return out, nil
	}
	r.writer.record(commanded("change.apply", s, pr, rem, audit.Allowed, authority.Decision{Allowed: true, Reason: fmt.Sprintf("%d documents of %s; plan %s", len(got.Taken), short(o.commit.ID), short(got.Digest))}, r.o.Now()))
	if err := r.persisted(ctx); err != nil {
		return reply{}, err
	}
	r.applies.ask(applying{id, a, got.Digest})
	r.queue.Add(reconciler.Item{Task: reconciler.TaskEstate})
	return reply{wait: true}, nil
}

// applyInput returns the trees and memory that a command is decided on.
func (r *Reconciler) applyInput(st *reconciler.State) decide.Input {
	mem := r.writer.memory()
	return decide.Input{Repo: r.o.Repo, Base: st.Main, InForce: st.InForce, Permitted: st.Permitted, Moved: st.Moved, Today: r.today(), Memory: &mem, Rules: r.rules}
}

// leftOf lists the documents of a commit that a command does not bring into force.
func (r *Reconciler) leftOf(o origin, got decide.Applied) []plan.Held {
	left := slices.Clone(got.Left)
	for _, path := range got.Replaced {
		left = append(left, plan.Held{File: path, Message: "a later commit replaced it"})
	}
	return left
}

// nothingTaken is the reply to a command that brings no document into force. stale
// is true if the command has a stale plan to approve.
func (r *Reconciler) nothingTaken(ctx context.Context, o origin, got decide.Applied, stale bool) (reply, error) {
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
	return refuse(fmt.Sprintf("%s replaced %s; use /berth apply %s", short(by), got.Replaced[0], short(by))), err
}

// replacedBy is the newest commit of main that changed a path after the origin's;
// "" if it is not among the last maxReplacing.
func (r *Reconciler) replacedBy(ctx context.Context, o origin, path string) (string, error) {
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
func (r *Reconciler) staleOf(o origin) []*plan.Status {
	var out []*plan.Status
	for _, s := range r.writer.memory().All() {
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
func (r *Reconciler) applyStale(ctx context.Context, st *reconciler.State, o origin, pr reconciler.PullRequest, rem reconciler.CommandComment, units []*plan.Status) (reply, error) {
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
			r.Audit(commanded("plan.meant", s, pr, rem, audit.Denied, d, r.o.Now()))
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
		r.writer.record(commanded("plan.meant", s, pr, rem, audit.Allowed, d, r.o.Now()))
		r.queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: s.Key})
		approved++
	}
	if approved == 0 {
		return refuse(someOf(no)), nil
	}
	out := did("applied")
	out.record, out.answer.Why = true, someOf(no)
	return out, nil
}

// approval is the command behind a decision, with the plans that it approved.
type approval struct {
	commit string // of main, that the command names
	pull   int    // that Commit merged; 0: none
	by     string
	plans  map[schema.Key]string // digests
}

// review is the review of a unit that the command changed.
func (a *approval) review(key schema.Key, stopped bool) *plan.UnitReview {
	return &plan.UnitReview{Pull: a.pull, Meant: a.plans[key], By: a.by, Stopped: stopped}
}

// applyNext carries out the oldest command that waits; it returns false if none
// waits. Only the estate task calls it.
func (r *Reconciler) applyNext(ctx context.Context, st *reconciler.State) (bool, error) {
	one, ok := r.applies.next()
	if !ok {
		return false, nil
	}
	got, err := r.decider.Apply(ctx, r.applyInput(st), one.apply)
	if err != nil && !errors.Is(err, decide.ErrFrozen) {
		return true, err
	}
	answer := func(out reply) {
		r.applies.decided(one.remark, out)
		r.Enqueue(reconciler.Item{Task: reconciler.TaskCommands})
		r.queue.Add(reconciler.Item{Task: reconciler.TaskEstate}) // others may wait
	}
	if err != nil || got.Digest != one.digest {
		answer(refuse("the plan changed meanwhile; repeat the command to have the new plan posted"))
		return true, nil
	}
	cause := correlation(one.apply.Commit)
	inForce, err := r.o.Repo.WriteInForce(ctx, st.InForce, reconciler.InForce{
		Commit: st.Main, Replace: got.Replace, Held: got.Held, Permitted: got.Permitted, Moved: got.Moved, CorrelationID: cause, Epoch: r.writer.epoch(),
	})
	if errors.Is(err, reconciler.ErrConflict) {
		r.queue.Add(reconciler.Item{Task: reconciler.TaskEstate})
		return true, nil
	}
	if err != nil {
		return true, err
	}
	next := newState(st.Main, inForce, r.today(), got.Decision)
	approved := &approval{commit: one.apply.Commit, pull: one.apply.PullRequest, by: one.apply.By, plans: map[schema.Key]string{}}
	for _, p := range got.Proposal.Plans {
		approved.plans[p.Key] = p.Digest
	}
	records := decisionRecords(got.Verdicts, st.InForce, r.appOf(got.Desired), r.o.Now())
	if err := r.enforce(ctx, st, next, origins{first: one.apply.Commit, approval: approved}, nil, records, entitlementEvents(got.Verdicts, got.Desired, r.o.Now())); err != nil {
		return true, err
	}
	r.rollouts.released(one.apply.Commit, next.Held)
	r.touched(one.apply.Commit)
	r.o.Log.Info("held change applied", "commit", short(one.apply.Commit), "user", one.apply.By, "documents", len(got.Taken), "still_held", len(got.Left), "correlation_id", cause)
	out := did("applied")
	out.record = true
	var why []string
	if next.Paused != "" {
		why = append(why, "Berth is paused: nothing changes on hosts until the pause is lifted")
	}
	for _, h := range got.Left {
		why = append(why, fmt.Sprintf("%s stays held: %s", h.File, h.Message))
	}
	for _, path := range got.Replaced {
		why = append(why, path+" was replaced by a later commit")
	}
	out.answer.Why = someOf(why)
	answer(out)
	return true, nil
}

// applyShown returns shown if the plan of a command was posted before a moment and
// at most applyKept ago, and since if it was posted only after that moment.
func (w *writer) applyShown(commit, digest string, before time.Time) (shown, since bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.reviews.of {
		for _, a := range v.Applies {
			if a.Commit == commit && a.Digest == digest && w.now().Sub(a.Told) <= applyKept {
				shown = shown || !a.Told.After(before)
				since = since || a.Told.After(before)
			}
		}
	}
	return shown, since && !shown
}

// showApply notes that the plan of a command was posted on a pull request. It is
// the last one there.
func (w *writer) showApply(pull int, a plan.ApplyShown) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := plan.Review{Pull: pull}
	if before := w.reviews.of[pull]; before != nil {
		v = *before
	}
	v.Applies = append(recentApplies(v.Applies, a.Told, a.Commit), a)
	for n, r := range w.reviews.of { // nothing else removes a review that holds only old plans
		if r.Key == "" && r.Next == nil && len(recentApplies(r.Applies, a.Told, "")) == 0 {
			w.reviews.drop(n)
		}
	}
	w.reviews.put(v)
	w.changed()
}

// maxApplies bounds how many plans of commands are remembered of a pull request.
const maxApplies = 10

// recentApplies are those that are not too old, without those of a commit.
func recentApplies(all []plan.ApplyShown, now time.Time, but string) []plan.ApplyShown {
	all = slices.DeleteFunc(slices.Clone(all), func(a plan.ApplyShown) bool { return a.Commit == but || now.Sub(a.Told) > applyKept })
	slices.SortFunc(all, func(a, b plan.ApplyShown) int {
		return cmp.Or(a.Told.Compare(b.Told), strings.Compare(a.Commit, b.Commit))
	})
	return all[max(0, len(all)-maxApplies):]
}
