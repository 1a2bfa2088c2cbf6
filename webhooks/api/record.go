package api

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"berth/schema/audit"
	"berth/schema/authority"
)

// auditor records the uses of permissions.
type auditor struct {
	store    func(audit.Record) error // as Options.Audit
	denials  *denials                 // of admin paths
	refusals *denials                 // of service accounts elsewhere
	now      func() time.Time
}

// refused audits the refusal of a service account, so that people see which rights a
// program uses and lacks (SPA). A refusal of a person needs no record outside admin paths.
func (a *auditor) refused(c *call, d authority.Decision) {
	if c.who.account == nil || d.Allowed {
		return
	}
	r := a.record(c, d)
	r.RecordID = r.ID()
	a.refusals.add(r)
}

// audit records the use of an admin path, allowed or denied. Each allowed read gets a
// record of its own, also under the same correlation id, so its record id is random. A
// read that cannot be recorded is refused.
func (a *auditor) audit(c *call, d authority.Decision) *failure {
	r := a.record(c, d)
	if !d.Allowed {
		r.RecordID = r.ID()
		a.denials.add(r)
		return nil
	}
	r.RecordID = randomID()
	if err := a.store(r); err != nil {
		return &failure{code: codeUnaudited, after: retryAfter, cause: err,
			message: "the audit record of this request cannot be stored, so it is refused: tell Berth's operators (the log has the " +
				"cause), and try again"}
	}
	return nil
}

func randomID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// record is the audit record of a decision about a call, without its id. Its file is the
// method and the path's template.
func (a *auditor) record(c *call, d authority.Decision) audit.Record {
	r := audit.Record{
		OccurredAt: a.now().UTC().Truncate(time.Second), CorrelationID: c.correlation,
		Author: audit.Author{Actor: c.who.name, Proof: string(c.who.actor.Proof)}, Action: "api.read",
		Resource: audit.Resource{Key: c.key(), File: c.endpoint(), OrgID: c.tenant,
			AppSlug: cmp.Or(c.params["app_slug"], c.view.Desired.AppOf(c.key()))},
		Outcome: audit.Outcome{Verdict: audit.Denied, Rule: cmp.Or(d.Rule, d.Role), Reason: cmp.Or(c.who.actor.BreakGlass, d.Reason),
			BreakGlass: d.BreakGlass},
		Change: audit.Change{Commit: c.view.Main, Base: c.view.InForce},
	}
	if c.route != nil { // openapi.yaml needs no permission
		r.Action = cmp.Or(c.route.effect, r.Action)
		r.Permission = string(cmp.Or(d.Permission, c.route.permission)) // a route may need a second one
	}
	if c.project != "" {
		r.ProjectID = c.tenant + "." + c.project
	}
	if c.tenant == "" && c.who.account != nil { // a path for everybody: its own tenant reads the record
		r.Key, r.OrgID, r.ProjectID = c.who.account.Key, c.who.account.Key.Tenant, c.who.account.Key.ProjectID()
	}
	if d.Allowed {
		r.Verdict = audit.Allowed
	}
	if d.Source.File != "" {
		r.Source = fmt.Sprintf("%s:%d", d.Source.File, d.Source.Line)
	}
	return r
}
