package api

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
)

// catalogOf returns the owners of apps in sight, with the platform as nil: each tenant of the
// caller's, and every tenant for a user with the permission at the platform, who admits apps.
func (r *reading) catalogOf() []*schema.TenantEstate {
	owners := []*schema.TenantEstate{nil}
	everything := slices.Contains(r.sight.granted, authority.Scope{})
	for name, t := range r.Desired.Tenants {
		if everything || r.sight.tenant(name) {
			owners = append(owners, t)
		}
	}
	return owners
}

// listApps lists the platform's apps and the own apps of tenants in sight (requirement F9).
func listApps(r *reading) *listing {
	by := map[string]*schema.App{}
	for _, t := range r.catalogOf() {
		of, tenant := r.Desired.Platform.Apps, ""
		if t != nil {
			of, tenant = t.Apps, t.Name
		}
		for slug, a := range of {
			if !r.hides(a) {
				by[tenant+"/"+slug] = a
			}
		}
	}
	return all(by, func(a *schema.App) any {
		return app{id(a.Head()), a.Key.Name, r.owner(a), a.Spec.DisplayName, a.Spec.Category, a.Spec.Publisher, a.Spec.Description,
			a.Spec.Status, r.declared(a.Head())}
	})
}

// owner is the owner of an app, and of its versions.
func (r *reading) owner(a *schema.App) owned {
	if a.Key.Tenant == "" {
		return owned{Tier: "platform"}
	}
	admitted := r.Desired.Admission(a.Key.Tenant, a.Key.Name) != nil
	return owned{"tenant", a.Key.Tenant, &admitted}
}

// appID is the id of an app that documents of the path's tenant name; its slug if the catalog no
// longer has it.
func (r *reading) appID(slug string) string {
	if a := r.Desired.App(r.tenant, slug); a != nil {
		return id(a.Head())
	}
	return slug
}

// listVersions lists the versions of every app in sight with a slug: that of the platform, and those
// of tenants.
func listVersions(r *reading) *listing {
	slug := r.params["app_slug"]
	apps, versions := map[string]*schema.App{}, map[string]*schema.AppVersion{}
	for _, t := range r.catalogOf() {
		tenant, a, of := "", r.Desired.Platform.Apps[slug], r.Desired.Platform.Versions[slug]
		if t != nil {
			tenant, a, of = t.Name, t.Apps[slug], t.Versions[slug]
		}
		if a == nil || r.hides(a) {
			continue
		}
		apps[tenant] = a
		for name, v := range of {
			versions[tenant+"/"+name] = v
		}
	}
	if len(apps) == 0 {
		return nil
	}
	l := all(versions, func(v *schema.AppVersion) any {
		s, a := v.Spec, apps[v.Key.Tenant]
		return version{v.Key.Name, id(a.Head()), slug, r.owner(a), s.Version, s.RuntimeBackend, s.Status, s.Manifest, r.declared(v.Head())}
	})
	l.filters = map[string]filter{"status": {
		[]string{string(schema.StatusActive), string(schema.StatusDeprecated), string(schema.StatusDisabled)},
		func(name, status string) bool { return string(versions[name].Spec.Status) == status },
	}}
	l.created = func(name string) time.Time { return createdAt(r, versions[name].Head()) }
	return l
}

// listSources lists the platform's artifact sources and those of the caller's tenants
// (requirement B3).
func listSources(r *reading) *listing {
	by := map[string]*schema.ArtifactSource{}
	for name, s := range r.Desired.Platform.ArtifactSources {
		by["/"+name] = s
	}
	for tenant, t := range r.Desired.Tenants {
		if r.sight.tenant(tenant) {
			for name, s := range t.ArtifactSources {
				by[tenant+"/"+name] = s
			}
		}
	}
	return all(by, func(s *schema.ArtifactSource) any {
		tier := "platform"
		if s.Key.Tenant != "" {
			tier = "tenant"
		}
		return source{s.Key.Name, tier, s.Key.Tenant, s.Spec.Type, s.Spec.Host, r.declared(s.Head())}
	})
}

// Resources of a project.

func (r *reading) entitlement(e *schema.Entitlement) any {
	return entitlement{id(e.Head()), e.Key.Tenant, e.Key.ProjectID(), r.appID(e.Key.Name), e.Key.Name, e.Spec.Enabled,
		e.Spec.PolicyOverrides, r.declared(e.Head())}
}

