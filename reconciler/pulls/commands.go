package pulls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/reconciler"
	"berth/reconciler/command"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/authority"
	"berth/schema/policy"
)

// obey does what a command asks for, if whoever gave it may.
func (r *Pulls) obey(ctx context.Context, c command.Command, pr reconciler.PullRequest, rem reconciler.CommandComment, may reconciler.Permission) (reply, error) {
	st := r.current()
	if st == nil {
		return reply{wait: true}, nil
	}
	switch c.Verb {
	case command.Help:
		return reply{reaction: reconciler.Understood, answer: &plan.Answer{Kind: plan.AnswerHelp}}, nil
	case command.Explain:
		return r.explain(ctx, st, c, pr)
	case command.Plan:
		if may < reconciler.CanWrite && !strings.EqualFold(rem.Author, pr.Author) {
			return refuse("only users who may write to the repository and the author of the pull request may have it planned again"), nil
		}
		if !pr.Open {
			return nothing("the pull request is not open"), nil
		}
		r.ShowAgain(pr.Number)
		r.Heard(pr.Number)
		r.o.Enqueue(reconciler.Item{Task: reconciler.TaskPull, Pull: pr.Number})
		return did("planned again"), nil
	}
	if may < reconciler.CanWrite {
		return refuse("only users who may write to the repository may give this command"), nil
	}
	switch c.Verb {
	case command.Apply:
		return r.applyHeld(ctx, st, c, pr, rem)
	case command.Retry:
		return r.retryFailed(ctx, st, pr, rem)
	case command.AckDelete:
		return r.acknowledge(ctx, st, c, pr, rem)
	}
	return refuse("unknown command; /berth help lists the commands"), nil
}

// explain says what an instance comes to: with an open pull request merged, else
// as it is in force.
func (r *Pulls) explain(ctx context.Context, st *reconciler.State, c command.Command, pr reconciler.PullRequest) (reply, error) {
	out := reply{reaction: reconciler.Understood, answer: &plan.Answer{Kind: plan.AnswerExplain, Instance: c.Instance, Field: c.Field}}
	desired, placed := st.Desired, st.Placement
	if pr.Open {
		if merged, err := r.mergedDesired(ctx, st, pr); err != nil {
			return reply{}, err
		} else if merged != nil {
			desired = merged
			placed = r.o.Decider.Place(r.o.Decider.Evaluate(merged, st.Desired, r.today()), r.o.Status.Memory())
		}
	}
	if t := desired.Tenants[c.Instance.Tenant]; t != nil {
		e, ok := policy.Explain(desired.Platform, t, c.Instance,
			policy.Existing(func(k schema.Key) bool { return st.Desired.Instance(k) != nil }), policy.At(r.today()), policy.Outside(placed.Outside(c.Instance)))
		if ok {
			out.explanation = &e
		}
	}
	return out, nil
}

// mergedDesired is what the estate says with a pull request merged; nil where
// that cannot be told.
func (r *Pulls) mergedDesired(ctx context.Context, st *reconciler.State, pr reconciler.PullRequest) (*schema.Desired, error) {
	head, err := r.o.Repo.FetchPull(ctx, pr.Number)
	if errors.Is(err, reconciler.ErrNotFound) || errors.Is(err, reconciler.ErrRefused) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	tree, conflicts, err := r.o.Repo.Merge(ctx, st.Main, head)
	if errors.Is(err, reconciler.ErrUnreadable) || len(conflicts) > 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	snap, err := r.o.Repo.Snapshot(ctx, tree)
	if err != nil {
		return nil, err
	}
	loaded, err := r.o.Loader.Load(ctx, snap)
	if err != nil {
		return nil, nil // its findings tell
	}
	return loaded.Desired, nil
}

// offerOf is what people were told of the plan that is held of a unit; nil: it is
// not told yet.
func offerOf(s *plan.Status) *plan.Offer {
	if o := s.Review.Offer; o != nil && o.Digest == s.Review.Stale.Now {
		return o
	}
	return nil
}

// offered notes that people were told how a roll-out stands: whoever says from now
// on that what it holds is meant has seen it. It is noted on berth/status, as it
// outlives this run.
func (r *Pulls) offered(told plan.Rollout) {
	now, news := r.o.Now(), false
	for _, u := range told.Units {
		if u.Stale == nil {
			continue
		}
		for {
			s := r.o.Status.Memory().Get(u.Key)
			if s == nil || s.Revision != told.Commit || s.Review == nil || s.Review.Stale == nil || s.Review.Stale.Now != u.Stale.Now || offerOf(s) != nil {
				break // it is another by now, which is told next; or it was told before
			}
			next, review := *s, *s.Review
			review.Offer, next.Review = &plan.Offer{Digest: u.Stale.Now, Told: now}, &review
			if r.o.Status.Set(s, next) {
				news = true
				break
			}
		}
	}
	if news {
		r.o.Enqueue(reconciler.Item{Task: reconciler.TaskCommands}) // somebody may have said so already
	}
}

