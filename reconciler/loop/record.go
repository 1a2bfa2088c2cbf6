package loop

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/authority"
	"berth/schema/event"
)

// itself is the actor of what Berth does because of what is in force.
const itself = "berth"

// decisionRecords are the audit records of what became of changed documents:
// one for each permission that was asked for, or one where none was. base is
// the commit of berth/in-force whose rules decided; app tells a document's app.
func decisionRecords(verdicts []decide.Verdict, base string, app func(schema.Key) string, now time.Time) []audit.Record {
	var out []audit.Record
	for _, v := range verdicts {
		one := audit.Record{
			OccurredAt: now, CorrelationID: correlation(v.Commit), Actor: name(v.By), Proof: string(v.By.Proof), Approvers: v.By.Approvers,
			Action: "document." + v.Document.Change, Key: v.Document.Key, File: v.Document.File,
			OrgID: orgOf(v.Document.Key), ProjectID: projectOf(v.Document.Key), AppSlug: app(v.Document.Key),
			Verdict: audit.Allowed, Commit: v.Commit, Base: base, PullRequest: v.PullRequest,
		}
		if v.Held != nil {
			one.Verdict, one.Rule, one.Reason = audit.Held, v.Held.Reason, v.Held.Message
		}
		if len(v.Authority) == 0 {
			out = append(out, one)
		}
		for _, d := range v.Authority {
			r := one
			r.Permission, r.BreakGlass = string(d.Permission), d.BreakGlass
			switch {
			case !d.Allowed:
				r.Verdict, r.Rule, r.Reason = audit.Denied, "", d.Reason
			case v.Held == nil:
				r.Rule, r.Reason, r.Source = d.Role, d.Reason, place(d.Source)
			}
			out = append(out, r)
		}
	}
	return out
}

// adopted is the audit record of an estate that is taken over as it is.
func adopted(commit string, documents int, now time.Time) audit.Record {
	return audit.Record{
		OccurredAt: now, CorrelationID: correlation(commit), Actor: itself, Proof: "operator", Action: "estate.adopted",
		Verdict: audit.Allowed, Commit: commit, Reason: fmt.Sprintf("nothing was in force: %d documents come into force as they stand", documents),
	}
}

// effectRecord is the audit record of one action on what runs.
func effectRecord(key schema.Key, s *plan.Status, o plan.Outcome, attempt int, refused *schema.Noncompliance, now time.Time) audit.Record {
	r := audit.Record{
		OccurredAt: now, CorrelationID: s.CorrelationID, Actor: itself, Action: "runtime." + string(o.Verb), Key: key,
		OrgID: key.Tenant, ProjectID: key.ProjectID(), AppSlug: s.App, Verdict: audit.Allowed, Commit: s.Revision,
		Rule: fmt.Sprintf("%s/%d", o.ActionID, attempt), Reason: strings.TrimSpace(string(o.State) + " " + o.Member),
	}
	if refused != nil && refused.Fate == schema.FateStopped && refused.Source != nil {
		r.Source = place(*refused.Source) // policy does it, whatever commit came last
		r.Reason += ": " + fateMessage(refused)
	}
	if o.State != plan.Done {
		r.Verdict, r.Reason = audit.Failed, r.Reason+": "+o.Error
	}
	return r
}

// fateRecords are the audit records of instances that policy does something
// else with than before: that it no longer allows them, and what becomes of them.
// old is nil where nobody knows.
func fateRecords(old, now *reconciler.State, at time.Time) []audit.Record {
	if old == nil {
		old = &reconciler.State{}
	}
	keys := slices.Concat(slices.Collect(schema.Differing(old.Effective, now.Effective)), slices.Collect(plan.ChangedPlacement(old.Placement, now.Placement)))
	slices.SortFunc(keys, schema.Key.Compare)
	var out []audit.Record
	for _, key := range slices.Compact(keys) {
		n := now.Noncompliance(key)
		if n == nil {
			continue
		}
		if old.Effective != nil {
			if was := old.Noncompliance(key); was != nil && was.Fate == n.Fate {
				continue
			}
		}
		r := audit.Record{
			OccurredAt: at, CorrelationID: correlation(now.Main), Actor: itself, Action: "policy." + string(n.Fate), Key: n.Key,
			OrgID: n.Key.Tenant, ProjectID: n.Key.ProjectID(), AppSlug: appIn(n.Key, now, old), Verdict: audit.Held, Rule: "noncompliant", Reason: fateMessage(n), Commit: now.Main,
		}
		if n.Fate == schema.FateStopped {
			r.Verdict = audit.Allowed
		}
		if n.Source != nil {
			r.Source = place(*n.Source)
		}
		out = append(out, r)
	}
	return out
}

