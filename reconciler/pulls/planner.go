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
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/reconciler/provenance"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
)

const (
	// replanSoon gathers changes of a unit or of main before pull requests that they
	// concern are planned again, and replanLater before all of them are.
	replanSoon  = 700 * time.Millisecond
	replanLater = 10 * time.Second
	// undecidedGrace is how long a start may take before the checks report that
	// nothing is decided yet, and undecidedAgain when to try again until then.
	undecidedGrace = 30 * time.Second
	undecidedAgain = time.Second
	// closedKept is how long the record of a closed pull request is kept.
	closedKept = time.Hour
	// maxTitle is the length of the longest title of a check.
	maxTitle = 140
	// codeRefused is the code of the finding that a head is not planned.
	codeRefused = "pull.refused"
)

// Planner finds pull requests and plans the effect of each.
type Planner struct {
	*env
	publisher *Publisher
	reporter  *Reporter
	acks      *Acknowledgements
	jobs      *jobs
}

// Heard marks a pull request as changed: it is read before it is planned again. It returns false
// if the pull request is not known yet.
func (p *Planner) Heard(pull int) (known bool) {
	_, known = p.open.author(pull)
	p.open.markStale(pull)
	return known
}

// Owner is who takes turns with others in the work on pull requests: the author of a pull request, the
// tenant of a roll-out, or else the task. Pull requests that were not read yet share their turns.
func (p *Planner) Owner(i reconciler.Item) string {
	switch i.Task {
	case reconciler.TaskPull:
		login, _ := p.open.author(i.Pull)
		return "author " + login
	case reconciler.TaskRollout:
		return "tenant " + p.reporter.rollouts.tenantOf(i.Commit)
	}
	return string(i.Task)
}

// List finds the changes that webhooks may have missed: new, changed and closed pull requests,
// and groups of the merge queue.
func (p *Planner) List(ctx context.Context) error {
	return errors.Join(p.listOpen(ctx), p.listGroups(ctx))
}

func (p *Planner) listOpen(ctx context.Context) error {
	all, err := p.Forge.OpenPulls(ctx)
	if err != nil {
		return err
	}
	list := map[int]reconciler.PullRequest{}
	for _, pr := range all {
		if p.open.isOurs(pr) {
			list[pr.Number] = pr
		}
	}
	changed, first := p.open.take(list, func(n int) bool { return p.publisher.queue.knows(target{pull: n}) })
	if first {
		changed = append(changed, p.cancelUnfinished(list)...)
	}
	p.planAll(ctx, changed)
	return nil
}

// cancelUnfinished cancels the checks that an earlier run may have left unfinished, and returns its pull requests that are
// not open any more.
func (p *Planner) cancelUnfinished(list map[int]reconciler.PullRequest) (closed []int) {
	for n, v := range p.Status.Reviews() {
		heads := headsOf(v)
		if _, ok := list[n]; !ok && len(heads) > 0 {
			closed = append(closed, n)
		}
		for _, head := range heads {
			if list[n].Head != head {
				p.Queue.Add(reconciler.Item{Task: reconciler.TaskCancelChecks, Commit: head})
			}
		}
	}
	return closed
}

// Replan plans all open pull requests again.
func (p *Planner) Replan(ctx context.Context) error {
	p.planAll(ctx, p.open.numbers())
	return nil
}

// planAll has pull requests planned, the newest first. It fetches their heads
// together, as each fetch takes as long as one of all.
func (p *Planner) planAll(ctx context.Context, numbers []int) {
	if len(numbers) > 1 {
		heads, err := p.Repo.FetchPulls(ctx, numbers)
		if err != nil {
			p.Log.Warn("heads of pull requests not fetched; trying each by itself", "error", err)
		}
		p.open.setFetched(heads)
	}
	slices.Sort(numbers)
	for _, n := range slices.Backward(numbers) {
		p.Queue.Add(reconciler.Item{Task: reconciler.TaskPull, Pull: n})
	}
}

// BaseMoved plans open pull requests again after a decision.
func (p *Planner) BaseMoved() {
	if p.Forge != nil {
		p.Queue.AddAfter(reconciler.Item{Task: reconciler.TaskReplan}, replanSoon)
	}
}

// UnitMoved plans pull requests again after a unit changed: those whose plan
// contains it soon, the others later.
func (p *Planner) UnitMoved(key schema.Key) {
	if p.Forge == nil {
		return
	}
	p.replan(p.reviews.showing(key, false))
	p.ReplanLater()
}

// ReplanLater plans open pull requests again after a while: something changed that
// their plans may depend on.
func (p *Planner) ReplanLater() {
	if p.Forge != nil {
		p.Queue.AddAfter(reconciler.Item{Task: reconciler.TaskReplan}, replanLater)
	}
}