// retryFailed has the units try again that a merged pull request changed and that
// gave up, or wait to.
func (r *Pulls) retryFailed(ctx context.Context, st *reconciler.State, pr reconciler.PullRequest, rem reconciler.CommandComment) (reply, error) {
	if !pr.Merged {
		return nothing("the pull request is not merged"), nil
	}
	units := r.unitsOf(pr, func(s *plan.Status) bool { return s.Retry != nil })
	if len(units) == 0 {
		return nothing("no instance of this pull request gave up or waits to try again"), nil
	}
	rights, err := r.rights(ctx, st, pr, rem.Author, units)
	if err != nil {
		return reply{}, err
	}
	var no, retried []string
	for i, s := range units {
		d := rights[i]
		if !d.Allowed {
			r.o.Status.RecordDenied(commanded("unit.retry", s, pr, rem, audit.Denied, d, r.o.Now()))
			no = append(no, d.Reason)
			continue
		}
		if !r.amend(s.Key, func(now *plan.Status) bool {
			tries := now.Revision == s.Revision && now.Retry != nil
			now.Retry = nil
			return tries
		}) {
			continue // it goes on already, or is another by now
		}
		r.o.Status.Record(commanded("unit.retry", s, pr, rem, audit.Allowed, d, r.o.Now()))
		r.o.Enqueue(reconciler.Item{Task: reconciler.TaskUnit, Unit: s.Key})
		retried = append(retried, s.Key.String())
	}
	if len(no) == len(units) {
		return refuse(someOf(no)), nil
	}
	out := did(strings.TrimSpace("retried " + someOf(retried)))
	out.record, out.answer.Why = true, someOf(no)
	return out, nil
}

