package loop

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/event"
)

// actorBerth is the actor of actions that Berth takes by itself.
const actorBerth = "berth"

// decisionRecords returns the audit records of changed documents: one for each
// permission that a change needed, or one if it needed none. base is the commit of
// berth/in-force whose rules decided.
func (t *recorder) decisionRecords(verdicts []decide.Verdict, base string, d decide.Decision) []audit.Record {
	var out []audit.Record
	for _, v := range verdicts {
		one := audit.Record{
			OccurredAt: t.now(), CorrelationID: reconciler.CorrelationID(v.Commit),
			Author: audit.Author{Actor: v.By.Name(), Proof: string(v.By.Proof), Approvers: v.By.Approvers},
			Action: "document." + v.Document.Change,
			Resource: audit.Resource{Key: v.Document.Key, File: v.Document.File, OrgID: orgOf(v.Document.Key),
				ProjectID: projectOf(v.Document.Key), AppSlug: t.appOf(d.Desired, v.Document.Key)},
			Outcome: audit.Outcome{Verdict: audit.Allowed},
			Change:  audit.Change{Commit: v.Commit, Base: base, PullRequest: v.PullRequest},
		}
		if v.Held != nil {
			one.Verdict, one.Rule, one.Reason = audit.Held, string(v.Held.Reason), v.Held.Message
		}
		if len(v.Authority) == 0 {
			out = append(out, one)
		}
		for _, d := range v.Authority {
			r := one
			r.Permission, r.BreakGlass = string(d.Permission), d.BreakGlass
			switch {
			case !d.Allowed:
				r.Verdict, r.Rule, r.Reason, r.Source = audit.Denied, d.Rule, d.Reason, d.Source.Place()
			case v.Held == nil:
				r.Rule, r.Reason, r.Source = d.Role, d.Reason, d.Source.Place()
			}
			out = append(out, r)
		}
	}
	return out
}

// adoptedRecord is the audit record of an estate that is adopted unchanged.
func adoptedRecord(commit string, documents int, now time.Time) audit.Record {
	return audit.Record{
		OccurredAt: now, CorrelationID: reconciler.CorrelationID(commit),
		Author: audit.Author{Actor: actorBerth, Proof: "operator"}, Action: "estate.adopted",
		Outcome: audit.Outcome{Verdict: audit.Allowed,
			Reason: fmt.Sprintf("nothing was in force: %d documents come into force as they stand", documents)},
		Change: audit.Change{Commit: commit},
	}
}

// effectRecord is the audit record of one action on hosts.
func effectRecord(
	s *plan.Status, by runtimes.Credential, o plan.Outcome, attempt int, refused *schema.Noncompliance, now time.Time,
) audit.Record {
	r := audit.Record{
		OccurredAt: now, CorrelationID: s.CorrelationID,
		Author: audit.Author{Actor: actorBerth, Operator: by.Operator, Credential: by.Credential}, Action: "runtime." + string(o.Verb),
		Resource: audit.About(s.Key, s.App),
		Outcome: audit.Outcome{Verdict: audit.Allowed, Rule: fmt.Sprintf("%s/%d", o.ActionID, attempt),
			Reason: strings.TrimSpace(string(o.State) + " " + o.Member)},
		Change: audit.Change{Commit: s.Revision},
	}
	if refused != nil && refused.Fate == schema.FateStopped && refused.Source != nil {
		r.Source = refused.Source.Place() // the policy is the cause, not the last commit
		r.Reason += ": " + fateMessage(refused)
	}
	if o.State != plan.Done {
		r.Verdict, r.Reason = audit.Failed, r.Reason+": "+o.Error
	}
	return r
}

// fateRecords returns the audit records of units whose treatment by policy changed
// with a decision. old is nil if it is unknown.
func fateRecords(old, next *reconciler.State, now time.Time) []audit.Record {
	if old == nil {
		old = &reconciler.State{}
	}
	keys := slices.Concat(slices.Collect(schema.Differing(old.Effective, next.Effective)),
		slices.Collect(plan.ChangedPlacement(old.Placement, next.Placement)))
	slices.SortFunc(keys, schema.Key.Compare)
	var out []audit.Record
	for _, key := range slices.Compact(keys) {
		n := next.Noncompliance(key)
		if n == nil {
			continue
		}
		if old.Effective != nil {
			if was := old.Noncompliance(key); was != nil && was.Fate == n.Fate {
				continue
			}
		}
		r := audit.Record{
			OccurredAt: now, CorrelationID: reconciler.CorrelationID(next.Main),
			Author: audit.Author{Actor: actorBerth}, Action: "policy." + string(n.Fate),
			Resource: audit.About(n.Key, declaredApp(n.Key, next, old)),
			Outcome:  audit.Outcome{Verdict: audit.Held, Rule: "noncompliant", Reason: fateMessage(n)},
			Change:   audit.Change{Commit: next.Main},
		}
		if n.Fate == schema.FateStopped {
			r.Verdict = audit.Allowed
		}
		if n.Source != nil {
			r.Source = n.Source.Place()
		}
		out = append(out, r)
	}
	return out
}