// NoteJobs keeps the jobs on a unit for plans. Pull requests that were planned
// without them are planned again.
func (p *Planner) NoteJobs(o plan.Observed) {
	if p.jobs.observe(o) && p.Forge != nil {
		p.replan(p.reviews.showing(o.Key, true))
	}
}

func (p *Planner) replan(numbers []int) {
	for _, n := range numbers {
		p.Queue.AddAfter(reconciler.Item{Task: reconciler.TaskPull, Pull: n}, replanSoon)
	}
}

// read returns the known state of a pull request, or reads it if it may have changed;
// false if it is not open, or to another branch.
func (p *Planner) read(ctx context.Context, number int) (openPull, bool, error) {
	if known, ok := p.open.get(number); ok {
		return known, true, nil
	}
	pr, err := p.Forge.Pull(ctx, number)
	if err != nil {
		p.open.markStale(number)
		return openPull{}, false, err
	}
	if known, ok := p.open.put(pr); ok {
		return known, true, nil
	}
	p.publisher.queue.drop(target{pull: number})
	left := closedKept - p.Now().Sub(pr.Updated)
	switch {
	case pr.Merged && pr.BaseBranch == p.Branch:
		err = p.reporter.endReview(ctx, number, pr.MergeCommit)
	case left > 0 && !pr.Open && pr.BaseBranch == p.Branch: // it may be opened again, or reported as merged a moment later
		p.Queue.AddAfter(reconciler.Item{Task: reconciler.TaskPull, Pull: number}, left)
	default:
		p.reviews.forget(number)
	}
	return openPull{}, false, err
}

// Plan plans the effect of a pull request and has the plan published, unless an
// equal one is. It returns when to plan again; 0: after a change. A pull request that was
// unknown is read, and planned at the next turn of its author.
func (p *Planner) Plan(ctx context.Context, number int) (again time.Duration, err error) {
	_, known := p.open.author(number)
	pull, open, err := p.read(ctx, number)
	if err != nil || !open {
		return 0, err
	}
	if !known {
		p.Queue.Add(reconciler.Item{Task: reconciler.TaskPull, Pull: number})
		return 0, nil
	}
	b, ok := p.basis()
	if !ok {
		return undecidedAgain, nil
	}
	c := plan.PullContext{Number: number, Fork: pull.Fork, Paused: b.paused}
	in := b.in
	proposal, mends, err := p.proposal(ctx, &pull, b, &in)
	if errors.Is(err, reconciler.ErrNotFound) && pull.fetched != "" { // the mirror has dropped the head
		pull.fetched = ""
		proposal, mends, err = p.proposal(ctx, &pull, b, &in)
	}
	switch {
	case errors.Is(err, reconciler.ErrRefused), errors.Is(err, reconciler.ErrUnreadable), errors.Is(err, decide.ErrFrozen):
		proposal = unplanned(b, pull.Head, err)
	case err != nil:
		return 0, err
	default:
		onto := proposal.Base
		if mends {
			onto = b.tip
		}
		if c.Lines, err = p.lines(ctx, onto, proposal); err != nil {
			return 0, err
		}
	}
	p.open.keep(pull)
	p.publish(&pull, proposal, mends, c, b, in.Memory)
	return 0, nil
}

// basis is the input of all plans.
type basis struct {
	in     decide.Input // but for the head and its acknowledgements
	tip    string       // of main, if it is not in.Base because synchronization is frozen
	frozen string       // why nothing can be planned; "": it can
	paused string
}

// basis returns false while it is too early to plan.
func (p *Planner) basis() (basis, bool) {
	now := p.Loop.Main()
	if st := now.State; st != nil {
		b := basis{in: p.applyInput(st), frozen: now.Frozen, paused: st.Paused}
		b.in.Seen = p.Loop.Seen
		if now.Frozen != "" && now.Tip != st.Main {
			b.tip = now.Tip
		}
		return b, st.Main != ""
	}
	starting := p.Now().Sub(p.began) < undecidedGrace
	if now.Tip == "" || now.Frozen == "" && starting {
		return basis{}, false
	}
	b := basis{in: decide.Input{Repo: p.Repo, Base: now.Tip, Today: p.today(), Rules: p.Loop.Rules, Seen: p.Loop.Seen}, frozen: now.Frozen}
	if b.frozen == "" {
		b.frozen = "no commit of " + p.Branch + " has been decided yet"
	}
	return b, true
}

