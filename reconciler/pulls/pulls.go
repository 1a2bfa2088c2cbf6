package pulls

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/reconciler/provenance"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
)

const (
	// pullsDebounce gathers what changes while a unit is being worked on, or on
	// main, before open pull requests are planned again.
	pullsDebounce = 700 * time.Millisecond
	// pullsSettle is the least time between two plans of pull requests that a
	// change elsewhere may or may not concern.
	pullsSettle = 10 * time.Second
	// undecidedGrace is how long a start may take before pull requests are told
	// that nothing is decided yet.
	undecidedGrace = 30 * time.Second
	// undecidedAgain is when to look again while they are not.
	undecidedAgain = time.Second
	// maxPullTries is how often publishing one result is tried in a row.
	maxPullTries = 8
	// movedAgain is when a pull request whose head moved is planned again.
	movedAgain = 2 * time.Second
	// closedKept is how long what a pull request was shown is kept after it was closed.
	closedKept = time.Hour
	// followCoalesce is the least time between two updates of one comment, and
	// followSlowest the most that what goes on is gathered for.
	followCoalesce = time.Second
	followSlowest  = 30 * time.Second
)

// codeRefused is the code of the finding that a head is not looked at.
const codeRefused = "pull.refused"

// openPull is an open pull request as it was last read.
type openPull struct {
	reconciler.PullRequest
	unread  bool   // something was heard of it since
	fetched string // the head that is at hand
	asked   asked
}

// asked is what the head of a pull request and who approves it say; of is what it
// was asked for.
type asked struct {
	of         reconciler.PullRequest
	breakGlass string
	acks       []string
	approvers  []string
	// early: it was asked so soon after the pull request changed that a forge, which
	// tells that in whole seconds, may change it once more and tell the same.
	early bool
}

// early is how long after a change another may look like it.
const early = 2 * time.Second

// List finds what webhooks may have lost: every open pull request is
// looked at, those that were open and no longer are, and the merge queue.
func (r *Pulls) List(ctx context.Context) error {
	return errors.Join(r.listOpen(ctx), r.listGroups(ctx))
}

func (r *Pulls) listOpen(ctx context.Context) error {
	open, err := r.o.Forge.OpenPulls(ctx)
	if err != nil {
		return err
	}
	now := map[int]reconciler.PullRequest{}
	for _, pr := range open {
		if r.ours(pr) {
			now[pr.Number] = pr
		}
	}
	reviewed := r.o.Status.Reviews()
	r.mu.Lock()
	first := !r.listed
	r.listed = true
	var look []int
	for n, pr := range now {
		p := r.pulls[n]
		switch {
		case p == nil:
			r.pulls[n] = &openPull{PullRequest: pr}
		case p.PullRequest != pr:
			p.PullRequest = pr
		case !p.asked.early && r.shows.knows(target{pull: n}): // what did not move and is shown costs nothing
			continue
		}
		look = append(look, n)
	}
	for n, p := range r.pulls {
		if _, ok := now[n]; !ok {
			p.unread = true
			look = append(look, n)
		}
	}
	r.mu.Unlock()
	if first {
		for n, v := range reviewed {
			if _, ok := now[n]; !ok {
				look = append(look, n)
			}
			for _, head := range headsOf(v) {
				if now[n].Head != head {
					r.o.Enqueue(reconciler.Item{Task: reconciler.TaskCancelChecks, Commit: head}) // an earlier run may have begun what nobody ends
				}
			}
		}
	}
	r.look(ctx, look)
	return nil
}

// ours says whether an open pull request is for this estate's branch.
func (r *Pulls) ours(pr reconciler.PullRequest) bool {
	return pr.Open && pr.BaseBranch == r.o.Branch
}

// Heard notes that something may have changed of a pull request.
func (r *Pulls) Heard(number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pulls[number]; p != nil {
		p.unread = true
	}
}

