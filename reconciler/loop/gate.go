package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
)

const (
	// pendingRetry is the longest delay before a unit with an unknown pull request is
	// reconciled again.
	pendingRetry = time.Second
	// forgeRetry is the same delay after an error of the forge.
	forgeRetry = 2 * time.Second
	// publishGrace is how long a plan may take to be published after the merge: a
	// forge may merge as soon as the checks are there.
	publishGrace = 20 * time.Second
)

// gate compares the plan of a unit with the plan that was reviewed, before an
// action.
type gate struct {
	*recorder
	authorLag time.Duration
}

// gated is the permitted part of a unit's plan, and the review for its status.
type gated struct {
	plan     plan.Plan        // may be executed now
	shown    plan.Plan        // the complete plan with its blockers
	review   *plan.UnitReview // for the new status
	isHeld   bool             // the plan is stale: only repairs may be executed
	again    time.Duration    // delay until the next check of an undecided plan; 0: decided
	isQuiet  bool             // the delay is short and not shown in the status
	approved *plan.UnitReview // of an approved plan: the review to restore if no action starts

	rules    plan.Rules
	observed plan.Observed
	stopped  bool // the applied unit is stopped as declared
}

// isKept returns true if Berth may only repair the unit as it was applied.
func (g gated) isKept() bool { return g.isHeld || g.again > 0 }

// check lets a plan pass that equals the reviewed one or was approved, and holds any
// other. A unit passes if no pull request brought its revision, and a plan if it only
// repairs. While a plan is held, or its review unknown, Berth repairs the unit as it
// was applied.
func (t *gate) check(
	ctx context.Context, st *reconciler.State, prev *plan.Status, p plan.Plan, observed plan.Observed, rules plan.Rules,
) gated {
	g := gated{plan: p, shown: p, review: prev.Review, rules: rules, observed: observed}
	if ctx.Err() != nil {
		return g
	}
	if st.Recorded != nil && changes(st.Recorded, st, p.Key) && !p.Empty() {
		// The review in the status belongs to the state in force before.
		g.stopped, g.again = wasStopped(st.Recorded, prev, p.Key), pendingRetry
		return g.keep(reviewPending("it is not known yet which commit brought it, and so whether this was reviewed"))
	}
	if g.review == nil || p.IsOfLostNodes() {
		return g
	}
	g.stopped = g.review.Stopped
	switch {
	case p.Empty():
		g.review = nil
		return g
	case p.Digest == g.review.Meant:
		return g.approve(g.review)
	case len(p.Actions) > 0 && isWithin(p, g.repairs()), len(p.Actions) == 0 && !isObserved(p):
		return g
	}
	return t.checkPulls(ctx, g, prev)
}

// checkPulls compares the plan with those of the pull requests that brought the revision of the unit.
func (t *gate) checkPulls(ctx context.Context, g gated, prev *plan.Status) gated {
	numbers, known, err := t.pulls.BroughtBy(ctx, prev.Revision)
	if err != nil || !known {
		return t.postpone(g, prev, err)
	}
	if len(numbers) == 0 {
		g.review = nil
		return g
	}
	if n, ok := t.shownOn(g.plan, numbers); ok {
		return g.approve(&plan.UnitReview{Pull: n, Stopped: g.stopped, Commits: g.review.Commits})
	}
	for _, commit := range g.review.Commits {
		more, known, err := t.pulls.BroughtBy(ctx, commit)
		if err != nil || !known {
			return t.postpone(g, prev, err)
		}
		numbers = append(numbers, more...)
	}
	return t.compare(g, numbers, prev)
}

// shownOn returns the pull request that showed a plan.
func (t *gate) shownOn(p plan.Plan, numbers []int) (pull int, ok bool) {
	for _, n := range numbers {
		if shown, _ := t.pulls.Shown(n); shown != nil {
			if _, same := shown.Unit(p.Key, p.Digest); same {
				return n, true
			}
		}
	}
	return 0, false
}

// compare compares a plan with the plans published on the pull requests that came since the unit
// was changed last. Those that were merged together may have shown a part of it each.
func (t *gate) compare(g gated, numbers []int, prev *plan.Status) gated {
	p := g.plan
	if n, ok := t.shownOn(p, numbers); ok {
		return g.approve(&plan.UnitReview{Pull: n, Stopped: g.stopped, Commits: g.review.Commits})
	}
	parts, pull, isComing := t.shownParts(p, numbers)
	switch {
	case plan.ShownInParts(p, g.observed, parts):
		return g.approve(&plan.UnitReview{Pull: pull, Stopped: g.stopped, Commits: g.review.Commits})
	case len(p.Actions) == 0:
		return g // nothing is executed, so nothing is held
	case isComing && t.now().Sub(t.pulls.RollOuts.FirstSeen(prev.Revision)) < publishGrace:
		return t.postpone(g, prev, nil)
	}
	var reviewed *plan.ReviewedUnit
	if len(parts) > 0 {
		reviewed = parts[0]
	}
	return g.hold(pull, plan.Stale(reviewed, p, g.observed), prev.Revision)
}