// proposal plans the merge of a pull request, with the acknowledgements in
// its comments. It fills in b's input and the facts found about the pull request. mends
// is true if main is frozen and the merge would end that.
func (p *Planner) proposal(ctx context.Context, pull *openPull, b basis, in *decide.Input) (out plan.Proposal, mends bool, err error) {
	out, mends, err = p.withoutAcks(ctx, pull, b, in)
	digests := digestsOf(out.Held)
	if err != nil || len(digests) == 0 {
		return out, mends, err
	}
	found, err := p.acks.find(ctx, pull.Number, digests, commandID{})
	if ctx.Err() != nil {
		return out, mends, err
	}
	if err != nil {
		p.Log.Warn("acknowledgement comments unreadable; deletion shown as held", "pull", pull.Number, "error", err)
		p.Queue.AddAfter(reconciler.Item{Task: reconciler.TaskPull, Pull: pull.Number}, readAgain)
	}
	if len(found) == 0 {
		return out, mends, nil
	}
	in.CommentAcks = acksOf(found)
	return p.withoutAcks(ctx, pull, b, in)
}

// withoutAcks is proposal without the acknowledgements in comments, except those
// of in.
func (p *Planner) withoutAcks(ctx context.Context, pull *openPull, b basis, in *decide.Input) (out plan.Proposal, mends bool, err error) {
	if pull.fetched != pull.Head {
		head, err := p.Repo.FetchPull(ctx, pull.Number)
		if err != nil {
			return out, false, err
		}
		// If the head moved between the two reads, the fetched one is planned; before it
		// is published, the forge confirms that it still is the head.
		pull.Head, pull.fetched = head, head
	}
	if err := p.readHead(ctx, pull); err != nil {
		return out, false, err
	}
	in.Head, in.Acks = pull.Head, pull.head.acks
	if p.CheckAuthority {
		in.By = &authority.Actor{Login: pull.Author, Approvers: pull.head.approvers, Proof: authority.ProofPullRequest,
			BreakGlass: pull.head.breakGlass}
	}
	if b.tip != "" {
		if out, mends, err = p.mending(ctx, b.tip, *in); mends || err != nil {
			return out, mends, err
		}
	}
	if out, err = p.Decider.Proposal(ctx, *in); err != nil {
		return out, false, err
	}
	return out, false, p.warnOfShadowed(ctx, &out)
}

// readHead reads the requests in the head of a pull request and its approvers,
// unless they are known.
func (p *Planner) readHead(ctx context.Context, pull *openPull) (err error) {
	if pull.head.of == pull.PullRequest && !pull.head.unsure {
		return nil
	}
	h := headRequests{of: pull.PullRequest, unsure: p.Now().Sub(pull.Updated) < headChanges}
	if p.CheckAuthority {
		if h.approvers, err = p.Forge.Approvers(ctx, pull.PullRequest); err != nil {
			return err
		}
	}
	e, err := p.Repo.HeadEvidence(ctx, pull.Head)
	if err != nil {
		return err
	}
	h.breakGlass, h.acks = provenance.Requests(e)
	pull.head = h
	return nil
}

// warnOfShadowed adds warnings about changes in places that Berth does not read.
func (p *Planner) warnOfShadowed(ctx context.Context, out *plan.Proposal) error {
	files, err := p.Repo.Shadowed(ctx, out.Base, out.Head)
	if err != nil || len(files) == 0 {
		return err
	}
	for _, file := range files {
		tenant, _, _ := strings.Cut(strings.TrimPrefix(file, "tenants/"), "/")
		out.Diagnostics = append(out.Diagnostics,
			schema.Diagnostic{Severity: schema.SeverityWarning, Code: estate.CodeShadowed, File: file, Line: 1, Column: 1,
				Message: fmt.Sprintf("changes nothing: the documents of %s come from its own repository (spec.repository of "+
					"tenants/%s/tenant.yaml); change it there", tenant, tenant)})
	}
	schema.SortDiagnostics(out.Diagnostics)
	return nil
}

// mending plans a change that makes a frozen main valid again, with everything that
// comes into force with it. It returns false if main would stay frozen,
// or if findings or held documents outside the change would remain.
func (p *Planner) mending(ctx context.Context, tip string, in decide.Input) (out plan.Proposal, ok bool, err error) {
	tree, conflicts, err := p.Repo.Merge(ctx, tip, in.Head)
	if err != nil || len(conflicts) > 0 {
		return out, false, err
	}
	touched, err := p.Repo.Diff(ctx, in.Base, tree)
	if err != nil {
		return out, false, err
	}
	snap, err := p.Repo.Snapshot(ctx, tree)
	if err != nil {
		return out, false, err
	}
	if out, err = p.Decider.Change(ctx, in, snap, touched); err != nil {
		return out, false, err
	}
	own, err := p.Repo.Diff(ctx, tip, tree)
	if err != nil {
		return out, false, err
	}
	elsewhere := func(file string) bool {
		return !slices.ContainsFunc(own, func(c reconciler.PathChange) bool { return c.Path == file })
	}
	return out, !slices.ContainsFunc(out.Held, func(h schema.Held) bool { return elsewhere(h.File) }) &&
		!slices.ContainsFunc(out.Diagnostics, func(d schema.Diagnostic) bool {
			return d.Code == decide.CodeFrozen || d.Severity == schema.SeverityError && elsewhere(d.File)
		}), nil
}

