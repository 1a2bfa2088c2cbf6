package policy

import (
	"maps"
	"slices"
	"strings"

	"berth/schema"
)

// sharedBy has shared runtimes, and the tenants whose projects may use them.
type sharedBy struct {
	owner    *schema.TenantEstate // nil: the platform
	runtimes map[string]*schema.SharedRuntimeEstate
	tenants  map[string]*schema.TenantEstate
}

// project returns a project with access to the runtimes, by its id; nil without one.
func (b sharedBy) project(id string) (*schema.TenantEstate, *schema.ProjectEstate) {
	tenant, project, _ := strings.Cut(id, ".")
	if t := b.tenants[tenant]; t != nil {
		return t, t.Projects[project]
	}
	return nil, nil
}

// runtimes evaluates shared runtimes by the layers above them, like instances. No
// entitlement is above them, and they do not count as instances. about are the decisions about
// other documents of the owner.
func (r *rules) runtimes(by sharedBy, above []layer, o options, about []schema.Decision) *schema.EffectiveProject {
	var all []*judgement
	under := newLayers(above, above)
	for _, name := range slices.Sorted(maps.Keys(by.runtimes)) {
		if j := r.runtime(by, by.runtimes[name], under, o); j != nil {
			all = append(all, j)
		}
	}
	e := collect(all, about)
	e.Operations = map[string][]*schema.MemberOperation{}
	for name, of := range by.runtimes {
		for _, list := range operations(of.Operations, func(*schema.MemberOperation) string { return name }) {
			e.Operations[name] = list
		}
	}
	return e
}

// runtime evaluates one shared runtime; nil for one that the reader refuses.
func (r *rules) runtime(by sharedBy, of *schema.SharedRuntimeEstate, under layers, o options) *judgement {
	rt := of.Runtime
	if rt == nil {
		return nil
	}
	app, version := r.catalog.AppFor(by.owner, rt.Spec.App), r.catalog.VersionsFor(by.owner, rt.Spec.App)[rt.Spec.Version]
	if app == nil || version == nil {
		return nil
	}
	if own := admissionLayers(r.catalog, by.owner, rt.Spec.App, under.above); len(own) > len(under.above) {
		under = newLayers(own, own)
	}
	j := &judgement{layers: under, subject: subject{
		instance: asInstance(rt), key: rt.Key, app: app, version: version, source: sourcesFor(r.catalog, by.owner, app),
		admission: r.catalog.Admissions[rt.Key.Tenant][rt.Spec.App],
		new:       !o.existing(rt.Key), regionsField: "spec.placement_intent.regions",
	}}
	if by.owner != nil && suspended(by.owner) {
		j.suspended = []*schema.Header{&by.owner.Tenant.Header}
	}
	j.catalog()
	j.admitted()
	j.modes()
	j.artifacts()
	j.effective(nil, r.configs)
	j.intended(rt.Spec.PlacementIntent)
	j.share(by, of, o.today)
	j.exceeds(o.over[j.key])
	j.becomes(o.today)
	j.bound(o.today)
	return j
}

// intended narrows the SKUs of roles that name none to those of a placement intent, and spreads the roles by its key.
func (j *judgement) intended(p *schema.PlacementIntent) {
	if p == nil {
		return
	}
	for i := range j.result.Roles {
		j.result.Roles[i].SpreadBy = p.SpreadBy
	}
	if len(p.SKUs) == 0 {
		return
	}
	left := j.some("spec.placement_intent.skus", p.SKUs, allowedSKUs())
	for i := range j.result.Roles {
		if r := &j.result.Roles[i]; j.instance.Spec.Roles[r.Name].SKU == "" {
			r.SKUs = left
		}
	}
}

// asInstance returns a shared runtime in the form of an instance, with its own
// document.
func asInstance(rt *schema.SharedRuntime) *schema.Instance {
	i := &schema.Instance{Header: rt.Header, Spec: schema.InstanceSpec{
		App: rt.Spec.App, Version: rt.Spec.Version, DisplayName: rt.Spec.DisplayName, DesiredState: rt.Spec.DesiredState,
		ProductMode: schema.ProductMode{
			OperatingMode: rt.Spec.OperatingMode, ControlPlaneScope: rt.Spec.ControlPlaneScope,
			TenantBoundaryMode: boundaryMode(rt.Spec.ControlPlaneScope),
		},
		OperatorServiceAccount: rt.Spec.OperatorIdentityRef,
		Roles:                  rt.Spec.Roles, Config: rt.Spec.Config, OnJobs: rt.Spec.OnJobs,
	}}
	if rt.Spec.PlacementIntent != nil {
		i.Spec.Regions = rt.Spec.PlacementIntent.Regions
	}
	return i
}

// boundaryMode returns the boundary between the users of a shared runtime: one of the platform
// serves several tenants.
func boundaryMode(scope string) string {
	if scope == "platform" {
		return "shared_service"
	}
	return "tenant_isolated"
}

// newRuntimes returns the names in now that are not in before, sorted.
func newRuntimes(now, before map[string]*schema.SharedRuntimeEstate) (fresh []string) {
	for name := range now {
		if before[name] == nil || before[name].Runtime == nil {
			fresh = append(fresh, name)
		}
	}
	slices.Sort(fresh)
	return fresh
}