func listEntitlements(r *reading) *listing { return all(r.projectEstate().Entitlements, r.entitlement) }

func readEntitlement(r *reading) any {
	e := r.projectEstate().Entitlements[r.params["app_slug"]]
	if e == nil {
		return nil
	}
	return r.entitlement(e)
}

// listInstances lists the instances in force, and those that are being deleted.
func listInstances(r *reading) *listing {
	return instanceListing(r, r.instanceNames(), func(name string) (*reading, string) { return r, name })
}

func (r *reading) instanceNames() []string {
	names := map[string]bool{}
	for name := range r.projectEstate().Instances {
		names[name] = true
	}
	for key := range r.Units.Project(r.tenant, r.project) {
		names[key.Name] = true
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return r.hides(r.appOf(name)) })
	return slices.Collect(maps.Keys(names))
}

// hides reports whether the caller may not see an app: it lacks the permission for schedulers, and the app is one
// or is unknown (nil).
func (s sight) hides(a *schema.App) bool { return !s.schedulers && (a == nil || a.IsScheduler()) }

// appOf returns the app of an instance of the project; nil: it is unknown.
func (r *reading) appOf(name string) *schema.App {
	key := schema.InstanceKey(r.tenant, r.project, name)
	app := r.Desired.AppOf(key)
	if s := r.Units.Get(key); app == "" && s != nil {
		app = s.App // the document is gone, and the instance is not yet
	}
	return r.Desired.App(r.tenant, app)
}

// listOrgInstances lists the instances of a tenant's projects in sight, by project and name.
func listOrgInstances(r *reading) *listing {
	within := map[string]*reading{}
	names := map[string]bool{}
	r.holding()
	for project := range r.Desired.Tenants[r.tenant].Projects {
		if !r.attached(r.tenant + "." + project) {
			continue
		}
		one := *r
		one.project = project
		within[project] = &one
		for _, name := range one.instanceNames() {
			names[project+"."+name] = true
		}
	}
	return instanceListing(r, slices.Collect(maps.Keys(names)), func(name string) (*reading, string) {
		project, name, _ := strings.Cut(name, ".")
		return within[project], name
	})
}

// instanceListing lists instances, with filters by status and app and the order
// newest. of returns the reading and the instance name of an item of names.
func instanceListing(r *reading, names []string, of func(string) (*reading, string)) *listing {
	key := func(item string) (*reading, schema.Key) {
		in, name := of(item)
		return in, schema.InstanceKey(in.tenant, in.project, name)
	}
	return &listing{
		names: names,
		at: func(item string) any {
			in, name := of(item)
			return in.instance(name)
		},
		filters: map[string]filter{
			"status": {instanceStatuses(), func(item, status string) bool {
				_, k := key(item)
				if s := r.Units.Get(k); s != nil {
					return string(s.Phase) == status
				}
				return status == string(plan.PhaseRequested)
			}},
			"app": {nil, func(item, app string) bool {
				in, k := key(item)
				if d := in.projectEstate().Instances[k.Name]; d != nil {
					return d.Spec.App == app
				}
				s := r.Units.Get(k)
				return s != nil && s.App == app
			}},
		},
		created: func(item string) time.Time {
			in, k := key(item)
			d := in.projectEstate().Instances[k.Name]
			if d == nil {
				return time.Time{}
			}
			return createdAt(in, d.Head())
		},
	}
}

// instanceStatuses lists the phases of instances.
func instanceStatuses() []string {
	var out []string
	for _, p := range plan.Phases() {
		out = append(out, string(p))
	}
	return out
}

// createdAt is when a document was created; the zero time if unknown.
func createdAt(r *reading, h *schema.Header) time.Time {
	if r.Dates == nil {
		return time.Time{}
	}
	created, _ := r.Dates(h.File, h.Blob)
	return created
}

func readInstance(r *reading) any {
	if name, ok := r.instanceName(); ok {
		return r.instance(name)
	}
	if r.Deleted != nil {
		if d, ok := r.Deleted(r.tenant, r.project, r.params["app_instance_id"]); ok && !r.hides(r.Desired.App(r.tenant, d.App)) {
			return deletedInstance(r, d)
		}
	}
	return nil
}

