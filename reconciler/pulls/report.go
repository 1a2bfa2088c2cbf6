package pulls

import (
	"context"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/provenance"
	"berth/schema"
)

// Reporter reports the roll-outs of merged commits in the comments of the pull
// requests that brought them.
type Reporter struct {
	*env
	rollouts *RollOuts
	acks     *Acknowledgements
}

// Touched has the roll-out of a commit reported, unless it is over.
func (r *Reporter) Touched(commit string) {
	if r.Forge != nil && commit != "" && !r.rollouts.isOver(commit) {
		r.Queue.AddAfter(reconciler.Item{Task: reconciler.TaskRollout, Commit: commit}, r.rollouts.reportInterval(commit))
	}
}

// Follow reports the roll-out of a commit on the pull requests that brought it.
func (r *Reporter) Follow(ctx context.Context, commit string) error {
	prs, sure, err := r.pullsOf(ctx, commit)
	if err != nil {
		return err
	}
	st := r.state()
	for _, pr := range prs {
		if err := r.restore(ctx, pr, commit, st); err != nil {
			return err
		}
	}
	roll := r.rollouts.report(commit)
	if err := r.post(ctx, prs, roll); err != nil {
		return err
	}
	if sure && st != nil {
		if err := r.useEarlierAcks(ctx, st, prs, roll.Held); err != nil {
			return err
		}
	}
	waits := func(pr reconciler.PullRequest) bool { return waitsForTree(r.reviews.review(pr.Number), st) }
	if !sure || !roll.Settled() || slices.ContainsFunc(prs, waits) {
		return nil
	}
	r.rollouts.End(commit)
	for _, pr := range prs {
		if err := r.endReview(ctx, pr.Number, pr.MergeCommit); err != nil {
			return err
		}
	}
	return nil
}

// post writes a roll-out into the comments of pull requests.
func (r *Reporter) post(ctx context.Context, prs []reconciler.PullRequest, roll plan.Rollout) error {
	text := r.Render.Rollout(roll)
	for _, pr := range prs {
		if err := r.Forge.Comment(ctx, pr.Number, reconciler.Comment{Rollout: &text}); err != nil {
			return err
		}
	}
	if len(prs) > 0 {
		r.notePosted(roll)
	}
	return nil
}

// AcksDecided reports deletions that were decided again with acknowledgements.
func (r *Reporter) AcksDecided(acked []Acked) {
	if len(acked) == 0 {
		return
	}
	for _, one := range acked {
		r.acks.pending.finish(one.id, true)
		r.rollouts.Released(one.Commit, r.state().Held)
		r.Touched(one.Commit)
	}
	r.Queue.Add(reconciler.Item{Task: reconciler.TaskCommands})
}

// useEarlierAcks has a deletion decided again that is held although a user had
// acknowledged it: the forge did not list the pull request or its comments in time.
func (r *Reporter) useEarlierAcks(ctx context.Context, st *reconciler.State, prs []reconciler.PullRequest, held []schema.Held) error {
	still := digestsOf(st.Held)
	digests := slices.DeleteFunc(digestsOf(held), func(d string) bool { return !slices.Contains(still, d) })
	if len(digests) == 0 {
		return nil
	}
	var first error
	for _, pr := range prs {
		found, err := r.acks.find(ctx, pr.Number, digests, commandID{})
		if first == nil {
			first = err
		}
		for _, f := range found {
			if r.acks.pending.add(f.id, Acked{f.id, pr.MergeCommit, f.Digest}) {
				r.Queue.Add(reconciler.Item{Task: reconciler.TaskEstate})
			}
		}
	}
	return first
}

// notePosted records on berth/status that the stale plans of a roll-out are in its
// comment: from now on a command to apply them was given by a user who could read
// them.
func (r *Reporter) notePosted(posted plan.Rollout) {
	now, recorded := r.Now(), false
	for _, u := range posted.Units {
		if u.Stale == nil {
			continue
		}
		r.amend(u.Key, func(s *plan.Status) bool {
			if s.Revision != posted.Commit || s.Review == nil || s.Review.Stale == nil || s.Review.Stale.Now != u.Stale.Now ||
				postedPlan(s) != nil {
				return false // the unit has another plan by now, which is posted next
			}
			review := *s.Review
			review.Posted, s.Review = &plan.PostedPlan{Digest: u.Stale.Now, At: now}, &review
			recorded = true
			return true
		})
	}
	if recorded {
		r.Queue.Add(reconciler.Item{Task: reconciler.TaskCommands}) // a user may have given the command already
	}
}

