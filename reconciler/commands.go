package reconciler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/reconciler/command"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/authority"
	"berth/schema/policy"
)

const (
	// remarksBack is how old a remark may be that nobody answered yet.
	remarksBack = 72 * time.Hour
	// remarksOverlap is how far a look goes back before the last one, as clocks
	// differ and a forge may be slow to list what was said.
	remarksOverlap = 10 * time.Minute
	// maxRemarks is how many are answered in one pass, and maxRemarksOfPull on one
	// pull request; the next pass goes on.
	maxRemarks       = 60
	maxRemarksOfPull = 10
	// remarksAgain is when it does; later if nothing came of it, up to remarksSlowest.
	remarksAgain   = 2 * time.Second
	remarksSlowest = time.Minute
	// maxPassed is how many remarks are remembered to have been passed over.
	maxPassed = 20_000
	// maxIdle is how many are answered in an hour of those who may not write, and
	// maxIdleOf of one of them; the others are passed over.
	maxIdle   = 60
	maxIdleOf = 5
	// maxWords is the most bytes of answers that stand in a comment together. What
	// has no place is said in the next pass.
	maxWords = 16_000
)

// listenRemarks answers what people said to Berth and was not answered. A webhook
// only makes it sooner: what counts is what the forge lists, and the reaction
// beside a remark, which is set last, tells that it was dealt with. Who may write
// is answered first; a stranger who says a lot, and strangers who are many, cost a
// bounded number of answers and questions.
func (r *Reconciler) listenRemarks(ctx context.Context) (again time.Duration, err error) {
	start := r.o.Now()
	since := r.heard
	if since.IsZero() {
		since = start.Add(-remarksBack)
	}
	all, err := r.o.Forge.Remarks(ctx, since)
	if err != nil {
		return 0, err
	}
	next := start.Add(-remarksOverlap)
	l := listening{r: r, pulls: map[int]PullRequest{}, permissions: map[string]Permission{}, words: map[int]string{}}
	unanswered := r.unanswered(all)
	waiting, left, err := l.rank(ctx, unanswered)
	if err != nil {
		return 0, err
	}
	dealt := len(waiting)+len(left) < len(unanswered) // some were passed over
	picked, more := fairly(waiting)
	left = append(left, more...)
	for _, rem := range picked {
		done, err := l.answer(ctx, rem.Remark)
		var later *LaterError
		if ctx.Err() != nil || errors.As(err, &later) {
			return 0, err
		}
		if err != nil {
			r.o.Log.Warn("a remark is not answered yet", "pull", rem.Pull, "by", rem.Author, "error", err)
		}
		if !done || err != nil {
			left = append(left, rem.Remark)
		} else {
			dealt = true
		}
	}
	for _, rem := range left { // what is still to be answered is listed again
		if rem.When.Before(next) {
			next = rem.When
		}
	}
	if oldest := start.Add(-remarksBack); next.Before(oldest) {
		next = oldest
	}
	r.heard = next
	if dealt || len(left) == 0 {
		r.inVain = 0
	}
	if len(left) > 0 {
		again = min(remarksAgain<<min(r.inVain, 10), remarksSlowest)
		r.inVain++
	}
	return again, nil
}

// unanswered are the commands among remarks that wait for an answer.
func (r *Reconciler) unanswered(all []Remark) (out []Remark) {
	for _, rem := range all {
		if _, err := command.Parse(rem.Line); !rem.Answered && !errors.Is(err, command.ErrOther) && !r.passed[remarkID{rem.Pull, rem.ID}] {
			out = append(out, rem)
		}
	}
	return out
}

// passOver leaves a remark without an answer for as long as this run.
func (r *Reconciler) passOver(rem Remark) {
	if r.passed == nil || len(r.passed) >= maxPassed {
		r.passed = map[remarkID]bool{} // what is forgotten is looked at, and passed over, once more
	}
	r.passed[remarkID{rem.Pull, rem.ID}] = true
	delete(r.owed, remarkID{rem.Pull, rem.ID})
}

// ranked is a remark in its turn.
type ranked struct {
	Remark
	may  Permission
	turn int // how many its author said on its pull request before
}

