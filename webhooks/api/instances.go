package api

import (
	"maps"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
)

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

func (r *reading) instanceMembers() (map[string]member, bool) {
	name, ok := r.instanceName()
	if !ok {
		return nil, false
	}
	key := schema.InstanceKey(r.tenant, r.project, name)
	return r.unitMembers(key, member{AppInstanceID: r.instanceID(name), OrgID: r.tenant, ProjectID: key.ProjectID()}), true
}

// instanceOperations returns the operations on the instance that the path names.
func (r *reading) instanceOperations() (map[string]*schema.MemberOperation, bool) {
	name, ok := r.instanceName()
	out := maps.Clone(r.projectEstate().Operations)
	maps.DeleteFunc(out, func(_ string, o *schema.MemberOperation) bool { return o.Spec.Instance != name })
	return r.withRequests(schema.InstanceKey(r.tenant, r.project, name), out), ok
}