// postedPlan is the posted stale plan of a unit; nil: not posted yet.
func postedPlan(s *plan.Status) *plan.PostedPlan {
	if o := s.Review.Posted; o != nil && o.Digest == s.Review.Stale.Now {
		return o
	}
	return nil
}

// endReview removes the record of a merged pull request, once nothing that it
// brought is in progress or held, and that was reported.
func (r *Reporter) endReview(ctx context.Context, number int, commit string) error {
	v := r.reviews.review(number)
	st := r.state()
	if st == nil { // it is not known yet what an earlier run decided
		r.Queue.AddAfter(reconciler.Item{Task: reconciler.TaskPull, Pull: number}, undecidedAgain)
		return nil
	}
	if st.Main == "" || commit == "" {
		return nil // comes again once it is decided
	}
	if in, err := r.isAncestor(ctx, commit, st.Main); !in || err != nil {
		return err
	}
	if r.inProgress(v, commit) || waitsForTree(v, st) {
		return nil
	}
	if v != nil && !r.rollouts.isOver(commit) { // an earlier run had no time to report it
		r.Touched(commit)
		return nil
	}
	r.reviews.forget(number)
	return nil
}

// inProgress reports whether a unit that a commit or its review changed last is not rolled out, or held by the review.
func (r *Reporter) inProgress(v *plan.Review, commit string) bool {
	for key, s := range r.Status.Units().All() {
		of := s.Revision == commit
		if v != nil && !of {
			u, _ := v.Unit(key, "")
			of = u != nil
		}
		if of && (!s.RolledOut() || s.Review != nil) {
			return true
		}
	}
	return false
}

// waitsForTree reports whether a review contains documents of a tree that is
// unreadable now. Once the tree is readable, they come into force without another
// commit. st is nil before the first decision.
func waitsForTree(v *plan.Review, st *reconciler.State) bool {
	return v != nil && st != nil && slices.ContainsFunc(st.Held, func(h schema.Held) bool {
		return h.Reason == schema.HeldUnreadable && (len(v.More) > 0 || slices.ContainsFunc(v.Units, func(u plan.ReviewedUnit) bool {
			tenant := "tenants/" + u.Key.Tenant
			return h.File == tenant || strings.HasPrefix(h.File, tenant+"/") || !strings.HasPrefix(h.File, "tenants/")
		}))
	})
}

// restore makes the roll-out again of a commit that an earlier run decided and did
// not report to its end. The statuses name the units that the commit changed last;
// the review of its pull request names the others.
func (r *Reporter) restore(ctx context.Context, pr reconciler.PullRequest, commit string, st *reconciler.State) error {
	v := r.reviews.review(pr.Number)
	if v == nil || st == nil || r.rollouts.isWhole(commit) {
		return nil
	}
	commits, err := r.Repo.Log(ctx, "", commit, 1)
	if err != nil || len(commits) == 0 {
		return err
	}
	paths, err := provenance.Touched(ctx, r.Repo, commits[0])
	if err != nil {
		return err
	}
	held := slices.DeleteFunc(slices.Clone(st.Held), func(h schema.Held) bool {
		return !slices.ContainsFunc(paths, func(c reconciler.PathChange) bool { return c.Path == h.File })
	})
	var units []plan.UnitProgress
	if pr.MergeCommit == commit {
		if units, err = r.passedOn(ctx, v, commit, st); err != nil {
			return err
		}
	}
	r.rollouts.restore(commit, held, units)
	return nil
}

// passedOn lists the units of a review that were deleted since, or that a later
// commit changed.
func (r *Reporter) passedOn(ctx context.Context, v *plan.Review, commit string, st *reconciler.State) ([]plan.UnitProgress, error) {
	mem := r.Status.Units()
	var units []plan.UnitProgress
	for _, u := range v.Units {
		switch s := mem.Get(u.Key); {
		case s == nil:
			deletes := slices.ContainsFunc(u.Steps, func(s string) bool { return strings.HasPrefix(s, string(plan.Delete)) })
			if deletes && st.Effective.Unit(u.Key) == nil {
				units = append(units, plan.UnitProgress{Key: u.Key, Phase: plan.PhaseDeleted, Settled: true})
			}
		case s.Revision != "" && s.Revision != commit:
			later, err := r.isAncestor(ctx, commit, s.Revision)
			if err != nil {
				return nil, err
			}
			if later {
				units = append(units, plan.UnitProgress{Key: u.Key, Settled: true, TakenOver: s.Revision})
			}
		}
	}
	return units, nil
}