// unplanned is the proposal of a head that is not planned, and why.
func unplanned(b basis, head string, why error) plan.Proposal {
	return plan.Propose(plan.ProposeInput{Base: b.in.Base, Head: head, Documents: []plan.DocumentChange{},
		Diagnostics: []schema.Diagnostic{{
			Severity: schema.SeverityError, Code: codeRefused, File: ".", Line: 1, Column: 1, Message: why.Error(),
		}}})
}

// lines are the lines of a pull request that a forge shows, if it was planned
// merged onto a commit of main. Only findings need them.
func (p *Planner) lines(ctx context.Context, onto string, out plan.Proposal) (schema.Lines, error) {
	if len(out.Diagnostics) == 0 || p.Render.Lines == nil {
		return nil, nil
	}
	text, err := p.Repo.Patch(ctx, onto, out.Head)
	if err != nil {
		return nil, fmt.Errorf("read the lines of %s: %w", reconciler.Short(out.Head), err)
	}
	lines, err := p.Render.Lines(strings.NewReader(text))
	if err != nil {
		p.Log.Warn("lines of a pull request unknown; listing its findings instead", "head", reconciler.Short(out.Head), "error", err)
		return nil, nil
	}
	return lines, nil
}

// publish has a proposal published on its pull request.
func (p *Planner) publish(pull *openPull, proposal plan.Proposal, mends bool, c plan.PullContext, b basis, mem *plan.Memory) {
	x := &publication{target: target{pull: pull.Number}, author: pull.Author, head: proposal.Head}
	if b.frozen != "" && !mends {
		// An earlier plan stays the reviewed one.
		x.checks = p.frozenChecks(proposal, c, b.frozen)
		x.shown = plan.Shown{Head: proposal.Head}
		if was := p.reviews.review(pull.Number); was != nil && was.Head == proposal.Head {
			x.shown = was.Shown
			x.shown.Passed = false
		}
		x.shown.Key = keysOf(x.checks)
		x.shown, x.recorded, x.known = p.reviews.intend(pull.Number, x.shown)
		p.publisher.add(x)
		return
	}
	if mem == nil {
		mem = &plan.Memory{}
	}
	x.shown = plan.Shown{Head: proposal.Head, Base: proposal.Base, Digest: proposal.Digest, Passed: !proposal.Blocked(),
		At: p.Now().UTC().Truncate(time.Minute)}
	x.shown.Keep(plan.ReviewedUnits(proposal, *mem))
	shown, next := p.reviews.shownOf(pull.Number)
	p.jobs.addTo(x.shown.Units, proposal.Plans, next, shown)
	x.shown.Since = plan.Since(cmp.Or(next, shown), &x.shown)
	c.Jobs = x.shown.Jobs()
	x.shown.Key = p.Render.Key(proposal, c)
	planned := x.shown.Units
	x.shown, x.recorded, x.known = p.reviews.intend(pull.Number, x.shown)
	if p.jobs.knowsMore(planned) { // jobs were observed in between
		p.replan([]int{pull.Number})
	}
	proposal.Base, c.Jobs, c.Since, c.Observed = x.shown.Base, x.shown.Jobs(), x.shown.Since, x.shown.At
	text := p.Render.Plan(proposal, c)
	x.checks, x.plan = p.Render.Checks(proposal, c), &text
	p.publisher.add(x)
}

// frozenChecks are the checks of a proposal while nothing can be planned: documents
// are still checked.
func (p *Planner) frozenChecks(out plan.Proposal, c plan.PullContext, why string) []plan.Check {
	out.Plans, out.Held, out.Released, out.Decisions, out.Authority = []plan.Plan{}, nil, nil, nil, nil
	out.PolicyEffects = plan.PolicyEffects{}
	out.Diagnostics = append(slices.Clone(out.Diagnostics), schema.Diagnostic{
		Severity: schema.SeverityError, Code: decide.CodeFrozen, File: ".", Line: 1, Column: 1,
		Message: why + "; it is planned again once that is over",
	})
	checks := p.Render.Checks(out, c)
	for i := range checks {
		if checks[i].Name == plan.CheckPlan {
			checks[i].Conclusion, checks[i].Title = plan.Failure, titled("nothing can be planned: "+why)
		}
	}
	return checks
}

// titled is text as the title of a check: one printable line.
func titled(text string) string {
	clean := strings.Join(strings.FieldsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f }), " ")
	if runes := []rune(strings.ToValidUTF8(clean, "?")); len(runes) > maxTitle {
		return string(runes[:maxTitle-1]) + "…"
	}
	return clean
}
