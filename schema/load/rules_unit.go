package load

import (
	"encoding/json"
	"strings"

	"berth/schema"
)

// unitRules are the rules of units, and of the documents about them.
type unitRules struct {
	*problemList
	tree *tree
}

func (r unitRules) instance(d *schema.Instance) {
	s := &d.Spec
	s.Config = r.open("config")
	r.repeated("spec.regions", s.Regions)
	shared := s.SharedRuntime != ""
	if l := s.SubmissionLimits; l != nil {
		if !shared {
			r.needless("spec.submission_limits", "needs shared_runtime: an instance with a control plane of its own has no such limits")
		}
		r.repeated("spec.submission_limits.queues", l.Queues)
	}
	for _, own := range []string{"roles", "config"} {
		if _, ok := r.tree.at["spec."+own]; ok && shared {
			r.needless("spec."+own, "is the shared runtime's to say: take it away")
		}
	}
	given := s.OperatingMode
	s.OperatingMode = modeOf(s.ControlPlaneScope)
	switch {
	case shared && s.ControlPlaneScope == schema.ControlPlaneProject:
		r.needless("spec.shared_runtime",
			"the instance has a control plane of its own, as control_plane_scope is project: set that to tenant or platform, or take "+
				"this away")
	case !shared && s.ControlPlaneScope != schema.ControlPlaneProject:
		r.broken("spec.control_plane_scope", "is %s: name the shared runtime that carries the instance in shared_runtime",
			s.ControlPlaneScope)
	case given != "" && given != s.OperatingMode:
		r.broken("spec.operating_mode", "is %s, and control_plane_scope is %s, which is always %s: correct one of the two", given,
			s.ControlPlaneScope, s.OperatingMode)
	}
	r.drain(s.OnJobs)
	r.lostNodes(s.Roles)
}

// modeOf returns the operating mode for a scope. There are three product modes and no
// other pairs: project-scoped and tenant-owned shared, which are tenant_dedicated, and
// platform-managed shared (requirement B5).
func modeOf(scope string) string {
	if scope == schema.ControlPlanePlatform {
		return schema.ModePlatformManaged
	}
	return schema.ModeTenantDedicated
}

// lostNodes refuses roles that wait for a lost node and replace its member.
func (r unitRules) lostNodes(roles map[string]schema.InstanceRole) {
	for _, name := range sortedNames(roles) {
		if o := roles[name].OnNodeLost; o != nil && o.Wait && o.ReplaceAfterSeconds > 0 {
			r.broken("spec.roles."+name+".on_node_lost",
				"waits without end and replaces after a while: keep one of wait and replace_after_seconds")
		}
	}
}

func (r unitRules) drain(j *schema.OnJobs) { r.drainAt("spec.on_jobs", j) }

func (r unitRules) drainAt(path string, j *schema.OnJobs) {
	if j != nil && j.Wait && j.CancelAfterSeconds > 0 {
		r.broken(path, "waits without end and cancels after a while: keep one of wait and cancel_after_seconds")
	}
}

// sharedRuntime fills in values from the path, and refuses values that contradict it.
func (r unitRules) sharedRuntime(d *schema.SharedRuntime) {
	d.Spec.Config = r.open("config")
	scope, place := schema.ControlPlaneTenant, "in a tenant"
	if d.Key.Tenant == "" {
		scope, place = schema.ControlPlanePlatform, "at the platform"
	}
	for _, f := range []struct {
		name, want string
		value      *string
	}{{"operating_mode", modeOf(scope), &d.Spec.OperatingMode}, {"control_plane_scope", scope, &d.Spec.ControlPlaneScope}} {
		if *f.value != "" && *f.value != f.want {
			r.broken("spec."+f.name, "is %s, but %s it is always %s: write that, or take it away", *f.value, place, f.want)
		}
		*f.value = f.want
	}
	switch named := d.Spec.OperatorIdentityRef != ""; {
	case d.Key.Tenant == "" && named:
		r.needless("spec.operator_identity_ref", "the platform operates its shared runtimes itself: take it away")
	case d.Key.Tenant != "" && !named:
		r.broken("spec.operator_identity_ref", "is missing: name the service account of the tenant that operates the shared runtime")
	}
	for i, id := range d.Spec.AttachedProjectIDs {
		r.ownProject(Item("spec.attached_project_ids", i), id, d.Key.Tenant)
	}
	r.repeated("spec.attached_project_ids", d.Spec.AttachedProjectIDs)
	if p := d.Spec.PlacementIntent; p != nil {
		r.repeated("spec.placement_intent.regions", p.Regions)
		r.repeated("spec.placement_intent.skus", p.SKUs)
	}
	r.drain(d.Spec.OnJobs)
	r.lostNodes(d.Spec.Roles)
}