// rights are what mayMean says of each of units. All are known before anything is
// done: a command that failed halfway would find a part of it done.
func (r *Pulls) rights(ctx context.Context, st *reconciler.State, pr reconciler.PullRequest, login string, units []*plan.Status) ([]authority.Decision, error) {
	var out []authority.Decision
	for _, s := range units {
		d, err := r.mayMean(ctx, st, pr, login, s)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// amend changes what is recorded of a unit, whatever else is recorded of it at the
// same moment; not if change, which is given a copy, says false.
func (r *Pulls) amend(key schema.Key, change func(*plan.Status) bool) bool {
	for {
		s := r.o.Status.Get(key)
		if s == nil {
			return false
		}
		next := *s
		if !change(&next) {
			return false
		}
		if r.o.Status.Set(s, next) {
			return true
		}
	}
}

// acknowledge takes somebody's word that a large deletion is meant. The word is
// read again, with whoever's right it is then, by the decision that needs it;
// here it is only told whether there is such a deletion and whether they may.
func (r *Pulls) acknowledge(ctx context.Context, st *reconciler.State, c command.Command, pr reconciler.PullRequest, rem reconciler.CommandComment) (reply, error) {
	var held []plan.Held
	switch {
	case pr.Merged:
		held = st.Held
	case pr.Open:
		b, ok := r.basis()
		if !ok {
			return reply{wait: true}, nil
		}
		in := b.in
		p, _, err := r.unsaid(ctx, &openPull{PullRequest: pr}, b, &in)
		if err != nil {
			return reply{}, err
		}
		held = p.Held
	default:
		return nothing("the pull request was closed without a merge"), nil
	}
	var asked []string // digests
	var tenant string
	for _, h := range held {
		d := decide.AckOf(h)
		if d == "" {
			continue
		}
		if d == c.Bound {
			tenant = h.Key.Tenant
			if h.Key.Kind == schema.KindTenant {
				tenant = h.Key.Name
			}
		}
		if !slices.Contains(asked, d) {
			asked = append(asked, d)
		}
	}
	tried := pr.Merged && r.acks.tried(remarkID{rem.Pull, rem.ID})
	switch {
	case tried && !slices.Contains(asked, c.Bound):
		return did("acknowledged"), nil // the decision took it
	case tried:
		return refuse("the deletion stays held: the user who acknowledges it needs write access to the repository and deletions.acknowledge at that moment"), nil
	case len(asked) == 0, pr.Merged && rem.When.Before(r.began) && !slices.Contains(asked, c.Bound):
		// A run before this one may have taken it.
		return nothing("no deletion waits for an acknowledgement"), nil
	case !slices.Contains(asked, c.Bound):
		return refuse(fmt.Sprintf("the deletion that is held now has the digest %s; read it, then acknowledge that digest", asked[0])), nil
	}
	d := r.o.Decider.May(st.Desired, rem.Author, authority.DeletionsAcknowledge, authority.Scope{Tenant: tenant})
	one := commanded("deletion.acknowledge", &plan.Status{Revision: cmp.Or(pr.MergeCommit, st.Main)}, pr, rem, audit.Allowed, d, r.o.Now())
	one.OrgID, one.Reason = tenant, c.Bound
	if !d.Allowed {
		one.Verdict, one.Reason = audit.Denied, d.Reason
		r.o.Status.RecordDenied(one)
		return refuse(d.Reason), nil
	}
	r.o.Status.Record(one)
	if pr.Merged {
		r.acks.ask(Acked{pr.Number, pr.MergeCommit, c.Bound, remarkID{rem.Pull, rem.ID}})
		r.o.Enqueue(reconciler.Item{Task: reconciler.TaskEstate})
		return reply{wait: true}, nil // until that is decided
	}
	r.Heard(pr.Number)
	r.o.Enqueue(reconciler.Item{Task: reconciler.TaskPull, Pull: pr.Number})
	out := did("acknowledged")
	out.record = true
	return out, nil
}

// mayMean says whether somebody may say of a unit that what is planned for it is
// meant: who may change it so, and where a policy asks for somebody else than the
// author, is somebody else; or who could have made the whole change that brought
// it.
func (r *Pulls) mayMean(ctx context.Context, st *reconciler.State, pr reconciler.PullRequest, login string, s *plan.Status) (authority.Decision, error) {
	p := authority.InstanceUpdate
	switch {
	case st.Effective.Instance(s.Key) == nil:
		p = authority.InstanceDelete
	case s.Observed == nil || s.Observed.Presence == plan.Absent:
		p = authority.InstanceCreate
	}
	need := authority.Need{Permission: p, Scope: authority.Scope{Tenant: s.Key.Tenant, Project: s.Key.Project}, Key: s.Key}
	d := r.o.Decider.Agrees(st.Desired, pr.Author, login, need)
	if d.Allowed || pr.MergeCommit == "" {
		return d, nil
	}
	commits, err := r.o.Repo.Log(ctx, "", pr.MergeCommit, 1)
	if err != nil || len(commits) == 0 || len(commits[0].Parents) == 0 {
		return d, err
	}
	ds, err := r.o.Decider.Needed(ctx, r.o.Repo, commits[0].Parents[0], pr.MergeCommit, authority.Actor{Login: login, Proof: authority.ProofPullRequest})
	if err != nil || len(ds) == 0 || slices.ContainsFunc(ds, func(o authority.Decision) bool { return !o.Allowed }) {
		return d, err
	}
	return ds[0], nil
}

// unitsOf are the units whose revision a merged pull request brought, of which
// something is so, sorted.
func (r *Pulls) unitsOf(pr reconciler.PullRequest, is func(*plan.Status) bool) []*plan.Status {
	var out []*plan.Status
	for _, s := range r.o.Status.Memory().All() {
		if !is(s) {
			continue
		}
		brought := s.Revision == pr.MergeCommit || s.Review != nil && s.Review.Pull == pr.Number
		if !brought {
			prs, _ := r.RollOuts.broughtBy(s.Revision)
			brought = slices.ContainsFunc(prs, func(o reconciler.PullRequest) bool { return o.Number == pr.Number })
		}
		if brought {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *plan.Status) int { return a.Key.Compare(b.Key) })
	return out
}

// persisted waits until what was recorded is on the remote.
func (r *Pulls) persisted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return r.o.Status.Flush(ctx)
}

// source is a position as the audit log has it.
func source(p schema.Position) string {
	if p.File == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// someOf are some sentences in a line.
func someOf(all []string) string {
	const most = 3
	slices.Sort(all)
	all = slices.Compact(all)
	if more := len(all) - most; more > 0 {
		all = append(all[:most:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// commanded is the audit record of a command.
func commanded(action string, s *plan.Status, pr reconciler.PullRequest, rem reconciler.CommandComment, v audit.Verdict, d authority.Decision, now time.Time) audit.Record {
	one := audit.Record{
		OccurredAt: now, CorrelationID: reconciler.CorrelationID(s.Revision), Actor: rem.Author, Proof: "remark", Permission: string(d.Permission),
		Action: action, Key: s.Key, OrgID: s.Key.Tenant, ProjectID: s.Key.ProjectID(), AppSlug: s.App, Verdict: v, Rule: d.Role, Source: source(d.Source),
		Reason: d.Reason, Commit: s.Revision, PullRequest: pr.Number,
	}
	if s.Review != nil && s.Review.Stale != nil && v == audit.Allowed {
		one.Reason = strings.TrimPrefix(fmt.Sprintf("%s; plan %s", d.Reason, reconciler.Short(s.Review.Stale.Now)), "; ")
	}
	return one
}
