package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
)

const (
	// pullAgain is when a unit is reconciled again whose pull request is not known yet.
	pullAgain = time.Second
	// showingLag is how long a plan that is being shown may take to be, after its
	// pull request was merged: a forge may merge as soon as the checks are there.
	showingLag = 20 * time.Second
)

// gated is what may be done to a unit, and what is told of it.
type gated struct {
	plan   plan.Plan        // what may be applied now
	shown  plan.Plan        // what there is to do, and what is in its way
	review *plan.UnitReview // as it shall stand in the status
	held   bool             // by its review: plan only keeps what is applied healthy
	again  time.Duration    // it is not known yet whether it is held: look again then; 0: it is
	quiet  bool             // and so soon that there is nothing to tell
	until  *plan.UnitReview // of a plan that was agreed to: what is awaited until it is begun

	rules    plan.Rules
	observed plan.Observed
	stopped  bool // what is applied stands still as was asked for
}

// kept says whether plan is not what the unit's revision asks for.
func (g gated) kept() bool { return g.held || g.again > 0 }

// gate holds a unit's plan that is not the one that was reviewed (DESIGN §1,
// promise 1). A unit whose revision no pull request brought is held by none, and
// so is one that only starts again what stands still of what is applied. While one
// is held, or nobody knows yet, what is applied of it is kept healthy.
func (r *Reconciler) gate(ctx context.Context, st *reconciler.State, prev *plan.Status, p plan.Plan, observed plan.Observed, rules plan.Rules) gated {
	g := gated{plan: p, shown: p, review: prev.Review, rules: rules, observed: observed}
	if st.Recorded != nil && unreviewed(st.Recorded, st, p.Key) && !p.Empty() {
		// What its status says of a review is of what was in force before.
		g.stopped = stoodStill(st.Recorded, prev, p.Key)
		g.again = pullAgain
		return g.keep(plan.Blocked{Code: "review.pending", Wait: true,
			Message: "it is not known yet which commit brought it, and so whether this was reviewed"})
	}
	if g.review == nil {
		return g
	}
	g.stopped = g.review.Stopped
	switch {
	case p.Empty():
		g.review = nil
		return g
	case p.Digest == g.review.Meant:
		return g.agree(g.review)
	case len(p.Actions) > 0 && within(p, g.repairs()), len(p.Actions) == 0 && !waitsOnly(p):
		return g
	}
	pulls, sure, err := r.pulls.BroughtBy(ctx, prev.Revision)
	if err != nil || !sure {
		return r.undecided(g, prev, err)
	}
	if len(pulls) == 0 {
		g.review = nil
		return g
	}
	var reviewed *plan.ReviewedUnit
	pull, showing := pulls[0], false
	for _, n := range pulls {
		shown, next := r.pulls.Shown(n)
		if shown != nil {
			u, same := shown.Unit(p.Key, p.Digest)
			if same {
				return g.agree(&plan.UnitReview{Pull: n, Stopped: g.stopped})
			}
			if u != nil {
				reviewed, pull = u, n
			}
		}
		if next != nil {
			_, same := next.Unit(p.Key, p.Digest)
			showing = showing || same
		}
	}
	if len(p.Actions) == 0 {
		return g // nothing is done, so nothing is held
	}
	if showing && r.o.Now().Sub(r.pulls.RollOuts.FirstSeen(prev.Revision)) < showingLag {
		return r.undecided(g, prev, nil)
	}
	return r.hold(g, pull, plan.Stale(reviewed, p, observed), prev.Revision)
}

// agree lets a plan through. until is what its review is until it is begun: if
// nothing of it can be, what there is to do then is compared again.
func (g gated) agree(until *plan.UnitReview) gated {
	g.review = nil
	if len(g.plan.Actions) > 0 {
		g.until = until
	}
	return g
}

// waitsOnly says whether what blocks a plan is told in it, so that who saw it
// knows what will be done once that is out of the way.
func waitsOnly(p plan.Plan) bool {
	for _, b := range p.Blocked {
		if b.Code == plan.CodeUnknown || b.Code == plan.CodeUnreachable {
			return false
		}
	}
	return true
}