// ownProject refuses a project that does not belong to the tenant that owns the shared
// runtime. One of the platform takes any project.
func (r unitRules) ownProject(path, projectID, tenant string) {
	if of, _, _ := strings.Cut(projectID, "."); tenant != "" && of != tenant {
		r.refuse(path, "ref.other-tenant", "%s is a project of another tenant: a tenant's shared runtime serves the projects of %s only",
			projectID, tenant)
	}
}

func (r unitRules) attachment(d *schema.Attachment) {
	d.Spec.PolicyMetadata = r.open("policy_metadata")
	r.ownProject("spec.project_id", d.Spec.ProjectID, d.Key.Tenant)
	c := d.Spec.ContributionPolicy
	for _, f := range []struct {
		name string
		says bool
	}{{"max_nodes", c.MaxNodes > 0}, {"max_gpus", c.MaxGPUs > 0}, {"until", c.Until != ""}, {"on_jobs", c.OnJobs != nil}} {
		if f.says && !c.Allow {
			r.needless("spec.contribution_policy."+f.name, "the project may lend no node: set allow to true, or take this away")
		}
	}
	if c.Guaranteed.GPUs > 0 && c.Guaranteed.CPUs == 0 {
		r.broken("spec.contribution_policy.guaranteed", "guarantees GPUs and no CPU: each job needs both, so name cpus too")
	}
	r.repeated("spec.submission_policy.queues", d.Spec.SubmissionPolicy.Queues)
	r.drainAt("spec.contribution_policy.on_jobs", c.OnJobs)
	r.drain(d.Spec.OnJobs)
	r.day("spec.contribution_policy.until", c.Until)
}

func (r unitRules) operation(d *schema.MemberOperation) {
	s := &d.Spec
	switch shared := d.Key.Parent != ""; {
	case shared && s.Instance != "":
		r.needless("spec.instance", "the operation is on the shared runtime %s, in whose directory it stands: take it away", d.Key.Parent)
	case !shared && s.Instance == "":
		r.missing("spec.instance", ", want the instance whose member it is")
	}
	if s.Member == "" && !schema.IsOfUnit(s.Operation) {
		r.missing("spec.member", ": %s needs a member; only retry, hold, release, accept_loss and abandon_usage apply to a whole unit",
			s.Operation)
	}
	label := s.Operation == schema.OpLabel
	if label && len(s.Labels) == 0 {
		r.missing("spec.labels", ": say what to set")
	}
	if !label && s.Labels != nil {
		r.needless("spec.labels", "only label sets labels: take it away")
	}
	if s.OnJobs != nil && !schema.EndsJobs(s.Operation) {
		r.needless("spec.on_jobs", "%s ends no jobs: take it away", s.Operation)
	}
	r.drain(s.OnJobs)
}

// open returns a field of the spec that the core's definitions leave open, as canonical
// JSON; nil if it is missing.
func (r unitRules) open(field string) json.RawMessage {
	value, ok := r.tree.value["spec"].(map[string]any)[field]
	if !ok {
		return nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		r.refuse("spec."+field, "schema.value", "%v", err)
	}
	return raw
}