// deletedInstance is a deleted instance, from the event log.
func deletedInstance(r *reading, d plan.DeletedInstance) instance {
	return instance{
		instanceIDs: instanceIDs{ID: d.ID, ResourceName: d.Key.ResourceName(), Name: d.Key.Name, OrgID: d.Key.Tenant,
			ProjectID: d.Key.ProjectID(),
			AppID:     r.appID(d.App), AppSlug: d.App},
		instanceModes: instanceModes{OperatingMode: d.OperatingMode, ControlPlaneScope: d.ControlPlaneScope,
			RuntimeBackend: d.RuntimeBackend},
		DesiredState: "deleted", Status: plan.PhaseDeleted, RequestedBy: d.RequestedBy, DeletedAt: d.DeletedAt,
		Config: object(nil), RuntimeState: object(nil), followed: followed{[]plan.Condition{}, d.Revision, d.CorrelationID},
	}
}

// instanceName is the name of the instance that the path names.
func (r *reading) instanceName() (string, bool) {
	name := r.params["app_instance_id"]
	d, ok := find(r.projectEstate().Instances, name)
	if ok {
		name = d.Key.Name
	}
	ok = ok || r.Units.Get(schema.InstanceKey(r.tenant, r.project, name)) != nil
	return name, ok && !r.hides(r.appOf(name))
}

func (r *reading) instanceID(name string) string {
	if d := r.projectEstate().Instances[name]; d != nil {
		return id(d.Head())
	}
	return name
}

func (r *reading) instance(name string) instance {
	key := schema.InstanceKey(r.tenant, r.project, name)
	i := instance{
		instanceIDs: instanceIDs{ID: r.instanceID(name), ResourceName: key.ResourceName(), Name: name, OrgID: key.Tenant,
			ProjectID: key.ProjectID()},
		DesiredState: "deleted", Status: plan.PhaseRequested, Config: object(nil), RuntimeState: object(nil),
	}
	i.Conditions = []plan.Condition{}
	if s := r.Units.Get(key); s != nil {
		i.AppID, i.AppSlug, i.RuntimeBackend, i.OperatingMode, i.ControlPlaneScope = r.appID(s.App), s.App, s.RuntimeBackend,
			s.OperatingMode, s.ControlPlaneScope
		i.Status, i.FailureReason, i.RuntimeState = s.Phase, r.visible(key, s.FailureReason), object(s.RuntimeState)
		i.RequestedBy = s.RequestedBy
		i.followed = followed{r.conditions(key, s.Conditions), s.Revision, s.CorrelationID}
	}
	d := r.projectEstate().Instances[name]
	if d == nil {
		return i
	}
	s := d.Spec
	i.declared = r.declared(d.Head())
	i.AppID, i.AppSlug, i.AppVersionID, i.AppVersion = r.appID(s.App), s.App, s.Version, s.Version
	i.DisplayName, i.DesiredState = s.DisplayName, string(s.DesiredState)
	i.OperatingMode, i.ControlPlaneScope, i.TenantBoundaryMode = s.OperatingMode, s.ControlPlaneScope, s.TenantBoundaryMode
	i.OperatorServiceAccount = s.OperatorServiceAccount
	i.DeletionProtection, i.Roles, i.Config, i.SubmissionLimits = s.DeletionProtection, s.Roles, object(s.Config), s.SubmissionLimits
	if s.SharedRuntime != "" {
		of := schema.SharedRuntimeKey(key.Tenant, s.ControlPlaneScope, s.SharedRuntime)
		i.SharedRuntimeID = r.sharedID(of.Tenant, of.Name)
	}
	if v := r.Desired.Version(key.Tenant, s.App, s.Version); v != nil {
		i.RuntimeBackend = v.Spec.RuntimeBackend
	}
	if e := r.Effective.Unit(key); e != nil { // after policy and catalog (requirement B4)
		i.OperatingMode, i.ControlPlaneScope, i.TenantBoundaryMode = e.OperatingMode, e.ControlPlaneScope, e.TenantBoundaryMode
		i.RuntimeBackend, i.Config = e.RuntimeBackend, object(e.Config)
	}
	return i
}

