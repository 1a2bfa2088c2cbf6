package report

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// attachmentOf returns the attachment of a project to a unit; nil: it is not attached.
func attachmentOf(u *plan.Unit, project string) *schema.EffectiveAttachment {
	if u == nil {
		return nil
	}
	i := slices.IndexFunc(u.Effective.Attachments, func(a schema.EffectiveAttachment) bool { return a.ProjectID == project })
	if i < 0 {
		return nil
	}
	return &u.Effective.Attachments[i]
}

// attached returns the attachments of the first unit to projects that are not attached to the second.
func attached(to, notTo *plan.Unit) []schema.EffectiveAttachment {
	if to == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(to.Effective.Attachments),
		func(a schema.EffectiveAttachment) bool { return attachmentOf(notTo, a.ProjectID) != nil })
}

// detachedBy returns the attachments that a plan ends while the unit stays.
func detachedBy(u *plan.Plan) []schema.EffectiveAttachment {
	if u.After == nil {
		return nil
	}
	return attached(u.Before, u.After)
}

// closedBy returns the attachments of the projects that a plan stops from submitting jobs.
func closedBy(u *plan.Plan) []schema.EffectiveAttachment {
	if u.After == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(u.After.Effective.Attachments), func(a schema.EffectiveAttachment) bool {
		before := attachmentOf(u.Before, a.ProjectID)
		return !a.Closed || before == nil || before.Closed
	})
}

// projectsOf names the projects of attachments: "project `a`" or "projects `a` and `b`".
func projectsOf(all []schema.EffectiveAttachment, text func(string) string) string {
	names := each(all, func(a schema.EffectiveAttachment) string { return a.ProjectID })
	return plural(len(names), "project ", "projects ") + list(texts(names, text), 4)
}

// sharing describes which projects a plan attaches and detaches, the nodes that it takes from them,
// and the loans whose end it changes.
func sharing(u *plan.Plan, text func(string) string) (parts []string) {
	if all := attached(u.After, u.Before); len(all) > 0 {
		parts = append(parts, "attaches "+projectsOf(all, text))
	}
	if all := detachedBy(u); len(all) > 0 {
		parts = append(parts, "detaches "+projectsOf(all, text))
	}
	for _, a := range u.Actions {
		was, _ := u.Before.Member(a.Member)
		m, _ := u.After.Member(a.Member)
		switch {
		case returns(u, a):
			parts = append(parts, fmt.Sprintf("node %s returns to %s", text(was.Node), text(short(was.Loan.ProjectID, maxName))))
		case isLent(u, a):
			parts = append(parts, fmt.Sprintf("takes node %s, which %s lends %s", text(m.Node), text(short(m.Loan.ProjectID, maxName)),
				loanEnd(m, text)))
		}
	}
	if u.After == nil || u.Before == nil {
		return parts
	}
	for _, m := range u.After.Members {
		was, ok := u.Before.Member(m.Name)
		if ok && was.Loan != nil && m.Loan != nil && !reflect.DeepEqual(was.Loan, m.Loan) {
			parts = append(parts, fmt.Sprintf("%s lends node %s %s", text(short(m.Loan.ProjectID, maxName)), text(m.Node),
				loanEnd(m, text)))
		}
	}
	return parts
}

// loanEnd announces when a lent node returns, and what becomes of the jobs on it then.
func loanEnd(m plan.Member, text func(string) string) string {
	s := "without an end (when it returns,"
	if m.Loan.Until != "" {
		s = "until " + text(short(m.Loan.Until, maxName)) + " 00:00 UTC (then"
	}
	if on := m.Loan.OnJobs; on != nil && on.CancelAfterSeconds > 0 {
		return s + fmt.Sprintf(" jobs on it end after %d s)", on.CancelAfterSeconds)
	}
	return s + " jobs on it finish first)"
}

// returns reports whether an action takes a lent node out of a unit that stays.
func returns(u *plan.Plan, a plan.Action) bool {
	m, ok := u.Before.Member(a.Member)
	if _, stays := u.After.Member(a.Member); stays || !ok {
		return false
	}
	return a.Verb == plan.Leave && u.After != nil && m.Loan != nil
}

// termsOf returns the project whose terms a change of a unit's field is about, and the field of the
// terms. known: the value is shown by sharing, or follows from it.
func termsOf(u *plan.Plan, field string) (project, term string, known bool) {
	if strings.HasPrefix(field, "lent.") || strings.HasPrefix(field, "members.") && strings.Contains(field, ".loan.") {
		return "", "", true
	}
	for _, in := range []*plan.Unit{u.Before, u.After} {
		if in == nil {
			continue
		}
		for _, a := range in.Effective.Attachments {
			isNew := attachmentOf(u.Before, a.ProjectID) == nil || attachmentOf(u.After, a.ProjectID) == nil
			if term, ok := strings.CutPrefix(field, "attachments."+a.ProjectID+"."); ok {
				return a.ProjectID, term, isNew
			}
			name, isUser := strings.CutPrefix(field, "users.")
			if name, _, _ = strings.Cut(name, "."); isUser && isNew && slices.Contains(a.Users, name) {
				return "", "", true
			}
		}
	}
	return "", "", false
}