// BaseMoved plans open pull requests again, as something came into force.
func (r *Pulls) BaseMoved() {
	if r.o.Forge != nil {
		r.o.EnqueueAfter(reconciler.Item{Task: reconciler.TaskReplan}, pullsDebounce)
	}
}

// UnitMoved plans open pull requests again, as something is otherwise with a
// unit: those that show it soon, the others now and then.
func (r *Pulls) UnitMoved(key schema.Key) {
	if r.o.Forge == nil {
		return
	}
	for _, n := range r.reviews.showing(key, false) {
		r.o.EnqueueAfter(reconciler.Item{Task: reconciler.TaskPull, Pull: n}, pullsDebounce)
	}
	r.ReplanLater()
}

// ReplanLater plans open pull requests again after a while, as something changed
// that their plans may depend on.
func (r *Pulls) ReplanLater() {
	if r.o.Forge != nil {
		r.o.EnqueueAfter(reconciler.Item{Task: reconciler.TaskReplan}, pullsSettle)
	}
}

// Replan has all open pull requests planned again.
func (r *Pulls) Replan(ctx context.Context) error {
	r.mu.Lock()
	open := slices.Collect(maps.Keys(r.pulls))
	r.mu.Unlock()
	r.look(ctx, open)
	return nil
}

// look has pull requests planned, the newest first. Their heads are brought
// together, as each on its own takes as long as all of them.
func (r *Pulls) look(ctx context.Context, numbers []int) {
	if len(numbers) > 1 {
		heads, err := r.o.Repo.FetchPulls(ctx, numbers)
		if err != nil {
			r.o.Log.Warn("pull requests are fetched one by one", "error", err)
		}
		r.mu.Lock()
		for n, head := range heads {
			if p := r.pulls[n]; p != nil && p.Head == head {
				p.fetched = head
			}
		}
		r.mu.Unlock()
	}
	slices.Sort(numbers)
	for _, n := range slices.Backward(numbers) {
		r.o.Enqueue(reconciler.Item{Task: reconciler.TaskPull, Pull: n})
	}
}

// readPull is a pull request as it was last read, or reads it if something was
// heard of it since; nil: it is not open, or of another branch.
func (r *Pulls) readPull(ctx context.Context, number int) (*openPull, error) {
	r.mu.Lock()
	if p := r.pulls[number]; p != nil && !p.unread {
		known := *p
		r.mu.Unlock()
		return &known, nil
	} else if p != nil {
		p.unread = false
	}
	r.mu.Unlock()
	pr, err := r.o.Forge.Pull(ctx, number)
	if err != nil {
		r.Heard(number)
		return nil, err
	}
	r.mu.Lock()
	p := r.pulls[number]
	if r.ours(pr) {
		if p == nil {
			p = &openPull{}
			r.pulls[number] = p
		}
		p.PullRequest, p.asked = pr, asked{} // it was heard of
		known := *p
		r.mu.Unlock()
		return &known, nil
	}
	delete(r.pulls, number)
	r.mu.Unlock()
	r.shows.drop(target{pull: number})
	if left := closedKept - r.o.Now().Sub(pr.Updated); left > 0 && !pr.Open && !pr.Merged && pr.BaseBranch == r.o.Branch {
		r.o.EnqueueAfter(reconciler.Item{Task: reconciler.TaskPull, Pull: number}, left) // it may be opened again, or known to be merged a moment later
		return nil, nil
	}
	if !pr.Merged || pr.BaseBranch != r.o.Branch {
		r.reviews.forget(number)
		return nil, nil
	}
	return nil, r.endReview(ctx, number, pr.MergeCommit)
}

// learned keeps what was asked for a pull request, unless it is another by now.
func (r *Pulls) learned(p *openPull) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.pulls[p.Number]; now != nil {
		now.fetched, now.asked = p.fetched, p.asked
	}
}