// rank asks what those may who said something, of a bounded number of them, and
// passes over what is not answered any more of those who may not write. later are
// the remarks of whom it could not be asked yet.
func (l *listening) rank(ctx context.Context, all []Remark) (out []ranked, later []Remark, err error) {
	type who struct {
		pull   int
		author string
	}
	turns := map[who]int{}
	for _, rem := range all {
		k := who{rem.Pull, strings.ToLower(rem.Author)}
		out = append(out, ranked{Remark: rem, turn: turns[k]})
		turns[k]++
	}
	slices.SortStableFunc(out, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), a.When.Compare(b.When), cmp.Compare(a.ID, b.ID))
	})
	failed := map[string]bool{}
	known := out[:0]
	for _, one := range out {
		login := strings.ToLower(one.Author)
		if _, ok := l.permissions[login]; !ok && (failed[login] || len(failed)+len(l.permissions) >= maxRemarks) {
			later = append(later, one.Remark)
			continue
		}
		may, err := l.permission(ctx, one.Author)
		if wait := (*LaterError)(nil); ctx.Err() != nil || errors.As(err, &wait) {
			return nil, nil, err
		}
		if err != nil {
			l.r.o.Log.Warn("what somebody may who said something cannot be told yet", "pull", one.Pull, "by", one.Author, "error", err)
			failed[login] = true
			later = append(later, one.Remark)
			continue
		}
		if may < CanWrite && l.r.idle.spent(login, l.r.o.Now()) {
			l.r.passOver(one.Remark)
			continue
		}
		one.may = may
		known = append(known, one)
	}
	return known, later, nil
}

// fairly picks what is answered in one pass: those who may write first, and of
// each pull request the oldest of everybody, then their next, and so on.
func fairly(waiting []ranked) (picked []ranked, more []Remark) {
	rank := func(r ranked) int {
		if r.may >= CanWrite {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(waiting, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.turn, b.turn), a.When.Compare(b.When), cmp.Compare(a.ID, b.ID))
	})
	of := map[int]int{}
	for _, rem := range waiting {
		if len(picked) == maxRemarks || of[rem.Pull] == maxRemarksOfPull {
			more = append(more, rem.Remark)
			continue
		}
		of[rem.Pull]++
		picked = append(picked, rem)
	}
	return picked, more
}

// listening is one pass over remarks. What it asked the forge it does not ask
// again within the pass.
type listening struct {
	r           *Reconciler
	pulls       map[int]PullRequest
	permissions map[string]Permission
	words       map[int]string // what it said on each pull request
}

// idle counts what was answered to people who may not write, by the hour. It is
// the remarks task's own.
type idle struct {
	since time.Time
	all   int
	of    map[string]int
}

// owe keeps what a remark came to until its sign is set: what was done is done
// once, and is not asked for again where it would be found done.
func (r *Reconciler) owe(id remarkID, out *reply) {
	if r.owed == nil || len(r.owed) >= maxPassed {
		r.owed = map[remarkID]*reply{}
	}
	r.owed[id] = out
}

// spent says whether no more of somebody's is answered for now.
func (i *idle) spent(login string, now time.Time) bool {
	if now.Sub(i.since) >= time.Hour {
		i.since, i.all, i.of = now, 0, map[string]int{}
	}
	return i.all >= maxIdle || i.of[strings.ToLower(login)] >= maxIdleOf
}

// took notes that one of somebody's was answered.
func (i *idle) took(login string) {
	i.all++
	i.of[strings.ToLower(login)]++
}

// reply is what a remark comes to.
type reply struct {
	reaction    Reaction
	answer      *plan.Answer // nil: the reaction says it
	explanation *policy.Explanation
	wait        bool // it is not dealt with yet
	record      bool // what it did is to be on the remote first
	told        bool // the words were said
}

func refuse(why string) reply {
	return reply{reaction: Refused, answer: &plan.Answer{Kind: plan.AnswerRefused, Why: why}}
}

func nothing(why string) reply {
	return reply{reaction: Understood, answer: &plan.Answer{Kind: plan.AnswerUnknown, Why: why}}
}

func outdated(given, now, why string) reply {
	return reply{reaction: Refused, answer: &plan.Answer{Kind: plan.AnswerStale, Given: given, Now: now, Why: why}}
}