// untoldFates are those of what status does not say that policy does: a day began
// while nothing ran, or an earlier version made something else of the same policies,
// such as to let what is suspended run.
func (r *Reconciler) untoldFates(st *reconciler.State, mem plan.Memory) []audit.Record {
	out := slices.DeleteFunc(fateRecords(nil, st, r.o.Now()), func(rec audit.Record) bool {
		s, n, want := mem.Get(rec.Key), st.Noncompliance(rec.Key), st.Instance(rec.Key)
		said := func(typ, reason string) bool {
			return s != nil && slices.ContainsFunc(s.Conditions, func(c plan.Condition) bool { return c.Type == typ && c.Reason == reason })
		}
		spared := n.Fate == schema.FateStopped && want != nil && want.SuspendedBy.IsZero() && said("Suspended", "Declared")
		return said("PolicyCompliant", fateReason(n)) && !spared
	})
	for _, rec := range out {
		r.logAbout(rec.Key, rec.AppSlug, r.uidOf(st.Desired, rec.Key), rec.CorrelationID).Warn("policy no longer allows it, and nobody was told yet", "fate", rec.Action, "message", rec.Reason)
	}
	return out
}

// appIn is the app of an instance in the first that has it.
func appIn(key schema.Key, all ...*reconciler.State) string {
	for _, st := range all {
		if st != nil && st.Effective != nil && st.Effective.Instance(key) != nil {
			return st.Effective.Instance(key).App
		}
	}
	return ""
}

// appOf tells the app of what stands in d or, where it is declared no longer, is
// remembered.
func (r *Reconciler) appOf(d *schema.Desired) func(schema.Key) string {
	return func(key schema.Key) string {
		if app := d.AppOf(key); app != "" {
			return app
		}
		if s := r.writer.Unit(key); s != nil {
			return s.App
		}
		var of struct {
			AppSlug string `json:"app_slug"`
		}
		if s := r.writer.Resource(key); s != nil {
			status.Detail(s, &of)
		}
		return of.AppSlug
	}
}

// uidOf tells the uid of an instance that stands in d or, where it is declared no
// longer, is remembered.
func (r *Reconciler) uidOf(d *schema.Desired, key schema.Key) string {
	if i := d.Instance(key); i != nil {
		return i.UID
	}
	if s := r.writer.Unit(key); s != nil {
		return s.UID
	}
	return ""
}

// logAbout is a log whose lines are found by what they are about (requirement
// A11). uid is an instance's.
func (r *Reconciler) logAbout(key schema.Key, app, uid, correlation string) *slog.Logger {
	log := r.o.Log.With("correlation_id", correlation, "org_id", orgOf(key), "project_id", projectOf(key), "app_slug", app)
	if key.Kind == schema.KindInstance {
		log = log.With("app_instance_id", schema.ID(uid, key))
	}
	return log
}

// logUnit is logAbout of an instance, which has more than one line.
func (r *Reconciler) logUnit(s *plan.Status) *slog.Logger {
	return r.logAbout(s.Key, s.App, s.UID, s.CorrelationID).With("unit", s.Key.String())
}

// entitlementEvents are the events of entitlements that verdicts let through.
func entitlementEvents(verdicts []decide.Verdict, d *schema.Desired, now time.Time) []plan.Event {
	var out []plan.Event
	for _, v := range verdicts {
		k := v.Document.Key
		if k.Kind != schema.KindEntitlement || v.Held != nil {
			continue
		}
		enabled := false
		if t := d.Tenants[k.Tenant]; t != nil && t.Projects[k.Project] != nil && v.Document.Change != "deleted" {
			e := t.Projects[k.Project].Entitlements[k.Name]
			enabled = e != nil && e.Spec.Enabled
		}
		out = append(out, status.NewEvent(event.EntitlementUpdated, k, v.Commit, 0, correlation(v.Commit), event.Entitlement{
			OrgID: k.Tenant, ProjectID: k.ProjectID(), AppSlug: k.Name, Enabled: enabled, UpdatedBy: name(v.By), Revision: v.Commit,
		}, now))
	}
	return out
}

// name is who somebody is in the audit; "": nobody knows.
func name(a authority.Actor) string {
	return a.Name()
}

func place(p schema.Position) string {
	if p.File == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

func orgOf(k schema.Key) string {
	if k.Kind == schema.KindTenant {
		return k.Name
	}
	return k.Tenant
}

func projectOf(k schema.Key) string {
	if k.Kind == schema.KindProject {
		return k.Tenant + "." + k.Name
	}
	return k.ProjectID()
}