// Plan plans what a pull request would do, and has it shown if that says
// anything else than what is there. It writes nothing itself.
func (r *Pulls) Plan(ctx context.Context, number int) (again time.Duration, err error) {
	p, err := r.readPull(ctx, number)
	if err != nil || p == nil {
		return 0, err
	}
	b, ok := r.basis()
	if !ok {
		return undecidedAgain, nil
	}
	c := plan.PullContext{Number: number, Fork: p.Fork, Paused: b.paused}
	in := b.in
	proposal, mends, err := r.proposal(ctx, p, b, &in)
	if errors.Is(err, reconciler.ErrNotFound) && p.fetched != "" {
		p.fetched = "" // it was kept for a while only
		proposal, mends, err = r.proposal(ctx, p, b, &in)
	}
	switch {
	case errors.Is(err, reconciler.ErrRefused), errors.Is(err, reconciler.ErrUnreadable), errors.Is(err, decide.ErrFrozen):
		proposal = notLookedAt(b, p.Head, err)
	case err != nil:
		return 0, err
	default:
		onto := proposal.Base
		if mends {
			onto = b.tip
		}
		if c.Lines, err = r.lines(ctx, onto, proposal); err != nil {
			return 0, err
		}
	}
	r.learned(p)
	return 0, r.offer(p, proposal, mends, c, b, in.Memory)
}

// basis is what pull requests are planned against.
type basis struct {
	in     decide.Input // but for the head and what is said of it
	tip    string       // of main, where it is not in.Base: it cannot be taken over
	frozen string       // why nothing can be planned; "": it can
	paused string
}

// basis says false while it is too early to tell.
func (r *Pulls) basis() (basis, bool) {
	now := r.o.Main()
	st, tip, frozen, young := now.State, now.Tip, now.Frozen, r.o.Now().Sub(r.began) < undecidedGrace
	in := decide.Input{Repo: r.o.Repo, Today: r.today(), Rules: r.o.Rules, Seen: r.o.Seen}
	mem := r.o.Status.Memory()
	if st != nil {
		in.Base, in.InForce, in.Permitted, in.Memory = st.Main, st.InForce, st.Permitted, &mem
		b := basis{in: in, frozen: frozen, paused: st.Paused}
		if frozen != "" && tip != st.Main {
			b.tip = tip
		}
		return b, in.Base != ""
	}
	if tip == "" || frozen == "" && young {
		return basis{}, false
	}
	in.Base = tip
	if frozen == "" {
		frozen = "no commit of " + r.o.Branch + " has been decided yet"
	}
	return basis{in: in, frozen: frozen}, true
}

// proposal brings the head of a pull request and says what merging it would do,
// with what was said of it. It fills in what it asked on the way. mends: main
// cannot be taken over now, and could be then.
func (r *Pulls) proposal(ctx context.Context, p *openPull, b basis, in *decide.Input) (out plan.Proposal, mends bool, err error) {
	out, mends, err = r.unsaid(ctx, p, b, in)
	if err != nil || !slices.ContainsFunc(out.Held, func(h plan.Held) bool { return decide.AckOf(h) != "" }) {
		return out, mends, err
	}
	said, err := r.said(ctx, p.Number, digestsOf(out.Held))
	if ctx.Err() != nil {
		return out, mends, err
	}
	if err != nil { // it is shown without; and again once that is known
		r.o.Log.Warn("not all that was said of a deletion can be read; it is shown as held", "pull", p.Number, "error", err)
		r.o.EnqueueAfter(reconciler.Item{Task: reconciler.TaskPull, Pull: p.Number}, sayAgainIn)
	}
	if len(said) == 0 {
		return out, mends, nil
	}
	in.Said = acksOf(said)
	return r.unsaid(ctx, p, b, in)
}