// isShownOtherwise reports whether the value that a plan removes is shown as a member that leaves, a
// project that is detached, or a node that returns.
func isShownOtherwise(u *plan.Plan, c plan.Change) bool {
	_, _, known := termsOf(u, c.Field)
	return c.After == "" && (known || strings.HasPrefix(c.Field, "members."))
}

// isView reports whether a plan is for an instance that uses a shared runtime, and has no action itself.
func isView(u *plan.Plan) bool { return u.After != nil && u.After.Effective.SharedRuntime != "" }

// sharedBy returns the shared runtime that a view uses.
func sharedBy(u *plan.Plan) schema.Key {
	return schema.SharedRuntimeKey(u.Key.Tenant, u.After.Effective.ControlPlaneScope, u.After.Effective.SharedRuntime)
}

// isAttachedBy reports whether the same change attaches the project of a view.
func isAttachedBy(p *plan.Proposal, u *plan.Plan) bool {
	return isView(u) && slices.ContainsFunc(p.Plans, func(by plan.Plan) bool {
		return by.Key == sharedBy(u) && len(by.Actions) > 0 && attachmentOf(by.After, u.Key.ProjectID()) != nil
	})
}

// isShared reports whether projects are attached to a unit, before or after a plan.
func isShared(u *plan.Plan) bool {
	return u.Before != nil && len(u.Before.Effective.Attachments) > 0 || u.After != nil && len(u.After.Effective.Attachments) > 0
}

// termsText describes which queued jobs can start by the terms of a plan, a phrase each.
func termsText(t plan.JobTerms) (out []string) {
	of := "of account " + t.Account
	if t.Account == "" {
		of = "of QoS " + t.QoS
	}
	var exceeding, together, wider []string
	for _, resource := range []string{plan.ResourceGPUs, plan.ResourceCPUs, plan.ResourceMinutes, plan.ResourceJobs} {
		switch limitOf(t.Before.PerJob, t.After.PerJob, resource) {
		case narrowerLimit:
			exceeding = append(exceeding, fmt.Sprintf("%d %s", t.After.PerJob[resource], resource))
		case widerLimit:
			wider = append(wider, resource)
		}
		switch limitOf(t.Before.Together, t.After.Together, resource) {
		case narrowerLimit:
			together = append(together, fmt.Sprintf("%d %s", t.After.Together[resource], resource))
		case widerLimit:
			wider = withNew(wider, resource)
		}
	}
	if len(exceeding) > 0 {
		out = append(out, fmt.Sprintf("queued jobs %s that ask for more than %s cannot start", of, strings.Join(exceeding, " or ")))
	}
	if len(together) > 0 {
		out = append(out, fmt.Sprintf("jobs %s start only up to %s together", of, sentence(together)))
	}
	if lost := without(t.After.Without, t.Before.Without); len(lost) > 0 {
		out = append(out, fmt.Sprintf("queued jobs %s in partition %s only cannot start", of, list(lost, 4)))
	}
	if len(wider) > 0 {
		out = append(out, fmt.Sprintf("jobs %s get wider limits of %s", of, sentence(wider)))
	}
	if won := without(t.Before.Without, t.After.Without); len(won) > 0 {
		out = append(out, fmt.Sprintf("jobs %s can start in partition %s", of, list(won, 4)))
	}
	return out
}

// without returns the names of all that are not in less.
func without(all, less []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(less, s) })
}

// limitChange is how a limit changes.
type limitChange int

const (
	sameLimit limitChange = iota
	narrowerLimit
	widerLimit
)

func limitOf(before, after map[string]int, resource string) limitChange {
	was, hadLimit := before[resource]
	now, hasLimit := after[resource]
	switch {
	case hasLimit && (!hadLimit || now < was):
		return narrowerLimit
	case hadLimit && (!hasLimit || now > was):
		return widerLimit
	}
	return sameLimit
}

// preemptionText describes whose running jobs may end for others.
func preemptionText(p plan.JobPreemption) string {
	return fmt.Sprintf("running jobs of QoS %s may be %s for the guaranteed share of %s", list(p.QoS, 4), preemptedHow(p), list(p.For, 4))
}

// preemptedHow describes the effect of a preemption on a job.
func preemptedHow(p plan.JobPreemption) string {
	how := "requeued"
	if p.Mode == schema.PreemptCancel {
		how = "cancelled"
	}
	if p.GraceSeconds > 0 {
		how += fmt.Sprintf(" after %d s", p.GraceSeconds)
	}
	return how
}
