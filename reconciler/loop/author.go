package loop

import (
	"cmp"
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
	"berth/schema/authority"
)

const (
	// maxSteps bounds how many commits of main are decided one by one; what more
	// there are, the oldest, are one step by nobody.
	maxSteps = 1000
	// sayAgainIn is when it is asked again what was said of a deletion, if the forge
	// did not tell.
	sayAgainIn = 10 * time.Second
	// breakGlassTrailer says that somebody of the platform acts in a tenant's
	// place, and why.
	breakGlassTrailer = "Break-Glass"
)

// steps are the commits of main from one that was decided to another, oldest
// first, and who made each; from is "" where nothing is in force yet. Those that
// it is too early to tell of, and what came after them, are left out.
func (r *Reconciler) steps(ctx context.Context, from, to string) ([]decide.Step, error) {
	if from == "" {
		tree, err := r.o.Repo.Snapshot(ctx, to)
		return []decide.Step{{Commit: to, Tree: tree}}, err
	}
	if from == to { // what could not be read of it then is judged by who made it
		commits, err := r.o.Repo.Log(ctx, "", to, 1)
		if err != nil {
			return nil, err
		}
		if len(commits) != 1 || len(commits[0].Parents) != 1 {
			tree, err := r.o.Repo.Snapshot(ctx, to)
			return []decide.Step{{Commit: to, Tree: tree}}, err
		}
		from = commits[0].Parents[0]
	}
	memo := &remembering{Repo: r.o.Repo, Forge: r.o.Forge}
	commits, joins, err := r.chain(ctx, from, to)
	if err != nil {
		return nil, err
	}
	r.notice(commits)
	var out []decide.Step
	if len(commits) == 0 || len(commits) == maxSteps {
		end := to
		if len(commits) > 0 && len(commits[0].Parents) > 0 {
			end = commits[0].Parents[0]
		}
		s, err := r.step(ctx, from, end)
		if err != nil {
			return nil, err
		}
		if r.o.Authority != nil && r.o.Accept == to {
			s.Operator = true
		}
		out = append(out, s)
	}
	readable := from // the last commit so far that could be read
	if len(out) > 0 {
		readable = out[0].Commit
	}
	for i, c := range commits {
		parent, joined := joins[c.ID]
		if !joined && len(c.Parents) > 0 {
			parent = c.Parents[0]
		}
		gap := i > 0 && parent != readable
		if gap {
			parent = readable // what came with a tree that cannot be read comes with this one, and is nobody's
		}
		s, err := r.step(ctx, parent, c.ID)
		if errors.Is(err, reconciler.ErrUnreadable) && i < len(commits)-1 {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("commit %d of %d since %s: %w", i+1, len(commits), short(from), err)
		}
		readable = c.ID
		if gap || joined {
			// Neither a forge nor a signature tells whose all of such a change is.
			s.Operator = joined && r.o.Accept == to
			out = append(out, s)
			continue
		}
		known, err := r.author(ctx, memo, &s, commits, i, slices.ContainsFunc(out, removesMany))
		if err != nil {
			return nil, fmt.Errorf("who made %s: %w", short(c.ID), err)
		}
		if !known {
			r.o.Log.Info("waiting to be told which pull request a commit is of", "commit", short(c.ID), "at_most", r.o.AuthorLag)
			return out, nil
		}
		if removesMany(s) {
			s.Said, err = r.saidOfStep(ctx, memo, s)
			if ctx.Err() != nil {
				return nil, err
			}
			if err != nil { // whoever else waits for this decision has nothing to do with it
				r.o.Log.Warn("not all that was said of a deletion can be read; it is held meanwhile", "commit", short(s.Commit), "error", err)
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// saidOfStep is what was said of the deletions of a commit, on the pull requests
// that brought it; with an error, as far as it could be read. What could not is
// asked for again when the roll-out is told.
func (r *Reconciler) saidOfStep(ctx context.Context, memo *remembering, s decide.Step) (out []decide.Ack, err error) {
	if r.o.Forge == nil {
		return nil, nil
	}
	numbers := []int{s.PullRequest}
	if s.PullRequest == 0 {
		prs, err := memo.forge().PullsOf(ctx, s.Commit)
		if err != nil {
			return nil, err
		}
		numbers = nil
		for _, pr := range prs {
			if pr.Merged && pr.BaseBranch == r.o.Branch {
				numbers = append(numbers, pr.Number)
			}
		}
	}
	for _, n := range numbers {
		said, wrong := r.said(ctx, n, nil)
		err = cmp.Or(err, wrong)
		out = append(out, acksOf(said)...)
	}
	return out, err
}

// sayAgain adds to the last step what was said since of deletions that wait. It
// returns what is decided with by that, whoever said it; of which it could not be
// read is left to wait.
func (r *Reconciler) sayAgain(ctx context.Context, steps []decide.Step, acked []acking) (read []acking, err error) {
	last := &steps[len(steps)-1]
	for _, one := range acked {
		said, err := r.said(ctx, one.pull, []string{one.digest}, one.remark)
		if ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			r.o.Log.Warn("not all that was said of a deletion can be read; again later", "pull", one.pull, "error", err)
			r.queue.AddAfter(reconciler.Item{Do: reconciler.TaskEstate}, sayAgainIn)
		}
		if err == nil {
			read = append(read, one)
		}
		for _, w := range said {
			read = append(read, acking{one.pull, one.commit, w.Digest, w.remark})
		}
		last.Said = append(last.Said, acksOf(said)...)
	}
	return read, nil
}

// chain is how main came from one commit to another, oldest first: by first
// parents, unless one of them leads elsewhere, such as into a branch that main
// was merged into and that then became main. Taken by first parents, such a branch
// would undo what main did meanwhile; so there the parent is followed that comes
// from where main was. joins names it, by the commit whose parent it is.
func (r *Reconciler) chain(ctx context.Context, from, to string) (commits []reconciler.Commit, joins map[string]string, err error) {
	joins = map[string]string{}
	for tip := to; tip != from && len(commits) < maxSteps; {
		part, err := r.o.Repo.Log(ctx, from, tip, maxSteps-len(commits))
		if err != nil {
			return nil, nil, err
		}
		n := len(part)
		if n == 0 {
			break
		}
		if oldest := part[n-1]; n == maxSteps-len(commits) || len(oldest.Parents) > 0 && oldest.Parents[0] == from {
			commits = append(commits, part...)
			break
		}
		i, parent, err := r.joined(ctx, from, part)
		if err != nil {
			return nil, nil, err
		}
		if i < 0 { // nothing leads there: all of it is one change
			commits = append(commits, part...)
			joins[part[n-1].ID] = from
			break
		}
		commits = append(commits, part[:i+1]...)
		joins[part[i].ID] = parent
		tip = parent
	}
	slices.Reverse(commits)
	return commits, joins, nil
}

// joined finds the newest commit that has another parent than its first which
// comes from a commit; -1 if there is none.
func (r *Reconciler) joined(ctx context.Context, from string, commits []reconciler.Commit) (int, string, error) {
	for i, c := range commits {
		for _, p := range c.Parents[min(1, len(c.Parents)):] {
			base, err := r.o.Repo.MergeBase(ctx, from, p)
			if err != nil && !errors.Is(err, reconciler.ErrNotFound) {
				return 0, "", err
			}
			if err == nil && base == from {
				return i, p, nil
			}
		}
	}
	return -1, "", nil
}

// ofEstate says whether a change is in one of the estate's directories, or in
// one that looks like it.
func ofEstate(c reconciler.PathChange) bool {
	top, _, _ := strings.Cut(c.Path, "/")
	return strings.EqualFold(top, "platform") || strings.EqualFold(top, "tenants")
}

// removesMany says whether a step removes so much that somebody may have to
// acknowledge it.
func removesMany(s decide.Step) bool {
	n := 0
	for _, c := range s.Touched {
		if c.To == "" && ofEstate(c) {
			n++
		}
	}
	return n > decide.MinDeletions
}

// awaitsAck says whether a deletion is held until somebody says that it is meant.
func (r *Reconciler) awaitsAck() bool {
	st := r.current()
	return st == nil || slices.ContainsFunc(st.held, func(h plan.Held) bool { return strings.Contains(h.Message, decide.AckTrailer) })
}

// notice notes when each commit was first seen. A forge's time to tell of one
// runs from then, also while another is waited for: else many would hold up
// everybody for as many times as long.
func (r *Reconciler) notice(commits []reconciler.Commit) {
	if r.awaited == nil {
		r.awaited = map[string]time.Time{}
	}
	now := r.o.Now()
	maps.DeleteFunc(r.awaited, func(_ string, since time.Time) bool { return now.Sub(since) > time.Hour+r.o.AuthorLag })
	for _, c := range commits {
		if r.awaited[c.ID].IsZero() {
			r.awaited[c.ID] = now
		}
	}
}

func (r *Reconciler) step(ctx context.Context, parent, commit string) (s decide.Step, err error) {
	s.Commit = commit
	if s.Touched, err = r.o.Repo.Diff(ctx, parent, commit); err != nil {
		return s, err
	}
	s.Tree, err = r.o.Repo.Snapshot(ctx, commit)
	return s, err
}

// author fills in who made commits[i], a commit of main: the pull request that
// brought it, else its signature. It says false while the forge may not know the
// former yet.
// removed says that a commit before it removed so much that this one may be there
// to acknowledge it.
func (r *Reconciler) author(ctx context.Context, memo *remembering, s *decide.Step, commits []reconciler.Commit, i int, removed bool) (known bool, err error) {
	ev, err := r.o.Repo.Evidence(ctx, s.Commit)
	if err != nil {
		return false, err
	}
	s.By.BreakGlass, s.Acks = Asks(ev)
	s.Payload, s.Signature = ev.Payload, ev.Signature
	outside := len(s.Touched) > 0 && len(s.Acks) == 0 && !slices.ContainsFunc(s.Touched, ofEstate)
	if r.o.Authority == nil || r.o.Forge == nil || ev.Tenant != "" || outside && !removed && !r.awaitsAck() {
		return true, nil // nobody's right is asked, or no forge would know
	}
	pr, ok, err := BroughtBy(ctx, memo, memo.forge(), r.o.Branch, commits, i)
	if err != nil {
		return false, err
	}
	if ok {
		approvers, err := memo.forge().Approvers(ctx, pr)
		if err != nil {
			return false, err
		}
		s.By.Login, s.By.Approvers, s.By.Proof, s.PullRequest = pr.Author, approvers, authority.ProofPullRequest, pr.Number
		// The message of a merge is whoever's merged, the head's is the author's.
		if s.By.BreakGlass, s.Acks, err = r.asksOf(ctx, pr); err != nil {
			return false, err
		}
	}
	if ok || pr.Number != 0 || outside { // the forge knows it, and does not stand for it; or nobody has to
		return true, nil
	}
	return r.o.Now().Sub(r.awaited[s.Commit]) >= r.o.AuthorLag, nil
}

// Asks is what a commit's trailers ask for: to break the glass, and why; and the
// digests of the large deletions that are meant.
func Asks(e reconciler.Evidence) (breakGlass string, acks []string) {
	for _, t := range e.Trailers {
		switch {
		case strings.EqualFold(t.Key, breakGlassTrailer):
			breakGlass = t.Value
		case strings.EqualFold(t.Key, decide.AckTrailer):
			acks = append(acks, t.Value)
		}
	}
	return breakGlass, acks
}

// asksOf is what the head of a pull request asks for; nothing if it is no longer
// the head that is known.
func (r *Reconciler) asksOf(ctx context.Context, pr reconciler.PullRequest) (breakGlass string, acks []string, err error) {
	e, err := r.o.Repo.PullEvidence(ctx, pr.Number)
	if errors.Is(err, reconciler.ErrNotFound) || errors.Is(err, reconciler.ErrRefused) || err == nil && e.Commit != pr.Head {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	breakGlass, acks = Asks(e)
	return breakGlass, acks, nil
}

// remembering is a repository and a forge that are asked each thing once, as the
// commits of one pull request ask the same.
type remembering struct {
	reconciler.Repo
	Forge reconciler.Forge

	pulls     map[string][]reconciler.PullRequest
	approvers map[reconciler.PullRequest][]string
	heads     map[int]string
	merges    map[[2]string]merge
}

type merge struct {
	tree      string
	conflicts []string
}

// FetchPull is the head of a pull request.
func (m *remembering) FetchPull(ctx context.Context, number int) (string, error) {
	return once(&m.heads, number, func() (string, error) { return m.Repo.FetchPull(ctx, number) })
}

// Merge merges two commits.
func (m *remembering) Merge(ctx context.Context, base, head string) (string, []string, error) {
	got, err := once(&m.merges, [2]string{base, head}, func() (merge, error) {
		tree, conflicts, err := m.Repo.Merge(ctx, base, head)
		return merge{tree, conflicts}, err
	})
	return got.tree, got.conflicts, err
}

// forge is the forge, remembered.
func (m *remembering) forge() reconciler.Forge { return rememberedForge{m.Forge, m} }

type rememberedForge struct {
	reconciler.Forge
	m *remembering
}

func (f rememberedForge) PullsOf(ctx context.Context, commit string) ([]reconciler.PullRequest, error) {
	return once(&f.m.pulls, commit, func() ([]reconciler.PullRequest, error) { return f.Forge.PullsOf(ctx, commit) })
}

func (f rememberedForge) Approvers(ctx context.Context, pr reconciler.PullRequest) ([]string, error) {
	return once(&f.m.approvers, pr, func() ([]string, error) { return f.Forge.Approvers(ctx, pr) })
}

// once asks for what is not remembered; an error is asked for again.
func once[K comparable, V any](memory *map[K]V, key K, ask func() (V, error)) (V, error) {
	if v, ok := (*memory)[key]; ok {
		return v, nil
	}
	v, err := ask()
	if err == nil {
		if *memory == nil {
			*memory = map[K]V{}
		}
		(*memory)[key] = v
	}
	return v, err
}