// unsaid is proposal with nothing said but what in has.
func (r *Pulls) unsaid(ctx context.Context, p *openPull, b basis, in *decide.Input) (out plan.Proposal, mends bool, err error) {
	if p.fetched != p.Head {
		head, err := r.o.Repo.FetchPull(ctx, p.Number)
		if err != nil {
			return out, false, err
		}
		// If it moved between the two reads, what was fetched is what is planned,
		// and the forge decides whether it is still the head.
		p.Head, p.fetched = head, head
	}
	if p.asked.of != p.PullRequest || p.asked.early {
		a := asked{of: p.PullRequest, early: r.o.Now().Sub(p.Updated) < early}
		if r.o.CheckAuthority {
			if a.approvers, err = r.o.Forge.Approvers(ctx, p.PullRequest); err != nil {
				return out, false, err
			}
		}
		says, err := r.o.Repo.HeadEvidence(ctx, p.Head)
		if err != nil {
			return out, false, err
		}
		a.breakGlass, a.acks = provenance.Requests(says)
		p.asked = a
	}
	in.Head, in.Acks = p.Head, p.asked.acks
	if r.o.CheckAuthority {
		in.By = &authority.Actor{Login: p.Author, Approvers: p.asked.approvers, Proof: authority.ProofPullRequest, BreakGlass: p.asked.breakGlass}
	}
	if b.tip != "" {
		if out, mends, err = r.mended(ctx, b.tip, *in); mends || err != nil {
			return out, mends, err
		}
	}
	if out, err = r.o.Decider.Proposal(ctx, *in); err != nil {
		return out, false, err
	}
	return out, false, r.shadowed(ctx, &out)
}

// shadowed warns of what a head changes where nobody looks.
func (r *Pulls) shadowed(ctx context.Context, p *plan.Proposal) error {
	files, err := r.o.Repo.Shadowed(ctx, p.Base, p.Head)
	if err != nil || len(files) == 0 {
		return err
	}
	for _, file := range files {
		tenant, _, _ := strings.Cut(strings.TrimPrefix(file, "tenants/"), "/")
		p.Diagnostics = append(p.Diagnostics, schema.Diagnostic{Severity: schema.SeverityWarning, Code: estate.CodeShadowed, File: file, Line: 1, Column: 1,
			Message: fmt.Sprintf("changes nothing: the documents of %s come from its own repository (spec.repository of tenants/%s/tenant.yaml); change it there", tenant, tenant)})
	}
	schema.SortDiagnostics(p.Diagnostics)
	return nil
}

// mended is what a change would do that mends a main which cannot be taken over,
// with all that would come into force with it; false: it does not mend it, or not
// all that is wrong then is its own.
func (r *Pulls) mended(ctx context.Context, tip string, in decide.Input) (p plan.Proposal, ok bool, err error) {
	tree, conflicts, err := r.o.Repo.Merge(ctx, tip, in.Head)
	if err != nil || len(conflicts) > 0 {
		return p, false, err
	}
	touched, err := r.o.Repo.Diff(ctx, in.Base, tree)
	if err != nil {
		return p, false, err
	}
	snap, err := r.o.Repo.Snapshot(ctx, tree)
	if err != nil {
		return p, false, err
	}
	if p, err = r.o.Decider.Change(ctx, in, snap, touched); err != nil {
		return p, false, err
	}
	own, err := r.o.Repo.Diff(ctx, tip, tree)
	if err != nil {
		return p, false, err
	}
	elsewhere := func(file string) bool {
		return !slices.ContainsFunc(own, func(c reconciler.PathChange) bool { return c.Path == file })
	}
	return p, !slices.ContainsFunc(p.Held, func(h plan.Held) bool { return elsewhere(h.File) }) &&
		!slices.ContainsFunc(p.Diagnostics, func(d schema.Diagnostic) bool {
			return d.Code == decide.CodeFrozen || d.Severity == schema.SeverityError && elsewhere(d.File)
		}), nil
}

