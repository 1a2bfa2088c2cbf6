package reconciler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema/authority"
)

const (
	// pullsDebounce gathers what changes while a unit is being worked on
	// before open pull requests are planned again.
	pullsDebounce = 700 * time.Millisecond
	// followCoalesce is the least time between two updates of one comment.
	followCoalesce = time.Second
)

// listPulls finds what webhooks may have lost: every open pull request is
// looked at, and those that were open and no longer are.
func (r *Reconciler) listPulls(ctx context.Context) error {
	open, err := r.o.Forge.OpenPulls(ctx)
	if err != nil {
		return err
	}
	now := map[int]PullRequest{}
	for _, pr := range open {
		if pr.BaseBranch == r.o.Branch { // the others are none of this estate's
			now[pr.Number] = pr
		}
	}
	r.mu.Lock()
	before := r.pulls
	r.pulls = now
	shown := maps.Clone(r.shown)
	r.mu.Unlock()
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(now))) { // newest first
		if before[n] != now[n] || shown[n] == "" { // what did not move and is shown costs nothing
			r.forge.Add(Item{Do: TaskPull, Pull: n})
		}
	}
	for n := range before {
		if _, ok := now[n]; !ok {
			r.forge.Add(Item{Do: TaskPull, Pull: n})
		}
	}
	return nil
}

// refreshPulls plans open pull requests again, as what they rest on changed.
func (r *Reconciler) refreshPulls() {
	if r.o.Forge == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := range r.pulls {
		r.forge.AddAfter(Item{Do: TaskPull, Pull: n}, pullsDebounce)
	}
}

// propose shows on one pull request what its merge would do.
func (r *Reconciler) propose(ctx context.Context, number int) error {
	st := r.current()
	if st == nil {
		return errors.New("no commit has been decided yet")
	}
	pr, err := r.o.Forge.Pull(ctx, number)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if pr.Open && pr.BaseBranch == r.o.Branch {
		r.pulls[number] = pr
	} else {
		delete(r.pulls, number)
		delete(r.shown, number)
	}
	r.mu.Unlock()
	if !pr.Open || pr.BaseBranch != r.o.Branch {
		return nil
	}
	head, err := r.o.Repo.FetchPull(ctx, number)
	if err != nil {
		return err
	}
	if head != pr.Head {
		// Moved between the two reads: what was fetched is what is planned,
		// and the forge decides whether it is still the head.
		pr.Head = head
	}
	mem := r.writer.memory()
	in := decide.Input{
		Repo: r.o.Repo, Base: st.main, InForce: st.inForce, Permitted: st.permitted, Head: head, Today: r.today(),
		Memory: &mem, Rules: r.rules,
	}
	if r.o.Authority != nil {
		approvers, err := r.o.Forge.Approvers(ctx, pr)
		if err != nil {
			return err
		}
		in.By = &authority.Actor{Login: pr.Author, Approvers: approvers, Proof: authority.ProofPullRequest}
	}
	breakGlass, acks, err := r.asksOf(ctx, pr)
	if err != nil {
		return err
	}
	in.Acks = acks
	if in.By != nil {
		in.By.BreakGlass = breakGlass
	}
	p, err := r.decider.Proposal(ctx, in)
	if err != nil {
		return err
	}
	// What was shown is shown again only if it says something else. The forge
	// compares as well; this saves it the reading.
	mark := strings.Join([]string{p.Base, p.Head, p.Digest, strconv.FormatBool(p.Blocked()), fmt.Sprint(len(p.Diagnostics)), fmt.Sprint(p.Authority)}, " ")
	r.mu.Lock()
	same := r.shown[number] == mark
	r.mu.Unlock()
	if same {
		return nil
	}
	if err := r.o.Forge.Propose(ctx, pr, p); err != nil {
		return err
	}
	r.mu.Lock()
	r.shown[number] = mark
	r.mu.Unlock()
	return nil
}

// ShowAgain makes the next look at a pull request (0: at all) show its
// proposal even if nothing changed, as somebody asked for it.
func (r *Reconciler) ShowAgain(number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if number == 0 {
		clear(r.shown)
	}
	delete(r.shown, number)
}

func (r *Reconciler) rules(backend string) plan.Rules {
	if rt := r.o.Runtimes[backend]; rt != nil {
		return rt
	}
	return nil
}

// touched wakes the comment of the pull request that brought a commit, unless
// its roll-out is over.
func (r *Reconciler) touched(commit string) {
	if r.o.Forge != nil && commit != "" && !r.rollouts.over(commit) {
		r.forge.AddAfter(Item{Do: TaskFollow, Commit: commit}, followCoalesce)
	}
}

// follow tells the pull request that brought a commit what became of it.
func (r *Reconciler) follow(ctx context.Context, commit string) error {
	prs, sure, err := r.pullsOf(ctx, commit)
	if err != nil {
		return err
	}
	roll := r.rollouts.tell(commit)
	for _, pr := range prs {
		if err := r.o.Forge.Follow(ctx, pr, roll); err != nil {
			return err
		}
	}
	if sure && roll.Settled() {
		r.rollouts.end(commit)
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
func (r *Reconciler) pullsOf(ctx context.Context, commit string) (prs []PullRequest, sure bool, err error) {
	prs, asked := r.rollouts.pulls(commit)
	young := asked.IsZero() || r.o.Now().Sub(asked) < pullsOfTrust
	if len(prs) > 0 || !young {
		return prs, true, nil
	}
	if prs, err = r.o.Forge.PullsOf(ctx, commit); err != nil {
		return nil, false, err
	}
	r.rollouts.setPulls(commit, prs)
	if len(prs) == 0 {
		r.forge.AddAfter(Item{Do: TaskFollow, Commit: commit}, pullsOfAgain)
	}
	return prs, len(prs) > 0, nil
}