// unitMembers returns a unit's placed members; whose has the fields they share.
func (r *reading) unitMembers(key schema.Key, whose member) map[string]member {
	out := map[string]member{}
	s := r.Units.Get(key)
	if s == nil {
		return out
	}
	for _, m := range s.Members {
		one := whose
		one.ID, one.Role, one.ControlPlane, one.Status = m.Name, m.Role, m.ControlPlane, cmp.Or(string(m.State), "unknown")
		one.AppSlug, one.Node, one.Region, one.SKU, one.CPUs, one.MemoryMiB = s.App, m.Node, m.Region, m.SKU, m.CPUs, m.MemoryMiB
		one.PlacementReason = r.visible(key, m.Placed)
		for _, g := range m.GPUs {
			one.GPUs = append(one.GPUs, memberGPUs{g.Type, g.Count})
		}
		if m.Loan != nil {
			one.SourceProjectID, one.SourceUntil = m.Loan.ProjectID, m.Loan.Until
		}
		if m.Integration != nil {
			one.Integration = *m.Integration
		}
		out[m.Name] = one
	}
	return out
}

func (r *reading) instanceMembers() (map[string]member, bool) {
	name, ok := r.instanceName()
	if !ok {
		return nil, false
	}
	key := schema.InstanceKey(r.tenant, r.project, name)
	return r.unitMembers(key, member{AppInstanceID: r.instanceID(name), OrgID: r.tenant, ProjectID: key.ProjectID()}), true
}

func (r *reading) operation(o *schema.MemberOperation) any {
	s := o.Spec
	out := operation{
		ID: id(o.Head()), OrgID: o.Key.Tenant, ProjectID: o.Key.ProjectID(), MemberID: s.Member,
		Operation: s.Operation, TargetLabels: s.Labels, Reason: s.Reason, declared: r.declared(o.Head()),
	}
	if o.Key.Parent != "" {
		out.SharedRuntimeID = r.sharedID(o.Key.Tenant, o.Key.Parent)
	} else {
		out.AppInstanceID = r.instanceID(s.Instance)
	}
	out.Status, out.followed = r.statusOf(o.Key, string(plan.OperationRequested))
	if s := r.Things[o.Key]; s != nil {
		_ = json.Unmarshal(s.Detail, &out.operated) // the branch is not trusted to be well formed
		out.Result = r.visible(o.Key, out.Result)
	}
	return out
}

// withRequests returns the operations on a unit together with those that were requested without a
// document, by name.
func (r *reading) withRequests(unit schema.Key, declared map[string]*schema.MemberOperation) map[string]*schema.MemberOperation {
	s := r.Units.Get(unit)
	if s == nil || !slices.ContainsFunc(s.Operations, func(o plan.Operation) bool { return o.IsRequest }) {
		return declared
	}
	out := maps.Clone(declared)
	if out == nil {
		out = map[string]*schema.MemberOperation{}
	}
	for _, o := range s.Operations {
		if !o.IsRequest {
			continue
		}
		key := schema.Key{Kind: schema.KindMemberOperation, Tenant: unit.Tenant, Project: unit.Project, Name: o.Name}
		spec := o.Spec
		if unit.Kind == schema.KindSharedRuntime {
			key.Parent = unit.Name
		} else {
			spec.Instance = unit.Name
		}
		out[o.Name] = &schema.MemberOperation{Header: schema.Header{Key: key, UID: o.ID}, Spec: spec}
	}
	return out
}

// instanceOperations returns the operations on the instance that the path names.
func (r *reading) instanceOperations() (map[string]*schema.MemberOperation, bool) {
	name, ok := r.instanceName()
	out := maps.Clone(r.projectEstate().Operations)
	maps.DeleteFunc(out, func(_ string, o *schema.MemberOperation) bool { return o.Spec.Instance != name })
	return r.withRequests(schema.InstanceKey(r.tenant, r.project, name), out), ok
}

func (r *reading) artifact(a *schema.Artifact) any {
	s := a.Spec
	out := artifact{
		ID: id(a.Head()), OrgID: a.Key.Tenant, ProjectID: a.Key.ProjectID(), AppSlug: s.App, DisplayName: s.DisplayName,
		Source: s.Source, Reference: s.Reference, MediaType: s.MediaType, Digest: s.Digest, declared: r.declared(a.Head()),
	}
	out.Status, out.followed = r.statusOf(a.Key, cmp.Or(string(s.Status), "intent"))
	return out
}

func artifactsOf(r *reading) (map[string]*schema.Artifact, bool) {
	return r.projectEstate().Artifacts, true
}
