package loop

import (
	"context"
	"errors"
	"fmt"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/schema"
)

// applyCommand carries out the oldest command that waits for a decision. It returns
// false if none waits.
func (t *estateTask) applyCommand(ctx context.Context, old *reconciler.State) (bool, error) {
	one, ok := t.pulls.NextApply()
	if !ok {
		return false, nil
	}
	got, err := t.decider.Apply(ctx, t.pulls.ApplyInput(old), one.Apply)
	if err != nil && !errors.Is(err, decide.ErrFrozen) {
		return true, err
	}
	if err != nil || got.Digest != one.Digest {
		t.pulls.AnswerApply(one, "the plan changed meanwhile; repeat the command to have the new plan posted")
		return true, nil
	}
	of := one.Apply.Commit
	commit, err := t.writeInForce(ctx, old.InForce, old.Main, reconciler.CorrelationID(of), got.Decision)
	if commit == "" {
		return true, err
	}
	approved := &approval{commit: of, pull: one.Apply.PullRequest, by: one.Apply.By, plans: map[schema.Key]string{}}
	for _, p := range got.Proposal.Plans {
		approved.plans[p.Key] = p.Digest
	}
	next := newState(old.Main, commit, t.today(), got.Decision)
	if err := t.putInForce(ctx, decidedChange{
		old: old, next: next, origin: origin{first: of, approval: approved},
		records: t.decisionRecords(got.Verdicts, old.InForce, got.Decision), events: entitlementEvents(got.Verdicts, got.Desired, t.now()),
	}); err != nil {
		return true, err
	}
	t.pulls.RollOuts.Released(of, next.Held)
	t.pulls.Touched(of)
	t.log.Info("held change applied", "commit", reconciler.Short(of), "user", one.Apply.By, "documents", len(got.Taken), "still_held",
		len(got.Left), "correlation_id", reconciler.CorrelationID(of))
	var remaining []string
	if next.Paused != "" {
		remaining = append(remaining, "Berth is paused: nothing changes on hosts until the pause is lifted")
	}
	for _, h := range got.Left {
		remaining = append(remaining, fmt.Sprintf("%s stays held: %s", h.File, h.Message))
	}
	for _, path := range got.Replaced {
		remaining = append(remaining, path+" was replaced by a later commit")
	}
	t.pulls.AnswerApply(one, "", remaining...)
	return true, nil
}
