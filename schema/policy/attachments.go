package policy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"berth/schema"
)

// share sets the terms of the projects that use a shared runtime, its users, and the nodes that
// the projects lend to it. An attachment is two-sided: the owner of the runtime declares the
// terms, and the project accepts them with an Instance that names the runtime.
func (j *judgement) share(by sharedBy, of *schema.SharedRuntimeEstate, today string) {
	users := map[string]schema.UnixUser{}
	for _, a := range schema.Sorted(of.Attachments) {
		t, p := by.project(a.Spec.ProjectID)
		view := Acceptance(of.Runtime, p)
		if view == nil {
			continue
		}
		members := usersOf(t, p)
		for _, u := range members {
			users[u.Name] = u
		}
		j.result.Attachments = append(j.result.Attachments,
			j.attachment(a, view, members, isEntitled(t, p, j.app), isSuspended(t, p, j.app.Key.Name)))
		j.result.Lent = append(j.result.Lent, j.lent(a, p, today)...)
	}
	slices.SortFunc(j.result.Attachments, func(a, b schema.EffectiveAttachment) int { return cmp.Compare(a.ProjectID, b.ProjectID) })
	slices.SortFunc(j.result.Lent, func(a, b schema.LentNode) int { return cmp.Compare(a.Node, b.Node) })
	for _, name := range slices.Sorted(maps.Keys(users)) {
		j.result.Users = append(j.result.Users, users[name])
	}
}

// Acceptance returns the Instance with which a project accepts the terms of a shared runtime: the
// first by name, if there are several; nil without one.
func Acceptance(rt *schema.SharedRuntime, p *schema.ProjectEstate) *schema.Instance {
	if rt == nil || p == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(p.Instances)) {
		if i := p.Instances[name]; i.Spec.SharedRuntime == rt.Key.Name && i.Spec.ControlPlaneScope == rt.Spec.ControlPlaneScope {
			return i
		}
	}
	return nil
}

// isEntitled reports whether a project has an entitlement to an app that is enabled. An own app of
// the tenant with that slug is another app.
func isEntitled(t *schema.TenantEstate, p *schema.ProjectEstate, app *schema.App) bool {
	if own := t.Apps[app.Key.Name]; own != nil && own != app {
		return false
	}
	e := p.Entitlements[app.Key.Name]
	return e != nil && e.Spec.Enabled
}

// isSuspended reports whether a document above an instance of the app in a project says suspend.
func isSuspended(t *schema.TenantEstate, p *schema.ProjectEstate, app string) bool {
	return len(suspending(t, p)) > 0 || p.Entitlements[app] != nil && p.Entitlements[app].Suspend
}

// usersOf returns the users of a project, which the reader has found.
func usersOf(t *schema.TenantEstate, p *schema.ProjectEstate) []schema.UnixUser {
	if t == nil || p == nil {
		return nil
	}
	return users(t, p)
}

// attachment returns the narrower of what the owner of the runtime and the project declare.
func (j *judgement) attachment(
	a *schema.Attachment, view *schema.Instance, members []schema.UnixUser, entitled, above bool,
) schema.EffectiveAttachment {
	s, c := &a.Spec.SubmissionPolicy, &a.Spec.ContributionPolicy
	out := schema.EffectiveAttachment{
		ProjectID: a.Spec.ProjectID, Name: a.Key.Name,
		Suspend:          a.Suspend || view.Suspend || above,
		Closed:           !s.Allow || view.Spec.DesiredState == schema.DesiredStopped || !entitled,
		SubmissionLimits: s.SubmissionLimits, Priority: s.Priority, Share: max(s.Share, 1),
		Guaranteed: c.Guaranteed, Preemption: c.Preemption, OnJobs: cmp.Or(a.Spec.OnJobs, j.instance.Spec.OnJobs),
	}
	for _, u := range members {
		out.Users = append(out.Users, u.Name)
	}
	if view.Spec.SubmissionLimits == nil {
		return out
	}
	asked := *view.Spec.SubmissionLimits
	narrower, ok := s.SubmissionLimits.Narrower(asked)
	out.SubmissionLimits, out.Closed = narrower, out.Closed || !ok
	for _, f := range limitFields(s.SubmissionLimits, asked, narrower) {
		j.decisions = append(j.decisions, schema.Decision{
			Key: j.key, Field: "attachments." + a.Spec.ProjectID + "." + f.name, Verdict: schema.Narrow, Rule: schema.RuleTwoSided,
			Source: view.At("spec.submission_limits." + f.name), At: a.At("spec.submission_policy." + f.name),
			Before: f.owner, After: f.is, Message: f.message(a.Spec.ProjectID),
		})
	}
	return out
}