// notLookedAt is the proposal of a head that is not looked at, and why.
func notLookedAt(b basis, head string, why error) plan.Proposal {
	return plan.Propose(plan.ProposeInput{Base: b.in.Base, Head: head, Documents: []plan.DocumentChange{}, Diagnostics: []schema.Diagnostic{{
		Severity: schema.SeverityError, Code: codeRefused, File: ".", Line: 1, Column: 1, Message: why.Error(),
	}}})
}

// lines are those that a forge shows of a pull request which was planned merged
// onto a commit of main; nobody needs them where nothing was found.
func (r *Pulls) lines(ctx context.Context, onto string, p plan.Proposal) (schema.Lines, error) {
	if len(p.Diagnostics) == 0 || r.o.Render.Lines == nil {
		return nil, nil
	}
	text, err := r.o.Repo.Patch(ctx, onto, p.Head)
	if err != nil {
		return nil, fmt.Errorf("the lines of %s: %w", reconciler.Short(p.Head), err)
	}
	lines, err := r.o.Render.Lines(strings.NewReader(text))
	if err != nil {
		r.o.Log.Warn("the lines of a pull request cannot be told; its findings are listed", "head", reconciler.Short(p.Head), "error", err)
		return nil, nil
	}
	return lines, nil
}

// offer has a proposal shown on its pull request, unless what is there says the
// same.
func (r *Pulls) offer(p *openPull, proposal plan.Proposal, mends bool, c plan.PullContext, b basis, mem *plan.Memory) error {
	x := &showing{target: target{pull: p.Number}, head: proposal.Head}
	if b.frozen != "" && !mends {
		// What was planned before stays what was reviewed.
		x.checks = r.cannotPlan(proposal, c, b.frozen)
		x.shown = plan.Shown{Head: proposal.Head}
		if was := r.reviews.review(p.Number); was != nil && was.Head == proposal.Head {
			x.shown = was.Shown
			x.shown.Passed = false
		}
		x.shown.Key = keysOf(x.checks)
	} else {
		x.shown = plan.Shown{Head: proposal.Head, Base: proposal.Base, Digest: proposal.Digest, Passed: !proposal.Blocked()}
		if mem == nil {
			mem = &plan.Memory{}
		}
		x.shown.Keep(plan.ReviewedUnits(proposal, *mem))
		shown, next := r.reviews.shownOf(p.Number)
		r.addJobs(x.shown.Units, next, shown)
		c.Jobs = x.shown.Jobs()
		x.shown.Key = r.o.Render.Key(proposal, c)
	}
	planned := x.shown.Units
	x.shown, x.recorded, x.known = r.reviews.intend(p.Number, x.shown)
	if x.checks == nil && r.jobsKnown(planned) { // it was learnt in between
		r.o.EnqueueAfter(reconciler.Item{Task: reconciler.TaskPull, Pull: p.Number}, pullsDebounce)
	}
	if x.checks == nil {
		proposal.Base, c.Jobs = x.shown.Base, x.shown.Jobs()
		text := r.o.Render.Plan(proposal, c)
		x.checks, x.plan = r.o.Render.Checks(proposal, c), &text
	}
	if r.shows.add(x) {
		r.o.Enqueue(reconciler.Item{Task: reconciler.TaskShow})
	}
	return nil
}

// cannotPlan are the checks of a proposal while nothing can be planned: what is
// written is judged all the same.
func (r *Pulls) cannotPlan(p plan.Proposal, c plan.PullContext, why string) []plan.Check {
	p.Plans, p.Held, p.Released, p.Decisions, p.Authority, p.Impacted = []plan.Plan{}, nil, nil, nil, nil, nil
	p.Diagnostics = append(slices.Clone(p.Diagnostics), schema.Diagnostic{
		Severity: schema.SeverityError, Code: decide.CodeFrozen, File: ".", Line: 1, Column: 1, Message: why + "; it is planned again once that is over",
	})
	checks := r.o.Render.Checks(p, c)
	for i := range checks {
		if checks[i].Name == plan.CheckPlan {
			checks[i].Conclusion, checks[i].Title = plan.Failure, titled("nothing can be planned: "+why)
		}
	}
	return checks
}

