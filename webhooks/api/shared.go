package api

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// Shared runtimes of a tenant, and those of the platform that its projects are attached
// to. Of the latter, a tenant reads the status, its own projects' attachments, and the workers
// that they lend.

func (r *reading) ownRuntimes() map[string]*schema.SharedRuntime {
	out := map[string]*schema.SharedRuntime{}
	for name, s := range r.Desired.Tenants[r.tenant].SharedRuntimes {
		if s.Runtime != nil && (r.whole || len(r.attachedTo(s)) > 0) {
			out[name] = s.Runtime
		}
	}
	return out
}

func (r *reading) platformRuntimes() map[string]*schema.SharedRuntime {
	out := map[string]*schema.SharedRuntime{}
	for name, s := range r.Desired.Platform.SharedRuntimes {
		if s.Runtime != nil && len(r.attachedTo(s)) > 0 {
			out[name] = s.Runtime
		}
	}
	return out
}

// shared returns the shared runtime that the path names, or nil. The tenant's own take
// precedence.
func (r *reading) shared() *schema.SharedRuntimeEstate {
	for _, docs := range []map[string]*schema.SharedRuntime{r.ownRuntimes(), r.platformRuntimes()} {
		if d, ok := find(docs, r.params["shared_runtime_id"]); ok {
			return r.Desired.SharedRuntime(d.Key.Tenant, d.Key.Name)
		}
	}
	return nil
}

func (r *reading) sharedRuntime(d *schema.SharedRuntime) any {
	s := d.Spec
	out := sharedRuntime{
		runtimeIDs: runtimeIDs{ID: d.ID(), ResourceName: d.Key.ResourceName(), Owner: "tenant", OrgID: d.Key.Tenant, AppSlug: s.App,
			AppVersion:  s.Version,
			DisplayName: s.DisplayName, Environment: s.Environment, OperatingMode: s.OperatingMode, ControlPlaneScope: s.ControlPlaneScope},
		DesiredState: string(s.DesiredState), OperatorIdentityRef: s.OperatorIdentityRef, PlacementIntent: s.PlacementIntent,
		Roles: s.Roles, Config: object(s.Config), BillingPolicyRef: s.BillingPolicyRef, DeletionProtection: s.DeletionProtection,
		declared: r.declared(d.Head()),
	}
	if d.Key.Tenant == "" { // the platform's configuration is not shown to tenants
		out.Owner, out.OperatorIdentityRef, out.PlacementIntent, out.Config, out.Labels = "platform", "", nil, object(nil), nil
		if !r.platform {
			out.Roles = withoutSKUs(s.Roles)
		}
	}
	if v := r.Desired.Version(d.Key.Tenant, s.App, s.Version); v != nil {
		out.RuntimeBackend = v.Spec.RuntimeBackend
	}
	if e := r.Effective.Unit(d.Key); e != nil {
		out.TenantBoundaryMode = e.TenantBoundaryMode
	}
	shared := r.Desired.SharedRuntime(d.Key.Tenant, d.Key.Name)
	out.AttachedProjectIDs, out.Attachments = r.attachedTo(shared), r.attachedProjects(shared)
	out.Status, out.Conditions = string(plan.PhaseRequested), []plan.Condition{}
	if u := r.Units.Get(d.Key); u != nil {
		out.Status, out.FailureReason = string(u.Phase), r.visible(d.Key, u.FailureReason)
		out.followed = followed{r.conditions(d.Key, u.Conditions), u.Revision, u.CorrelationID}
	}
	return out
}

// attachedProjects lists the projects in sight that are, or shall be, attached to a shared
// runtime, by project. One that Berth has not reconciled yet is requested. Never nil.
func (r *reading) attachedProjects(s *schema.SharedRuntimeEstate) []attachedProject {
	key := s.Runtime.Key
	found := map[string]attachedProject{}
	for _, project := range s.Runtime.Spec.AttachedProjectIDs {
		found[project] = attachedProject{ProjectID: project, Status: string(plan.AttachmentRequested)}
	}
	for _, a := range s.Attachments {
		found[a.Spec.ProjectID] = attachedProject{ProjectID: a.Spec.ProjectID, AttachmentID: a.ID(),
			Status: string(plan.AttachmentRequested)}
	}
	if u := r.Units.Get(key); u != nil {
		for _, a := range u.Attachments {
			one := found[a.ProjectID]
			one.ProjectID, one.AttachmentID = a.ProjectID, cmp.Or(one.AttachmentID, a.Name)
			one.Status, one.Reason, one.Message = string(a.Phase), string(a.Reason), r.visible(key, a.Message)
			found[a.ProjectID] = one
		}
	}
	maps.DeleteFunc(found, func(project string, _ attachedProject) bool { return !r.mine(project) })
	out := slices.AppendSeq([]attachedProject{}, maps.Values(found))
	slices.SortFunc(out, func(a, b attachedProject) int { return cmp.Compare(a.ProjectID, b.ProjectID) })
	return out
}