// undecided leaves a unit as it is until it is known whether it is held.
func (r *Reconciler) undecided(g gated, prev *plan.Status, err error) gated {
	g.again, g.quiet = min(pullAgain, r.o.AuthorLag), err == nil
	why := plan.Blocked{Code: "review.pending", Wait: true, Message: "it is not known yet which pull request brought it, and so whether this was reviewed"}
	if err != nil {
		why.Message += fmt.Sprintf(": %v", err)
		g.again = 2 * time.Second
		var later *reconciler.RetryAfterError
		if errors.As(err, &later) {
			g.again = max(time.Second, later.At.Sub(r.o.Now()))
		}
		r.logUnit(prev).Warn("waiting to be told which pull request a change is of", "error", err, "again_in", g.again)
	}
	return g.keep(why)
}

// hold keeps a plan from being applied, with the difference to the reviewed one.
func (r *Reconciler) hold(g gated, pull int, stale *plan.StalePlan, commit string) gated {
	what := fmt.Sprintf("its plan is not the one that was reviewed in #%d", pull)
	if stale.Reviewed == "" {
		what = fmt.Sprintf("no plan of it was shown before the merge of #%d", pull)
	}
	g.held, g.review = true, &plan.UnitReview{Pull: pull, Stale: stale, Stopped: g.stopped}
	return g.keep(plan.Blocked{Code: plan.CodeStale,
		Message: fmt.Sprintf("%s: %s; nothing changes until a user with the permission applies it: /berth apply %s", what, summary(stale), short(commit))})
}

// keep has nothing done but what keeps healthy what is applied.
func (g gated) keep(why plan.Blocked) gated {
	g.shown.Actions = nil
	g.shown.Blocked = append([]plan.Blocked{why}, g.shown.Blocked...)
	g.plan = g.repairs()
	return g
}

// summary is a difference in a line.
func summary(s *plan.StalePlan) string {
	const most = 4
	var out []string
	n := 0
	for _, l := range s.Diff {
		if l.Sign != "-" && l.Sign != "+" {
			continue
		}
		if n++; n <= most {
			out = append(out, l.Sign+" "+strings.TrimSpace(l.Text))
		}
	}
	if n > most {
		out = append(out, fmt.Sprintf("and %d more", n-most))
	}
	return cmp.Or(strings.Join(out, ", "), "planned otherwise")
}

// repairs is the plan that starts what stands still of what is applied to a unit;
// it has no action where it takes more than that to make it well.
func (g gated) repairs() plan.Plan {
	if u := g.observed.Unit; g.observed.Presence == plan.Present && u != nil && !g.stopped {
		applied := u.Instance
		fix := plan.Make(plan.Input{Key: g.plan.Key, After: &applied, Members: u.Members, Observed: g.observed, Rules: g.rules})
		if onlyRepairs(fix) {
			return fix
		}
	}
	p := g.plan
	p.Actions = nil
	return p
}

// within says whether a plan does nothing that another one does not.
func within(p, other plan.Plan) bool {
	return !slices.ContainsFunc(p.Actions, func(a plan.Action) bool {
		return !slices.ContainsFunc(other.Actions, func(o plan.Action) bool { return o.Verb == a.Verb && o.Member == a.Member && o.Node == a.Node })
	})
}

// staleRecord is the audit record of a unit that is held, as its plan is not the
// one that was reviewed.
func staleRecord(s *plan.Status, held *plan.UnitReview, now time.Time) audit.Record {
	return audit.Record{
		OccurredAt: now, CorrelationID: s.CorrelationID, Actor: itself, Action: "plan.held", Key: s.Key, OrgID: s.Key.Tenant, ProjectID: s.Key.ProjectID(), AppSlug: s.App,
		Verdict: audit.Held, Rule: plan.CodeStale, Commit: s.Revision, PullRequest: held.Pull,
		Reason: fmt.Sprintf("reviewed %s, now %s: %s", cmp.Or(short(held.Stale.Reviewed), "none"), short(held.Stale.Now), summary(held.Stale)),
	}
}

// stoodStill says whether a unit stood still by declaration before a decision: as
// was in force then, unless that itself never came about for lack of a review.
func stoodStill(before *reconciler.State, prev *plan.Status, key schema.Key) bool {
	if prev != nil && prev.Review != nil {
		return prev.Review.Stopped
	}
	was := before.Instance(key)
	return was != nil && was.DesiredState == schema.DesiredStopped
}

// unreviewed says whether a unit's plan is to be compared with a reviewed one
// after a decision changed what it shall be: not where nobody remembers what was
// in force before, nor where it means the same as before, and what was remembered
// of the unit was lost, or a node came free for what waited. before is old with
// its units where they would stand by now.
func unreviewed(before, st *reconciler.State, key schema.Key) bool {
	return before != nil && (!sameUnit(before, st, key) || !sameDenials(before.Effective.Denied(key), st.Effective.Denied(key)))
}
