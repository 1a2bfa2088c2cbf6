package policy

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"berth/schema"
)

// says returns the value of a field of the document, with the scope Default if the
// reader filled it in.
func (j explainer) says(name string, value any) Value {
	return Value{Field: name, Value: value, Steps: []Step{j.asks("spec."+name, value, value)}}
}

// given returns the values that are not empty.
func given(values ...Value) []Value {
	return slices.DeleteFunc(values, func(v Value) bool { return v.Value == "" || v.Value == 0 || v.Value == false || v.Value == nil })
}

// of returns the value of a field of the version.
func (j explainer) of(name, field string, value any) Value {
	return Value{Field: name, Value: value, Steps: []Step{said(ScopeVersion, &j.version.Header, field, value, value)}}
}

// onJobs returns the rule for jobs that are in the way of a change; by default Berth
// waits for them.
func (j explainer) onJobs(rule *schema.OnJobs) Value {
	if rule == nil {
		rule = &schema.OnJobs{Wait: true}
	}
	return j.says("on_jobs", *rule)
}

// roles returns the number and the kind of members of each role of the version.
func (j explainer) explainRoles(declared map[string]schema.InstanceRole) []Value {
	var out []Value
	manifest := j.version.Spec.Manifest.Roles
	for _, name := range slices.Sorted(maps.Keys(manifest)) {
		m, at := manifest[name], "roles."+name+"."
		want, ok := declared[name]
		count := j.of(at+"count", "spec.manifest."+at+"min", m.Min)
		if ok {
			count.Value = want.Count
			count.Steps = append(count.Steps, j.asks("spec."+at+"count", want.Count, want.Count))
		}
		out = append(out, j.of(at+"node_role", "spec.manifest."+at+"node_role", m.NodeRole))
		out = append(out, given(j.of(at+"control_plane", "spec.manifest."+at+"control_plane", m.ControlPlane),
			j.of(at+"shareable", "spec.manifest."+at+"shareable", m.Shareable))...)
		out = append(out, count)
		if want.GPUs != nil {
			out = append(out, given(j.says(at+"gpus.type", want.GPUs.Type), j.says(at+"gpus.count", want.GPUs.Count))...)
		}
		out = append(out, given(j.says(at+"cpus", want.CPUs), j.says(at+"memory_mib", want.MemoryMiB),
			j.says(at+"disk_gib", want.DiskGiB))...)
		if len(want.NodeLabels) > 0 {
			out = append(out, j.says(at+"node_labels", want.NodeLabels))
		}
		if want.MaxUnavailable != (schema.MaxUnavailable{}) {
			out = append(out, j.says(at+"max_unavailable", want.MaxUnavailable))
		}
		if want.OnNodeLost != nil {
			out = append(out, j.says(at+"on_node_lost", *want.OnNodeLost))
		}
		if want.MissingGraceSeconds != nil {
			out = append(out, j.says(at+"missing_grace_seconds", *want.MissingGraceSeconds))
		}
	}
	return out
}

// config returns the version's parameters with over, those of the document, merged over
// them.
func (j explainer) config(over map[string]any) []Value {
	under := object(j.version.Spec.Manifest.Parameters)
	made := schema.MergeConfig(under, over)
	var out []Value
	for _, key := range slices.Sorted(maps.Keys(made)) {
		v := Value{Field: "config." + key, Value: canonical(made[key])}
		if says, ok := under[key]; ok {
			v.Steps = append(v.Steps, said(ScopeVersion, &j.version.Header, "spec.manifest.parameters."+key, canonical(says),
				canonical(says)))
		}
		if says, ok := over[key]; ok {
			v.Steps = append(v.Steps, j.asks("spec.config."+key, canonical(says), canonical(made[key])))
		}
		out = append(out, v)
	}
	return out
}

// explainDocument returns the values that the instance and its version set without a
// policy.
func (j explainer) explainDocument() []Value {
	spec := &j.instance.Spec
	out := []Value{
		j.says("app", spec.App), j.says("version", spec.Version),
		j.of("runtime_backend", "spec.runtime_backend", j.version.Spec.RuntimeBackend),
		j.says("display_name", spec.DisplayName), j.says("tenant_boundary_mode", spec.TenantBoundaryMode), j.onJobs(spec.OnJobs),
	}
	if uid := j.instance.UID; uid != "" {
		out = append(out, Value{Field: "uid", Value: uid, Steps: []Step{j.asks("metadata.uid", uid, uid)}})
	}
	out = append(out, given(j.says("shared_runtime", spec.SharedRuntime), j.says("requested_by", spec.RequestedBy),
		j.says("operator_service_account", spec.OperatorServiceAccount), j.says("deletion_protection", spec.DeletionProtection))...)
	if spec.SharedRuntime == "" {
		out = append(out, j.explainRoles(spec.Roles)...)
	}
	return out
}