// answer deals with one remark: what is to be done first, then the words, then the
// reaction. It says false while it is not dealt with.
func (l *listening) answer(ctx context.Context, rem Remark) (done bool, err error) {
	pr, err := l.pull(ctx, rem.Pull)
	if errors.Is(err, ErrNotFound) {
		l.r.passOver(rem)
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if pr.BaseBranch != l.r.o.Branch {
		l.r.passOver(rem) // another estate's, or nobody's
		return true, nil
	}
	may, err := l.permission(ctx, rem.Author)
	if err != nil {
		return false, err
	}
	if may < CanWrite && l.r.idle.spent(rem.Author, l.r.o.Now()) {
		l.r.passOver(rem)
		return true, nil
	}
	id := remarkID{rem.Pull, rem.ID}
	out := l.r.owed[id]
	if out == nil {
		if out, err = l.comesTo(ctx, pr, rem, may); err != nil || out.wait {
			return false, err
		}
		l.r.owe(id, out)
	}
	if out.record {
		if err := l.r.persisted(ctx); err != nil {
			return false, err
		}
		out.record = false
	}
	if out.answer != nil && !out.told {
		if out.told, err = l.say(ctx, pr.Number, l.r.o.Render.Answer(*out.answer, out.explanation)); err != nil || !out.told {
			return false, err
		}
	}
	if may < CanWrite {
		l.r.idle.took(rem.Author)
	}
	if err := l.r.o.Forge.React(ctx, rem, out.reaction); err != nil && !errors.Is(err, ErrNotFound) {
		return false, err
	}
	delete(l.r.owed, id)
	return true, nil
}

// comesTo does what a remark asks for and says what came of it.
func (l *listening) comesTo(ctx context.Context, pr PullRequest, rem Remark, may Permission) (*reply, error) {
	c, wrong := command.Parse(rem.Line)
	var out reply
	switch {
	case may == NoPermission:
		out = reply{reaction: Refused} // a stranger gets no words
	case wrong != nil:
		out = nothing(wrong.Error())
		out.reaction = Confused
	default:
		var err error
		if out, err = l.r.obey(ctx, c, pr, rem, may); err != nil || out.wait {
			return &out, err
		}
	}
	if out.answer != nil {
		out.answer.To, out.answer.Said = rem.Author, rem.Line
	}
	l.r.o.Log.Info("commanded", "pull", pr.Number, "by", rem.Author, "command", string(c.Verb), "came_to", string(out.reaction))
	return &out, nil
}

// say puts an answer into the comment of a pull request, below those that were
// given in this pass; it says false if there is no place beside them.
func (l *listening) say(ctx context.Context, pull int, text string) (bool, error) {
	all := l.words[pull]
	switch {
	case all == "":
		all = text
	case strings.Contains(all, text): // the same again
		return true, nil
	case len(all)+1+len(text) > maxWords:
		return false, nil
	default:
		all += "\n" + text
	}
	if err := l.r.o.Forge.Comment(ctx, pull, Comment{Answer: &all}); err != nil {
		return false, err
	}
	l.words[pull] = all
	return true, nil
}

func (l *listening) pull(ctx context.Context, n int) (PullRequest, error) {
	return once(&l.pulls, n, func() (PullRequest, error) { return l.r.o.Forge.Pull(ctx, n) })
}

func (l *listening) permission(ctx context.Context, login string) (Permission, error) {
	return once(&l.permissions, strings.ToLower(login), func() (Permission, error) { return l.r.o.Forge.Permission(ctx, login) })
}

// obey does what a command asks for, if whoever gave it may.
func (r *Reconciler) obey(ctx context.Context, c command.Command, pr PullRequest, rem Remark, may Permission) (reply, error) {
	st := r.current()
	if st == nil {
		return reply{wait: true}, nil
	}
	switch c.Verb {
	case command.Help:
		return reply{reaction: Understood, answer: &plan.Answer{Kind: plan.AnswerHelp}}, nil
	case command.Explain:
		return r.explain(ctx, st, c, pr)
	case command.Plan:
		if may < CanWrite && !strings.EqualFold(rem.Author, pr.Author) {
			return refuse("only who may write to the repository, and the author of the pull request, have it planned again"), nil
		}
		if !pr.Open {
			return nothing("the pull request is not open, so there is nothing to plan"), nil
		}
		r.ShowAgain(pr.Number)
		r.Enqueue(Item{Do: TaskPull, Pull: pr.Number})
		return reply{reaction: Accepted}, nil
	}
	if may < CanWrite {
		return refuse("it takes somebody who may write to the repository"), nil
	}
	switch c.Verb {
	case command.Apply:
		return r.applyHeld(ctx, st, c, pr, rem)
	case command.Retry:
		return r.retryFailed(ctx, st, pr, rem)
	}
	return r.acknowledge(ctx, st, c, pr, rem)
}

// explain says what an instance comes to: with an open pull request merged, else
// as it is in force.
func (r *Reconciler) explain(ctx context.Context, st *state, c command.Command, pr PullRequest) (reply, error) {
	out := reply{reaction: Understood, answer: &plan.Answer{Kind: plan.AnswerExplain, Instance: c.Instance, Field: c.Field}}
	desired := st.desired
	if pr.Open {
		if merged, err := r.mergedDesired(ctx, st, pr); err != nil {
			return reply{}, err
		} else if merged != nil {
			desired = merged
		}
	}
	if t := desired.Tenants[c.Instance.Tenant]; t != nil {
		e, ok := policy.Explain(desired.Platform, t, c.Instance,
			policy.Existing(func(k schema.Key) bool { return st.desired.Instance(k) != nil }), policy.At(r.today()))
		if ok {
			out.explanation = &e
		}
	}
	return out, nil
}

// mergedDesired is what the estate says with a pull request merged; nil where
// that cannot be told.
func (r *Reconciler) mergedDesired(ctx context.Context, st *state, pr PullRequest) (*schema.Desired, error) {
	head, err := r.o.Repo.FetchPull(ctx, pr.Number)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrRefused) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	tree, conflicts, err := r.o.Repo.Merge(ctx, st.main, head)
	if errors.Is(err, ErrUnreadable) || len(conflicts) > 0 {
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

// applyHeld says of the plans that are held of a merged pull request, as its
// comment offers them now, that they are meant.
func (r *Reconciler) applyHeld(ctx context.Context, st *state, c command.Command, pr PullRequest, rem Remark) (reply, error) {
	if !pr.Merged {
		return refuse("nothing is held before the merge: the plan that is shown here is applied when the pull request is merged"), nil
	}
	units := r.unitsOf(pr, func(s *plan.Status) bool {
		return s.Review != nil && s.Review.Stale != nil && s.Review.Pull == pr.Number
	})
	named := c.Names(pr.MergeCommit)
	units = slices.DeleteFunc(units, func(s *plan.Status) bool { return !named && !c.Names(s.Revision) })
	switch {
	case len(units) == 0 && !named:
		return outdated(c.Bound, pr.MergeCommit, "That is not what brought this pull request to "+r.o.Branch+"."), nil
	case len(units) == 0:
		return nothing("nothing of this pull request is held"), nil
	}
	if slices.ContainsFunc(units, func(s *plan.Status) bool { return offerOf(s) == nil }) {
		return reply{wait: true}, nil // until that is told it is not known what was meant
	}
	rights, err := r.rights(ctx, st, pr, rem.Author, units)
	if err != nil {
		return reply{}, err
	}
	var no []string
	meant := 0
	for i, s := range units {
		if offerOf(s).Told.After(rem.When) {
			no = append(no, fmt.Sprintf("what is shown of %s was not there yet when this was said; if it is meant, say so again", s.Key))
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
			no = append(no, fmt.Sprintf("%s changed while this was looked at; if what is shown of it is still meant, say so again", s.Key))
			continue
		}
		r.writer.record(commanded("plan.meant", s, pr, rem, audit.Allowed, d, r.o.Now()))
		r.queue.Add(Item{Do: TaskUnit, Unit: s.Key})
		meant++
	}
	out := reply{reaction: Accepted, record: true}
	if len(no) > 0 {
		out.answer = &plan.Answer{Kind: plan.AnswerRefused, Why: fmt.Sprintf("%d of %d stay held: %s", len(no), len(units), someOf(no))}
	}
	if meant == 0 {
		out.reaction = Refused
	}
	return out, nil
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
func (r *Reconciler) offered(told plan.Rollout) {
	now, news := r.o.Now(), false
	for _, u := range told.Units {
		if u.Stale == nil {
			continue
		}
		for {
			s := r.writer.memory().Get(u.Key)
			if s == nil || s.Revision != told.Commit || s.Review == nil || s.Review.Stale == nil || s.Review.Stale.Now != u.Stale.Now || offerOf(s) != nil {
				break // it is another by now, which is told next; or it was told before
			}
			next, review := *s, *s.Review
			review.Offer, next.Review = &plan.Offer{Digest: u.Stale.Now, Told: now}, &review
			if _, ok := r.writer.set(s, next); ok {
				news = true
				break
			}
		}
	}
	if news {
		r.Enqueue(Item{Do: TaskRemarks}) // somebody may have said so already
	}
}

// retryFailed has the units try again that a merged pull request changed and that
// gave up, or wait to.
func (r *Reconciler) retryFailed(ctx context.Context, st *state, pr PullRequest, rem Remark) (reply, error) {
	if !pr.Merged {
		return nothing("it is not merged, so nothing of it failed"), nil
	}
	units := r.unitsOf(pr, func(s *plan.Status) bool { return s.Retry != nil })
	if len(units) == 0 {
		return nothing("nothing of this pull request gave up or waits to try again"), nil
	}
	rights, err := r.rights(ctx, st, pr, rem.Author, units)
	if err != nil {
		return reply{}, err
	}
	var no []string
	for i, s := range units {
		d := rights[i]
		if !d.Allowed {
			r.Audit(commanded("unit.retry", s, pr, rem, audit.Denied, d, r.o.Now()))
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
		r.writer.record(commanded("unit.retry", s, pr, rem, audit.Allowed, d, r.o.Now()))
		r.queue.Add(Item{Do: TaskUnit, Unit: s.Key})
	}
	if len(no) == len(units) {
		return refuse(someOf(no)), nil
	}
	return reply{reaction: Accepted, record: true}, nil
}

// rights are what mayMean says of each of units. All are known before anything is
// done: a command that failed halfway would find a part of it done.
func (r *Reconciler) rights(ctx context.Context, st *state, pr PullRequest, login string, units []*plan.Status) ([]authority.Decision, error) {
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
func (r *Reconciler) amend(key schema.Key, change func(*plan.Status) bool) bool {
	for {
		s := r.writer.get(key)
		if s == nil {
			return false
		}
		next := *s
		if !change(&next) {
			return false
		}
		if r.set(s, next) {
			return true
		}
	}
}

// acknowledge takes somebody's word that a large deletion is meant. The word is
// read again, with whoever's right it is then, by the decision that needs it;
// here it is only told whether there is such a deletion and whether they may.
func (r *Reconciler) acknowledge(ctx context.Context, st *state, c command.Command, pr PullRequest, rem Remark) (reply, error) {
	var held []plan.Held
	switch {
	case pr.Merged:
		held = st.held
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
		return reply{reaction: Accepted}, nil // the decision took it
	case tried:
		return refuse("it was decided again, and is held all the same: whoever says so may write to the repository and has deletions.acknowledge at that moment"), nil
	case len(asked) == 0, pr.Merged && rem.When.Before(r.began) && !slices.Contains(asked, c.Bound):
		// A run before this one may have taken it.
		return nothing("no deletion waits for that word"), nil
	case !slices.Contains(asked, c.Bound):
		return outdated(c.Bound, asked[0], "A digest stands for just those documents, as they were."), nil
	}
	d := r.decider.May(st.desired, rem.Author, authority.DeletionsAcknowledge, authority.Scope{Tenant: tenant})
	one := commanded("deletion.acknowledge", &plan.Status{Revision: cmp.Or(pr.MergeCommit, st.main)}, pr, rem, audit.Allowed, d, r.o.Now())
	one.OrgID, one.Reason = tenant, c.Bound
	if !d.Allowed {
		one.Verdict, one.Reason = audit.Denied, d.Reason
		r.Audit(one)
		return refuse(d.Reason), nil
	}
	r.writer.record(one)
	if pr.Merged {
		r.acks.ask(acking{pr.Number, pr.MergeCommit, c.Bound, remarkID{rem.Pull, rem.ID}})
		r.queue.Add(Item{Do: TaskEstate})
		return reply{wait: true}, nil // until that is decided
	}
	r.Enqueue(Item{Do: TaskPull, Pull: pr.Number})
	return reply{reaction: Accepted, record: true}, nil
}

// mayMean says whether somebody may say of a unit that what is planned for it is
// meant: who may change it so, and where a policy asks for somebody else than the
// author, is somebody else; or who could have made the whole change that brought
// it.
func (r *Reconciler) mayMean(ctx context.Context, st *state, pr PullRequest, login string, s *plan.Status) (authority.Decision, error) {
	p := authority.InstanceUpdate
	switch {
	case st.effective.Instance(s.Key) == nil:
		p = authority.InstanceDelete
	case s.Observed == nil || s.Observed.Presence == plan.Absent:
		p = authority.InstanceCreate
	}
	need := authority.Need{Permission: p, Scope: authority.Scope{Tenant: s.Key.Tenant, Project: s.Key.Project}, Key: s.Key}
	d := r.decider.Agrees(st.desired, pr.Author, login, need)
	if d.Allowed || pr.MergeCommit == "" {
		return d, nil
	}
	commits, err := r.o.Repo.Log(ctx, "", pr.MergeCommit, 1)
	if err != nil || len(commits) == 0 || len(commits[0].Parents) == 0 {
		return d, err
	}
	ds, err := r.decider.Needed(ctx, r.o.Repo, commits[0].Parents[0], pr.MergeCommit, authority.Actor{Login: login, Proof: authority.ProofPullRequest})
	if err != nil || len(ds) == 0 || slices.ContainsFunc(ds, func(o authority.Decision) bool { return !o.Allowed }) {
		return d, err
	}
	return ds[0], nil
}

// unitsOf are the units whose revision a merged pull request brought, of which
// something is so, sorted.
func (r *Reconciler) unitsOf(pr PullRequest, is func(*plan.Status) bool) []*plan.Status {
	var out []*plan.Status
	for _, s := range r.writer.memory().All() {
		if !is(s) {
			continue
		}
		brought := s.Revision == pr.MergeCommit || s.Review != nil && s.Review.Pull == pr.Number
		if !brought {
			prs, _ := r.rollouts.broughtBy(s.Revision)
			brought = slices.ContainsFunc(prs, func(o PullRequest) bool { return o.Number == pr.Number })
		}
		if brought {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *plan.Status) int { return a.Key.Compare(b.Key) })
	return out
}

// persisted waits until what was recorded is on the remote.
func (r *Reconciler) persisted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return r.writer.flush(ctx)
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
func commanded(action string, s *plan.Status, pr PullRequest, rem Remark, v audit.Verdict, d authority.Decision, now time.Time) audit.Record {
	one := audit.Record{
		OccurredAt: now, CorrelationID: correlation(s.Revision), Actor: rem.Author, Proof: "remark", Permission: string(d.Permission),
		Action: action, Key: s.Key, OrgID: s.Key.Tenant, ProjectID: projectOf(s.Key), Verdict: v, Rule: d.Role, Source: place(d.Source),
		Reason: d.Reason, Commit: s.Revision, PullRequest: pr.Number,
	}
	if s.Review != nil && s.Review.Stale != nil && v == audit.Allowed {
		one.Reason = strings.TrimPrefix(fmt.Sprintf("%s; plan %s", d.Reason, short(s.Review.Stale.Now)), "; ")
	}
	return one
}

// said are the acknowledgements of large deletions among what was said on a pull
// request, each by somebody who may write to the repository now; of just the
// digests that are asked for, nil: of any. Together with an error it is what could
// be read: of whom that cannot be asked, nothing was said. first are looked at
// before all others, of which there may be too many.
func (r *Reconciler) said(ctx context.Context, number int, asked []string, first ...remarkID) (out []word, err error) {
	all, err := r.o.Forge.RemarksOf(ctx, number)
	if err != nil {
		return nil, err
	}
	if len(first) > 0 {
		is := func(rem Remark) bool { return slices.Contains(first, remarkID{rem.Pull, rem.ID}) }
		all = append(slices.DeleteFunc(slices.Clone(all), func(rem Remark) bool { return !is(rem) }), slices.DeleteFunc(slices.Clone(all), is)...)
	}
	permissions := map[string]Permission{}
	failed := map[string]error{}
	for _, rem := range all {
		c, wrong := command.Parse(rem.Line)
		if wrong != nil || c.Verb != command.AckDelete || asked != nil && !slices.Contains(asked, c.Bound) {
			continue
		}
		by := strings.ToLower(rem.Author)
		one := word{remarkID{rem.Pull, rem.ID}, decide.Ack{By: authority.Actor{Login: rem.Author, Proof: authority.ProofPullRequest}, Digest: c.Bound}}
		if slices.ContainsFunc(out, func(o word) bool { return strings.EqualFold(o.By.Login, by) && o.Digest == c.Bound }) {
			continue // once is enough
		}
		if _, known := permissions[by]; !known && failed[by] == nil && len(permissions)+len(failed) >= maxAcks {
			continue
		}
		if failed[by] == nil {
			may, wrong := once(&permissions, by, func() (Permission, error) { return r.o.Forge.Permission(ctx, rem.Author) })
			if wrong != nil {
				failed[by] = wrong
				err = cmp.Or(err, wrong)
				if later := (*LaterError)(nil); ctx.Err() != nil || errors.As(wrong, &later) {
					return out, wrong
				}
			}
			if wrong == nil && may >= CanWrite && len(out) < maxAcks {
				out = append(out, one)
			}
		}
	}
	return out, err
}

// word is an acknowledgement, and the remark that is one.
type word struct {
	remark remarkID
	decide.Ack
}

// remarkID tells remarks apart.
type remarkID struct {
	pull int
	id   int64
}

// acksOf are acknowledgements as a decision takes them.
func acksOf(words []word) []decide.Ack {
	var out []decide.Ack
	for _, w := range words {
		out = append(out, w.Ack)
	}
	return out
}

// digestsOf are the acknowledgements that deletions wait for.
func digestsOf(held []plan.Held) []string {
	out := []string{}
	for _, h := range held {
		if d := decide.AckOf(h); d != "" && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// saidBefore has a deletion decided again that is held although somebody had
// acknowledged it: the forge did not tell in time which pull request brought it,
// or what was said on it.
func (r *Reconciler) saidBefore(ctx context.Context, prs []PullRequest, held []plan.Held) (err error) {
	st := r.current()
	asked := slices.DeleteFunc(digestsOf(held), func(d string) bool {
		return !slices.ContainsFunc(st.held, func(h plan.Held) bool { return decide.AckOf(h) == d })
	})
	if len(asked) == 0 {
		return nil
	}
	for _, pr := range prs {
		said, wrong := r.said(ctx, pr.Number, asked)
		err = cmp.Or(err, wrong)
		for _, w := range said {
			if r.acks.ask(acking{pr.Number, pr.MergeCommit, w.Digest, w.remark}) {
				r.queue.Add(Item{Do: TaskEstate})
			}
		}
	}
	return err
}

// maxAcks is how many acknowledgements of one pull request are looked at, and of
// how many people.
const maxAcks = 50

// maxTried bounds how many acknowledgements are remembered to have been tried. To
// forget one has it tried once more.
const maxTried = 10_000

// acks are the deletions that are to be decided once more, as somebody
// acknowledged them after they were. They are taken up again from what was said
// if they are lost.
type acks struct {
	mu      sync.Mutex
	waiting map[remarkID]acking
	done    map[remarkID]bool // those that were decided with
}

// acking is such a deletion: the pull request and the commit of main it came
// with, and the remark that acknowledges it.
type acking struct {
	pull           int
	commit, digest string
	remark         remarkID
}

// ask has one decided again; it says false if it was already, and nobody was told.
func (a *acks) ask(one acking) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting, a.done = map[remarkID]acking{}, map[remarkID]bool{}
	}
	if a.done[one.remark] {
		return false
	}
	a.waiting[one.remark] = one
	return true
}

// all are those that wait.
func (a *acks) all() []acking {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.waiting))
}

// decided notes that they were.
func (a *acks) decided(ones []acking) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.done) > maxTried {
		clear(a.done)
	}
	for _, one := range ones {
		delete(a.waiting, one.remark)
		a.done[one.remark] = true
	}
}

// tried says, once, whether it was decided again with a remark.
func (a *acks) tried(remark remarkID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	tried := a.done[remark]
	delete(a.done, remark)
	return tried
}