// maxTitle is how long a check's title may be.
const maxTitle = 140

// titled is text as the title of a check: one line of what can be printed.
func titled(text string) string {
	clean := strings.Join(strings.FieldsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f }), " ")
	if runes := []rune(strings.ToValidUTF8(clean, "?")); len(runes) > maxTitle {
		return string(runes[:maxTitle-1]) + "…"
	}
	return clean
}

// ShowAgain makes the next look at a pull request (0: at all) show its
// proposal even if nothing changed, as somebody asked for it.
func (r *Pulls) ShowAgain(number int) { r.shows.again(number) }

// endReview takes away what was kept of a merged pull request once nothing of
// what it brought is under way or held any more, and that was told.
func (r *Pulls) endReview(ctx context.Context, number int, commit string) error {
	v := r.reviews.review(number)
	st := r.current()
	if st == nil { // it is not known yet what an earlier run decided
		r.o.EnqueueAfter(reconciler.Item{Task: reconciler.TaskPull, Pull: number}, undecidedAgain)
		return nil
	}
	if st.Main == "" || commit == "" {
		return nil // it is looked at again when it is decided
	}
	base, err := r.o.Repo.MergeBase(ctx, commit, st.Main)
	if errors.Is(err, reconciler.ErrNotFound) || err == nil && base != commit {
		return nil
	}
	if err != nil {
		return err
	}
	for key, s := range r.o.Status.Memory().All() {
		of := s.Revision == commit
		if v != nil && !of {
			u, _ := v.Unit(key, "")
			of = u != nil
		}
		if of && (!s.Settled() || s.Review != nil) {
			return nil
		}
	}
	if comesByItself(v, st) {
		return nil
	}
	if v != nil && !r.RollOuts.over(commit) { // an earlier run had no time to tell
		r.Touched(commit)
		return nil
	}
	r.reviews.forget(number)
	return nil
}

// comesByItself says whether what was reviewed is of a part that cannot be read now:
// once it can be, it comes into force with no other commit.
func comesByItself(v *plan.Review, st *reconciler.State) bool {
	return slices.ContainsFunc(st.Held, func(h plan.Held) bool {
		return v != nil && h.Reason == estate.HeldUnreadable && (len(v.More) > 0 || slices.ContainsFunc(v.Units, func(u plan.ReviewedUnit) bool {
			tenant := "tenants/" + u.Key.Tenant
			return h.File == tenant || strings.HasPrefix(h.File, tenant+"/") || !strings.HasPrefix(h.File, "tenants/")
		}))
	})
}

// recall takes up the roll-out of a commit that an earlier run decided and did not
// tell of to its end. The statuses speak of the units that it changed last; which
// others there were is known of the review of the pull request that it merged.
func (r *Pulls) recall(ctx context.Context, pr reconciler.PullRequest, commit string, st *reconciler.State) error {
	v := r.reviews.review(pr.Number)
	if v == nil || r.RollOuts.known(commit) {
		return nil
	}
	commits, err := r.o.Repo.Log(ctx, "", commit, 1)
	if err != nil || len(commits) == 0 {
		return err
	}
	paths, err := provenance.Touched(ctx, r.o.Repo, commits[0])
	if err != nil {
		return err
	}
	held := slices.DeleteFunc(slices.Clone(st.Held), func(h plan.Held) bool {
		return !slices.ContainsFunc(paths, func(c reconciler.PathChange) bool { return c.Path == h.File })
	})
	var moved []plan.UnitProgress
	if pr.MergeCommit == commit {
		if moved, err = r.movedOn(ctx, v, commit, st); err != nil {
			return err
		}
	}
	r.RollOuts.recall(commit, held, moved)
	return nil
}