// limitField is a limit that a project narrows.
type limitField struct{ name, owner, asked, is string }

func (f limitField) message(project string) string {
	if f.owner == f.is {
		return project + " asks for " + f.asked + "; the owner of the runtime allows only " + f.is
	}
	return project + " asks for only " + f.is
}

// limitFields returns the limits that both sides declare otherwise.
func limitFields(owner, asked, is schema.SubmissionLimits) (out []limitField) {
	number := func(name string, owner, asked, is int) {
		if asked != 0 && asked != owner {
			out = append(out, limitField{name, limitText(owner), limitText(asked), limitText(is)})
		}
	}
	number("max_gpus", owner.MaxGPUs, asked.MaxGPUs, is.MaxGPUs)
	number("max_cpus", owner.MaxCPUs, asked.MaxCPUs, is.MaxCPUs)
	number("max_gpus_per_job", owner.MaxGPUsPerJob, asked.MaxGPUsPerJob, is.MaxGPUsPerJob)
	number("max_cpus_per_job", owner.MaxCPUsPerJob, asked.MaxCPUsPerJob, is.MaxCPUsPerJob)
	number("max_running_jobs", owner.MaxRunningJobs, asked.MaxRunningJobs, is.MaxRunningJobs)
	number("max_submitted_jobs", owner.MaxSubmittedJobs, asked.MaxSubmittedJobs, is.MaxSubmittedJobs)
	number("max_walltime_minutes", owner.MaxWalltimeMinutes, asked.MaxWalltimeMinutes, is.MaxWalltimeMinutes)
	if len(asked.Queues) > 0 && !slices.Equal(asked.Queues, owner.Queues) {
		words := func(queues []string) string { return cmp.Or(strings.Join(queues, ", "), "none") }
		was := "every queue"
		if len(owner.Queues) > 0 {
			was = words(owner.Queues)
		}
		out = append(out, limitField{"queues", was, words(asked.Queues), words(is.Queues)})
	}
	return out
}

func limitText(n int) string {
	if n == 0 {
		return "no limit"
	}
	return strconv.Itoa(n)
}

// lent returns the nodes that a project lends to the runtime today.
func (j *judgement) lent(a *schema.Attachment, p *schema.ProjectEstate, today string) (out []schema.LentNode) {
	policy := &a.Spec.ContributionPolicy
	if !policy.Allow {
		return nil
	}
	for _, c := range schema.Sorted(p.Contributions) {
		if c.Spec.SharedRuntime != j.key.Name || c.Spec.ControlPlaneScope != j.instance.Spec.ControlPlaneScope {
			continue
		}
		until := earlier(policy.Until, c.Spec.Until)
		if until != "" && today >= until {
			continue
		}
		loan := schema.Loan{ProjectID: a.Spec.ProjectID, Until: until, OnJobs: cmp.Or(policy.OnJobs, j.instance.Spec.OnJobs)}
		for _, node := range c.Spec.Nodes {
			if policy.MaxNodes > 0 && len(out) == policy.MaxNodes {
				return out // the terms were narrowed since
			}
			out = append(out, schema.LentNode{Node: node, Role: cmp.Or(c.Spec.Role, j.workerRole()), Loan: loan})
		}
	}
	return out
}

// workerRole returns the first role other than control planes. The reader requires a name in a
// Contribution if there are several.
func (j *judgement) workerRole() string {
	for _, r := range j.result.Roles {
		if !r.ControlPlane {
			return r.Name
		}
	}
	return ""
}

// earlier returns the earlier of two days; "" is never.
func earlier(a, b string) string {
	if a == "" || b != "" && b < a {
		return b
	}
	return a
}

// hasLoanDay reports whether a node that is lent by or to a tenant returns on a day.
func hasLoanDay(t *schema.TenantEstate) bool {
	for _, r := range t.SharedRuntimes {
		for _, a := range r.Attachments {
			if a.Spec.ContributionPolicy.Until != "" {
				return true
			}
		}
	}
	for _, p := range t.Projects {
		for _, c := range p.Contributions {
			if c.Spec.Until != "" {
				return true
			}
		}
	}
	return false
}