// explainUsers returns the role bindings that let people submit work.
func (j explainer) explainUsers(t *schema.TenantEstate, p *schema.ProjectEstate) []Value {
	names := func(us []schema.UnixUser) []string {
		out := []string{}
		for _, u := range us {
			out = append(out, u.Name)
		}
		return out
	}
	all := names(j.result.Users)
	out := Value{Field: "users", Value: all, Steps: []Step{}}
	for _, b := range []struct {
		scope Scope
		*schema.RoleBinding
	}{{ScopeTenant, t.Roles}, {ScopeProject, p.Roles}} {
		if b.RoleBinding == nil || b.Suspend {
			continue
		}
		says := names(users(&schema.TenantEstate{Roles: b.RoleBinding}, &schema.ProjectEstate{}))
		left := says
		if b.scope == ScopeProject {
			left = all
		}
		out.Steps = append(out.Steps, Step{b.scope, b.At("spec.members"), says, left})
	}
	if len(out.Steps) == 0 {
		return nil
	}
	return []Value{out}
}

// carriedOnly removes members and configuration from the values of an instance on a
// shared runtime. They belong to the shared runtime.
func carriedOnly(values []Value) []Value {
	return slices.DeleteFunc(values, func(v Value) bool {
		return (strings.HasPrefix(v.Field, "config.") || strings.HasPrefix(v.Field, "roles.")) &&
			!slices.ContainsFunc(v.Steps, func(s Step) bool { return s.Scope == ScopeInstance })
	})
}

// ExplainShared explains a shared runtime of a tenant, or of the platform if the key has
// no tenant. ok is false without a valid one of that key.
func ExplainShared(d *schema.Desired, key schema.Key, opts ...Option) (out Explanation, ok bool) {
	e := d.SharedRuntime(key.Tenant, key.Name)
	if e == nil {
		return out, false
	}
	r := newRules(d.Platform)
	layers, by := r.layers, sharedBy{tenants: d.Tenants}
	if key.Tenant != "" {
		by.owner = d.Tenants[key.Tenant]
		layers = tenantLayers(layers, by.owner, r.sites)
	}
	o, parts := with(opts), map[string]*schema.EffectiveProject(nil)
	if by.owner != nil {
		parts = r.parts(by.owner, layers, o)
		o = o.with(o.ofTenant(layers, parts)[""])
	}
	evaluated := r.runtime(by, e, newLayers(layers, layers), o)
	if evaluated == nil {
		return out, false
	}
	j := explainer{evaluated}
	spec := &e.Runtime.Spec
	out = j.explanation()
	out.Values = slices.Concat(j.explainCatalog(), j.explainLists("placement_intent.regions"), j.explainQuotas(parts),
		[]Value{j.explainGPUs(), j.explainSources(), j.explainState(),
			j.says("app", spec.App), j.says("version", spec.Version),
			j.of("runtime_backend", "spec.runtime_backend", j.version.Spec.RuntimeBackend),
			j.says("display_name", spec.DisplayName), j.onJobs(spec.OnJobs),
		})
	optional := given(j.says("environment", spec.Environment), j.says("operator_identity_ref", spec.OperatorIdentityRef),
		j.says("billing_policy_ref", spec.BillingPolicyRef), j.says("deletion_protection", spec.DeletionProtection))
	intent := schema.PlacementIntent{}
	if spec.PlacementIntent != nil {
		intent = *spec.PlacementIntent
	}
	optional = append(optional, given(j.says("placement_intent.spread_by", intent.SpreadBy))...)
	if len(intent.SKUs) > 0 {
		optional = append(optional, j.narrowed("placement_intent.skus", intent.SKUs, allowedSKUs()))
	}
	if spec.AttachedProjectIDs != nil {
		optional = append(optional, j.says("attached_project_ids", spec.AttachedProjectIDs))
	}
	slices.SortFunc(optional, func(a, b Value) int { return strings.Compare(a.Field, b.Field) })
	out.Values = append(out.Values, optional...)
	out.Values = append(out.Values, j.explainRoles(spec.Roles)...)
	out.Values = append(out.Values, j.config(object(spec.Config))...)
	for _, a := range j.result.Attachments {
		_, p := by.project(a.ProjectID)
		out.Values = append(out.Values, j.explainTerms("attachments."+a.ProjectID, e.Attachments[a.Name], Acceptance(e.Runtime, p))...)
	}
	return out, true
}

// explainTerms returns the limits of a project on a shared runtime, each with what its
// Attachment and its Instance say. prefix comes before the name of a limit.
func (j explainer) explainTerms(prefix string, a *schema.Attachment, view *schema.Instance) (out []Value) {
	owner, asked := a.Spec.SubmissionPolicy.SubmissionLimits, schema.SubmissionLimits{}
	if view != nil && view.Spec.SubmissionLimits != nil {
		asked = *view.Spec.SubmissionLimits
	}
	is, _ := owner.Narrower(asked)
	was, says, left := reflect.ValueOf(owner), reflect.ValueOf(asked), reflect.ValueOf(is)
	for i := range left.NumField() {
		name, _, _ := strings.Cut(left.Type().Field(i).Tag.Get("json"), ",")
		v := Value{Field: prefix + "." + name, Value: left.Field(i).Interface()}
		if !was.Field(i).IsZero() {
			v.Steps = append(v.Steps, Step{ScopeAttachment, a.At("spec.submission_policy." + name), was.Field(i).Interface(),
				was.Field(i).Interface()})
		}
		if !says.Field(i).IsZero() {
			v.Steps = append(v.Steps, Step{ScopeInstance, view.At("spec.submission_limits." + name), says.Field(i).Interface(), v.Value})
		}
		if v.Steps != nil {
			out = append(out, v)
		}
	}
	return out
}