// movedOn are the units of a review that are gone since, or that a later commit
// changed.
func (r *Pulls) movedOn(ctx context.Context, v *plan.Review, commit string, st *reconciler.State) ([]plan.UnitProgress, error) {
	mem := r.o.Status.Memory()
	var moved []plan.UnitProgress
	for _, u := range v.Units {
		switch s := mem.Get(u.Key); {
		case s == nil:
			if slices.ContainsFunc(u.Steps, func(s string) bool { return strings.HasPrefix(s, string(plan.Delete)) }) && st.Effective.Instance(u.Key) == nil {
				moved = append(moved, plan.UnitProgress{Key: u.Key, Phase: plan.PhaseDeleted, Settled: true})
			}
		case s.Revision != "" && s.Revision != commit:
			base, err := r.o.Repo.MergeBase(ctx, commit, s.Revision)
			if err != nil && !errors.Is(err, reconciler.ErrNotFound) {
				return nil, err
			}
			if err == nil && base == commit {
				moved = append(moved, plan.UnitProgress{Key: u.Key, Settled: true, TakenOver: s.Revision})
			}
		}
	}
	return moved, nil
}

// Touched wakes the comment of the pull request that brought a commit, unless
// its roll-out is over.
func (r *Pulls) Touched(commit string) {
	if r.o.Forge != nil && commit != "" && !r.RollOuts.over(commit) {
		r.o.EnqueueAfter(reconciler.Item{Task: reconciler.TaskRollout, Commit: commit}, r.RollOuts.pace(commit))
	}
}

// Follow tells the pull request that brought a commit what became of it.
func (r *Pulls) Follow(ctx context.Context, commit string) error {
	prs, sure, err := r.pullsOf(ctx, commit)
	if err != nil {
		return err
	}
	if st := r.current(); st != nil {
		for _, pr := range prs {
			if err := r.recall(ctx, pr, commit, st); err != nil {
				return err
			}
		}
	}
	roll := r.RollOuts.tell(commit)
	text := r.o.Render.Rollout(roll)
	for _, pr := range prs {
		if err := r.o.Forge.Comment(ctx, pr.Number, reconciler.Comment{Rollout: &text}); err != nil {
			return err
		}
	}
	if len(prs) > 0 {
		r.offered(roll)
	}
	if sure && slices.ContainsFunc(roll.Held, func(h plan.Held) bool { return decide.AckOf(h) != "" }) {
		if err := r.saidBefore(ctx, prs, roll.Held); err != nil {
			return err
		}
	}
	if !sure || !roll.Settled() {
		return nil
	}
	if st := r.current(); st != nil && slices.ContainsFunc(prs, func(pr reconciler.PullRequest) bool { return comesByItself(r.reviews.review(pr.Number), st) }) {
		return nil
	}
	r.RollOuts.End(commit)
	for _, pr := range prs {
		if err := r.endReview(ctx, pr.Number, pr.MergeCommit); err != nil {
			return err
		}
	}
	return nil
}

// Right after a merge a forge may not know yet which pull request a commit
// came from: "none" is believed after a while only.
const (
	pullsOfAgain = 5 * time.Second
	pullsOfTrust = time.Minute
)

// pullsOf are the merged pull requests a commit belongs to. While it is not
// sure that there is none, it has the comment looked at again.
func (r *Pulls) pullsOf(ctx context.Context, commit string) (prs []reconciler.PullRequest, sure bool, err error) {
	prs, asked := r.RollOuts.pulls(commit)
	young := asked.IsZero() || r.o.Now().Sub(asked) < pullsOfTrust
	if len(prs) > 0 || !young {
		return prs, true, nil
	}
	if prs, err = r.o.Forge.PullsOf(ctx, commit); err != nil {
		return nil, false, err
	}
	r.RollOuts.setPulls(commit, prs)
	if len(prs) == 0 {
		r.o.EnqueueAfter(reconciler.Item{Task: reconciler.TaskRollout, Commit: commit}, pullsOfAgain)
	}
	return prs, len(prs) > 0, nil
}