// declaredApp returns the app of an instance in the first state that declares it.
func declaredApp(key schema.Key, all ...*reconciler.State) string {
	for _, st := range all {
		if st.Effective != nil && st.Effective.Unit(key) != nil {
			return st.Effective.Unit(key).App
		}
	}
	return ""
}

// entitlementEvents returns the events of entitlements whose changes came into
// force.
func entitlementEvents(verdicts []decide.Verdict, d *schema.Desired, now time.Time) []plan.Event {
	var out []plan.Event
	for _, v := range verdicts {
		k := v.Document.Key
		if k.Kind != schema.KindEntitlement || v.Held != nil {
			continue
		}
		isEnabled := false
		if t := d.Tenants[k.Tenant]; t != nil && t.Projects[k.Project] != nil && v.Document.Change != "deleted" {
			e := t.Projects[k.Project].Entitlements[k.Name]
			isEnabled = e != nil && e.Spec.Enabled
		}
		out = append(out, status.NewEvent(event.EntitlementUpdated, k, v.Commit, 0, reconciler.CorrelationID(v.Commit), event.Entitlement{
			OrgID: k.Tenant, ProjectID: k.ProjectID(), AppSlug: k.Name,
			Enabled: isEnabled, UpdatedBy: v.By.Name(), Revision: v.Commit,
		}, now))
	}
	return out
}

// missingFateRecords returns the audit records about noncompliant units that the
// statuses lack: a day began while no daemon ran, or an older version treated the
// same policies differently.
func (r *recorder) missingFateRecords(st *reconciler.State, units plan.Memory) []audit.Record {
	out := slices.DeleteFunc(fateRecords(nil, st, r.now()), func(rec audit.Record) bool {
		s, n, want := units.Get(rec.Key), st.Noncompliance(rec.Key), st.Unit(rec.Key)
		has := func(typ plan.ConditionType, reason plan.Reason) bool {
			c := s.Condition(typ)
			return c != nil && c.Reason == reason
		}
		wasSpared := n.Fate == schema.FateStopped && want != nil && want.SuspendedBy.IsZero() &&
			has(plan.ConditionSuspended, plan.ReasonDeclared)
		return has(plan.ConditionPolicyCompliant, fateReason(n)) && !wasSpared
	})
	for _, rec := range out {
		r.logOf(rec.Key, rec.AppSlug, r.uidOf(st.Desired, rec.Key), rec.CorrelationID).Warn("unit became noncompliant before this start",
			"fate", rec.Action, "message", rec.Reason)
	}
	return out
}

// staleRecord is the audit record of a held stale plan.
func staleRecord(s *plan.Status, held *plan.UnitReview, now time.Time) audit.Record {
	return audit.Record{
		OccurredAt: now, CorrelationID: s.CorrelationID,
		Author: audit.Author{Actor: actorBerth}, Action: "plan.held",
		Resource: audit.About(s.Key, s.App),
		Outcome: audit.Outcome{Verdict: audit.Held, Rule: string(plan.CodeStale), Reason: fmt.Sprintf("reviewed %s, now %s: %s",
			cmp.Or(reconciler.Short(held.Stale.Reviewed), "none"), reconciler.Short(held.Stale.Now), summary(held.Stale))},
		Change: audit.Change{Commit: s.Revision, PullRequest: held.Pull},
	}
}

// summary describes a stale plan in one line.
func summary(s *plan.StalePlan) string {
	const limit = 4
	var out []string
	n := 0
	for _, l := range s.Diff {
		if l.Sign != "-" && l.Sign != "+" {
			continue
		}
		if n++; n <= limit {
			out = append(out, l.Sign+" "+strings.TrimSpace(l.Text))
		}
	}
	if n > limit {
		out = append(out, fmt.Sprintf("and %d more", n-limit))
	}
	return cmp.Or(strings.Join(out, ", "), "planned otherwise")
}