func withoutSKUs(roles map[string]schema.InstanceRole) map[string]schema.InstanceRole {
	out := maps.Clone(roles)
	for name, role := range out {
		role.SKU = ""
		out[name] = role
	}
	return out
}

// attachedTo lists the projects in sight that are attached to a shared runtime, with
// terms or without. Never nil.
func (r *reading) attachedTo(s *schema.SharedRuntimeEstate) []string {
	ids := append([]string{}, s.Runtime.Spec.AttachedProjectIDs...)
	for _, a := range s.Attachments {
		ids = append(ids, a.Spec.ProjectID)
	}
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(id string) bool { return !r.mine(id) })
}

// mine says whether a project is the path's tenant's and in sight.
func (r *reading) mine(projectID string) bool {
	tenant, _, _ := strings.Cut(projectID, ".")
	return tenant == r.tenant && r.attached(projectID)
}

func listSharedRuntimes(r *reading) *listing {
	docs := r.ownRuntimes()
	for name, d := range r.platformRuntimes() {
		docs["~"+name] = d // sorts after all names; no name begins like this
	}
	return all(docs, r.sharedRuntime)
}

func readSharedRuntime(r *reading) any {
	if s := r.shared(); s != nil {
		return r.sharedRuntime(s.Runtime)
	}
	return nil
}

func (r *reading) attachment(a *schema.Attachment) any {
	s := a.Spec
	out := attachment{
		ID: a.ID(), SharedRuntimeID: r.sharedID(a.Key.Tenant, a.Key.Parent), OrgID: a.Key.Tenant, ProjectID: s.ProjectID,
		ContributionPolicy: s.ContributionPolicy, SubmissionPolicy: s.SubmissionPolicy, PolicyMetadata: s.PolicyMetadata,
		BillingPolicyRef: s.BillingPolicyRef, OnJobs: s.OnJobs, declared: r.declared(a.Head()),
	}
	out.Status, out.followed = r.statusOf(a.Key, "requested")
	return out
}

// attachments returns the attachments in sight of the shared runtime that the path names.
func (r *reading) attachments() (map[string]*schema.Attachment, bool) {
	s := r.shared()
	if s == nil {
		return nil, false
	}
	out := maps.Clone(s.Attachments)
	maps.DeleteFunc(out, func(_ string, a *schema.Attachment) bool { return !r.mine(a.Spec.ProjectID) })
	return out, true
}

// The workers of a shared runtime and the operations on them (requirement D5). The owner of the
// runtime reads all of them; a consumer reads those on nodes that its own projects lend.

func (r *reading) workerMembers() (map[string]member, bool) {
	s := r.shared()
	if s == nil {
		return nil, false
	}
	key := s.Runtime.Key
	out := r.unitMembers(key, member{SharedRuntimeID: s.Runtime.ID(), OrgID: key.Tenant})
	if !r.owns(key) {
		maps.DeleteFunc(out, func(_ string, m member) bool { return m.SourceProjectID == "" || !r.mine(m.SourceProjectID) })
	}
	return out, true
}

// workerOperationsOf returns the operations on the shared runtime that the path names. Those of
// the platform are for platform users only.
func workerOperationsOf(r *reading) (map[string]*schema.MemberOperation, bool) {
	s := r.shared()
	switch {
	case s == nil:
		return nil, false
	case r.owns(s.Runtime.Key):
		return r.withRequests(s.Runtime.Key, s.Operations), true
	case s.Runtime.Key.Tenant == "":
		return nil, true
	}
	workers, _ := r.workerMembers()
	out := maps.Clone(r.withRequests(s.Runtime.Key, s.Operations))
	maps.DeleteFunc(out, func(_ string, o *schema.MemberOperation) bool {
		_, is := workers[o.Spec.Member]
		return !is
	})
	return out, true
}
