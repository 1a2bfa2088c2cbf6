package loop

import (
	"context"
	"errors"
	"fmt"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
)

// approval is the command behind a decision, with the plans that it approved.
type approval struct {
	commit string // of main, that the command names
	pull   int    // that the commit merged; 0: none
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
	one, ok := r.pulls.NextApply()
	if !ok {
		return false, nil
	}
	got, err := r.decider.Apply(ctx, r.pulls.ApplyInput(st), one.Apply)
	if err != nil && !errors.Is(err, decide.ErrFrozen) {
		return true, err
	}
	if err != nil || got.Digest != one.Digest {
		r.pulls.AnswerApply(one, "the plan changed meanwhile; repeat the command to have the new plan posted")
		return true, nil
	}
	cause := correlation(one.Apply.Commit)
	inForce, err := r.o.Repo.WriteInForce(ctx, st.InForce, reconciler.InForce{
		Commit: st.Main, Replace: got.Replace, Held: got.Held, Permitted: got.Permitted, CorrelationID: cause, Epoch: r.writer.Revision().Epoch,
	})
	if errors.Is(err, reconciler.ErrConflict) {
		r.queue.Add(reconciler.Item{Task: reconciler.TaskEstate})
		return true, nil
	}
	if err != nil {
		return true, err
	}
	next := newState(st.Main, inForce, r.today(), got.Decision)
	approved := &approval{commit: one.Apply.Commit, pull: one.Apply.PullRequest, by: one.Apply.By, plans: map[schema.Key]string{}}
	for _, p := range got.Proposal.Plans {
		approved.plans[p.Key] = p.Digest
	}
	records := decisionRecords(got.Verdicts, st.InForce, r.appOf(got.Desired), r.o.Now())
	if err := r.enforce(ctx, st, next, origins{first: one.Apply.Commit, approval: approved}, nil, records, entitlementEvents(got.Verdicts, got.Desired, r.o.Now())); err != nil {
		return true, err
	}
	r.pulls.RollOuts.Released(one.Apply.Commit, next.Held)
	r.pulls.Touched(one.Apply.Commit)
	r.o.Log.Info("held change applied", "commit", short(one.Apply.Commit), "user", one.Apply.By, "documents", len(got.Taken), "still_held", len(got.Left), "correlation_id", cause)
	var more []string
	if next.Paused != "" {
		more = append(more, "Berth is paused: nothing changes on hosts until the pause is lifted")
	}
	for _, h := range got.Left {
		more = append(more, fmt.Sprintf("%s stays held: %s", h.File, h.Message))
	}
	for _, path := range got.Replaced {
		more = append(more, path+" was replaced by a later commit")
	}
	r.pulls.AnswerApply(one, "", more...)
	return true, nil
}