// shownParts returns what pull requests showed of the unit of a plan, the first of them that showed
// something (else the first), and whether one is about to show this plan.
func (t *gate) shownParts(p plan.Plan, numbers []int) (parts []*plan.ReviewedUnit, pull int, isComing bool) {
	pull = numbers[0]
	for _, n := range numbers {
		shown, next := t.pulls.Shown(n)
		if next != nil {
			_, same := next.Unit(p.Key, p.Digest)
			isComing = isComing || same
		}
		if shown == nil {
			continue
		}
		if u, _ := shown.Unit(p.Key, p.Digest); u != nil {
			if len(parts) == 0 {
				pull = n
			}
			parts = append(parts, u)
		}
	}
	return parts, pull, isComing
}

// approve lets a plan pass. review is restored if none of its actions starts: the
// plan after that is compared again.
func (g gated) approve(review *plan.UnitReview) gated {
	g.review = nil
	if len(g.plan.Actions) > 0 {
		g.approved = review
	}
	return g
}

// postpone leaves a unit unchanged until its pull requests are known.
func (t *gate) postpone(g gated, prev *plan.Status, err error) gated {
	why := "it is not known yet which pull request brought it, and so whether this was reviewed"
	g.again, g.isQuiet = min(pendingRetry, t.authorLag), err == nil
	if err != nil {
		why += fmt.Sprintf(": %v", err)
		g.again = forgeRetry
		var later *reconciler.RetryAfterError
		if errors.As(err, &later) {
			g.again = max(time.Second, later.At.Sub(t.now()))
		}
		t.unitLog(prev).Warn("pull request of a change unknown; instance left unchanged", "error", err, "again_in", g.again)
	}
	return g.keep(reviewPending(why))
}

func reviewPending(why string) plan.Blocked {
	return plan.Blocked{Code: plan.CodeReviewPending, Wait: true, Message: why}
}

// hold holds a stale plan.
func (g gated) hold(pull int, stale *plan.StalePlan, commit string) gated {
	what := fmt.Sprintf("its plan is not the one that was reviewed in #%d", pull)
	if stale.Reviewed == "" {
		what = fmt.Sprintf("no plan of it was shown before the merge of #%d", pull)
	}
	g.isHeld, g.review = true, &plan.UnitReview{Pull: pull, Stale: stale, Stopped: g.stopped, Commits: g.review.Commits}
	return g.keep(plan.Blocked{Code: plan.CodeStale,
		Message: fmt.Sprintf("%s: %s; nothing changes until a user with the permission applies it: /berth apply %s", what, summary(stale),
			reconciler.Short(commit))})
}

// keep replaces the plan by repairs of the applied state.
func (g gated) keep(why plan.Blocked) gated {
	g.shown.Actions = nil
	g.shown.Blocked = append([]plan.Blocked{why}, g.shown.Blocked...)
	g.plan = g.repairs()
	return g
}

// repairs is the plan that starts the stopped members of the applied state. It has no
// action if another kind of action is needed.
func (g gated) repairs() plan.Plan {
	if u := g.observed.Unit; g.observed.Presence == plan.Present && u != nil && !g.stopped {
		applied := u.Effective
		fix := plan.Make(plan.Input{Key: g.plan.Key, After: &applied, Members: u.Members, Observed: g.observed, Rules: g.rules})
		if onlyRepairs(fix) {
			return fix
		}
	}
	p := g.plan
	p.Actions = nil
	return p
}

// isObserved returns true if no missing observation blocks a plan: its reader then
// knows all actions that follow once nothing blocks it.
func isObserved(p plan.Plan) bool {
	return !slices.ContainsFunc(p.Blocked,
		func(b plan.Blocked) bool { return b.Code == plan.CodeUnknown || b.Code == plan.CodeUnreachable })
}

// isWithin returns true if every action of p is an action of other.
func isWithin(p, other plan.Plan) bool {
	return !slices.ContainsFunc(p.Actions, func(a plan.Action) bool {
		return !slices.ContainsFunc(other.Actions,
			func(o plan.Action) bool { return o.Verb == a.Verb && o.Member == a.Member && o.Node == a.Node })
	})
}

// onlyRepairs returns true if p only starts existing members.
func onlyRepairs(p plan.Plan) bool {
	return !slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Verb != plan.Start })
}
