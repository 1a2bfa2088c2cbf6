package api

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
)

// reading is the view of one request: all of it is of the same moment.
type reading struct {
	View
	params  map[string]string
	tenant  string
	project string
	sight
	held map[schema.Key]plan.Held // built at the first use
}

// id is the id of a resource, as in events.
func id(h *schema.Header) string { return h.ID() }

// find returns the document of a name, else of a uid. Names take precedence, so that
// a uid cannot hide the document of that name.
func find[D interface{ Head() *schema.Header }](docs map[string]D, want string) (D, bool) {
	if d, ok := docs[want]; ok {
		return d, true
	}
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		if docs[name].Head().UID == want {
			return docs[name], true
		}
	}
	var none D
	return none, false
}

// all lists the documents of a map.
func all[D any](docs map[string]D, shape func(D) any) *listing {
	return &listing{names: slices.Collect(maps.Keys(docs)), at: func(name string) any { return shape(docs[name]) }}
}

// one returns the document that a parameter names, in its shape, or nil.
func one[D interface{ Head() *schema.Header }](docs map[string]D, want string, shape func(D) any) any {
	d, ok := find(docs, want)
	if !ok {
		return nil
	}
	return shape(d)
}

// holding builds the index of held changes, once.
func (r *reading) holding() {
	if r.held != nil {
		return
	}
	r.held = make(map[schema.Key]plan.Held, len(r.Held))
	for _, h := range r.Held {
		r.held[h.Key] = h
	}
}

func (r *reading) declared(h *schema.Header) declared {
	r.holding()
	d := declared{DeclaredIn: h.File, Labels: h.Labels, Suspended: h.Suspend}
	if r.Dates != nil {
		d.CreatedAt, d.UpdatedAt = r.Dates(h.File, h.Blob)
	}
	if was, ok := r.held[h.Key]; ok {
		d.Held = &held{was.Reason, r.visible(h.Key, was.Message)}
	}
	return d
}

// thing returns the status of a resource that is not a unit. The phase is initial
// before Berth has reconciled it.
func (r *reading) thing(key schema.Key, initial string) (phase string, f followed) {
	if s := r.Things[key]; s != nil {
		return cmp.Or(s.Phase, initial), followed{r.conditions(key, s.Conditions), s.Revision, s.CorrelationID}
	}
	return initial, followed{Conditions: []plan.Condition{}}
}

// conditions returns the conditions of a resource, with the messages that the caller may read.
func (r *reading) conditions(key schema.Key, cs []plan.Condition) []plan.Condition {
	out := append([]plan.Condition{}, cs...)
	for i := range out {
		out[i].Message = r.visible(key, out[i].Message)
	}
	return out
}

// visible returns a message about a resource if the caller may read it, else "". A
// message about a platform resource is for platform users only, because its cause may
// be in any tenant; a message that names another tenant's document is too.
func (r *reading) visible(key schema.Key, message string) string {
	owner := key.Tenant
	if key.Kind == schema.KindTenant {
		owner = key.Name
	}
	if !r.platform && (owner == "" || r.namesOther(owner, message)) {
		return ""
	}
	return message
}

// kinds finds a tenant's name in a message by a path, or by a kind and name; alone
// finds words that may be a tenant's name.
var (
	kinds = regexp.MustCompile(`\btenants/([-a-z0-9]+)|\bTenant ([-a-z0-9]+)|` +
		`\b(?:Project|Policy|Entitlement|RoleBinding|Instance|ArtifactSource|Artifact|ServiceAccount|SharedRuntime|Attachment|Contribution|MemberOperation) ([-a-z0-9]+)[./]`)
	alone = regexp.MustCompile(`(?:^|[^-a-z0-9./])([-a-z0-9]+)[./][a-z0-9]`)
)

// namesOther says whether a message names a document of a tenant other than owner.
func (r *reading) namesOther(owner, message string) bool {
	for _, m := range kinds.FindAllStringSubmatch(message, -1) {
		if cmp.Or(m[1], m[2], m[3]) != owner {
			return true
		}
	}
	for _, m := range alone.FindAllStringSubmatch(message, -1) {
		if m[1] != owner && r.Desired.Tenants[m[1]] != nil {
			return true
		}
	}
	return false
}

func object(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}

func (r *reading) projectEstate() *schema.ProjectEstate {
	return r.Desired.Tenants[r.tenant].Projects[r.project]
}

// The catalog.

func (r *reading) apps() *listing {
	return all(r.Desired.Platform.Apps, func(a *schema.App) any {
		return app{id(a.Head()), a.Key.Name, a.Spec.DisplayName, a.Spec.Category, a.Spec.Publisher, a.Spec.Description, a.Spec.Status, r.declared(a.Head())}
	})
}

// appID is the id of an app; its slug if the catalog no longer has it.
func (r *reading) appID(slug string) string {
	if a := r.Desired.Platform.Apps[slug]; a != nil {
		return id(a.Head())
	}
	return slug
}

func (r *reading) versions() *listing {
	slug := r.params["app_slug"]
	if r.Desired.Platform.Apps[slug] == nil {
		return nil
	}
	versions := r.Desired.Platform.Versions[slug]
	l := all(versions, func(v *schema.AppVersion) any {
		s := v.Spec
		return version{v.Key.Name, r.appID(slug), slug, s.Version, s.RuntimeBackend, s.Status, s.Manifest, r.declared(v.Head())}
	})
	l.filters = map[string]filter{"status": {
		[]string{string(schema.StatusActive), string(schema.StatusDeprecated), string(schema.StatusDisabled)},
		func(name, status string) bool { return string(versions[name].Spec.Status) == status },
	}}
	l.created = func(name string) time.Time { return r.createdAt(versions[name].Head()) }
	return l
}

// sources lists the platform's artifact sources and those of the caller's tenants
// (requirement B3).
func (r *reading) sources() *listing {
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
	return entitlement{id(e.Head()), e.Key.Tenant, e.Key.ProjectID(), r.appID(e.Key.Name), e.Key.Name, e.Spec.Enabled, e.Spec.PolicyOverrides, r.declared(e.Head())}
}

func (r *reading) entitlements() *listing { return all(r.projectEstate().Entitlements, r.entitlement) }

func (r *reading) oneEntitlement() any {
	e := r.projectEstate().Entitlements[r.params["app_slug"]]
	if e == nil {
		return nil
	}
	return r.entitlement(e)
}

// instances lists the instances in force, and those that are being deleted.
func (r *reading) instances() *listing {
	return r.instanceListing(r.instanceNames(), func(name string) (*reading, string) { return r, name })
}

func (r *reading) instanceNames() []string {
	names := map[string]bool{}
	for name := range r.projectEstate().Instances {
		names[name] = true
	}
	for key := range r.Units.Project(r.tenant, r.project) {
		names[key.Name] = true
	}
	return slices.Collect(maps.Keys(names))
}

// orgInstances lists the instances of a tenant's projects in sight, by project and name.
func (r *reading) orgInstances() *listing {
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
	return r.instanceListing(slices.Collect(maps.Keys(names)), func(name string) (*reading, string) {
		project, name, _ := strings.Cut(name, ".")
		return within[project], name
	})
}

// instanceListing lists instances, with filters by status and app and the order
// newest. of returns the reading and the instance name of an item of names.
func (r *reading) instanceListing(names []string, of func(string) (*reading, string)) *listing {
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
			return in.createdAt(d.Head())
		},
	}
}

// instanceStatuses lists the phases of instances.
func instanceStatuses() []string {
	var out []string
	for _, p := range []plan.Phase{plan.PhaseRequested, plan.PhaseDeploying, plan.PhaseRunning, plan.PhaseUpdating, plan.PhaseStopped, plan.PhaseFailed, plan.PhaseDeleting, plan.PhaseDeleted} {
		out = append(out, string(p))
	}
	return out
}

// createdAt is when a document was created; the zero time if unknown.
func (r *reading) createdAt(h *schema.Header) time.Time {
	if r.Dates == nil {
		return time.Time{}
	}
	created, _ := r.Dates(h.File, h.Blob)
	return created
}

func (r *reading) oneInstance() any {
	if name, ok := r.instanceName(); ok {
		return r.instance(name)
	}
	if r.Deleted != nil {
		if d, ok := r.Deleted(r.tenant, r.project, r.params["app_instance_id"]); ok {
			return r.deletedInstance(d)
		}
	}
	return nil
}

// deletedInstance is a deleted instance, from the event log.
func (r *reading) deletedInstance(d plan.DeletedInstance) instance {
	return instance{
		ID: d.ID, ResourceName: d.Key.ResourceName(), Name: d.Key.Name, OrgID: d.Key.Tenant, ProjectID: d.Key.ProjectID(),
		AppID: r.appID(d.App), AppSlug: d.App, OperatingMode: d.OperatingMode, ControlPlaneScope: d.ControlPlaneScope, RuntimeBackend: d.RuntimeBackend,
		DesiredState: "deleted", Status: plan.PhaseDeleted, RequestedBy: d.RequestedBy, DeletedAt: d.DeletedAt,
		Config: object(nil), RuntimeState: object(nil), followed: followed{[]plan.Condition{}, d.Revision, d.CorrelationID},
	}
}

// instanceName is the name of the instance that the path names.
func (r *reading) instanceName() (string, bool) {
	want := r.params["app_instance_id"]
	if d, ok := find(r.projectEstate().Instances, want); ok {
		return d.Key.Name, true
	}
	return want, r.Units.Get(schema.InstanceKey(r.tenant, r.project, want)) != nil
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
		ID: r.instanceID(name), ResourceName: key.ResourceName(), Name: name, OrgID: key.Tenant, ProjectID: key.ProjectID(),
		DesiredState: "deleted", Status: plan.PhaseRequested, Config: object(nil), RuntimeState: object(nil),
	}
	i.Conditions = []plan.Condition{}
	if s := r.Units.Get(key); s != nil {
		i.AppID, i.AppSlug, i.RuntimeBackend, i.OperatingMode, i.ControlPlaneScope = r.appID(s.App), s.App, s.RuntimeBackend, s.OperatingMode, s.ControlPlaneScope
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
	i.DeletionProtection, i.Roles, i.Config = s.DeletionProtection, s.Roles, object(s.Config)
	if s.SharedRuntime != "" {
		carrier := key.Tenant
		if s.ControlPlaneScope == "platform" {
			carrier = ""
		}
		i.SharedRuntimeID = r.sharedID(carrier, s.SharedRuntime)
	}
	if v := r.Desired.Version(s.App, s.Version); v != nil {
		i.RuntimeBackend = v.Spec.RuntimeBackend
	}
	if e := r.Effective.Instance(key); e != nil { // after policy and catalog (requirement B4)
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
		if key.Tenant == "" { // nodes of the platform are not shown to tenants
			one.Node, one.Region, one.SKU, one.PlacementReason = "", "", "", ""
		}
		if n := r.Effective.Nodes[m.Node]; n != nil {
			one.SourceProjectID = ownProject(n.Spec.Reserved, r.tenant)
		}
		out[m.Name] = one
	}
	return out
}

// ownProject is the tenant's project that a node is reserved for; "" for another
// tenant's, which the tenant may not know.
func ownProject(reserved, tenant string) string {
	if of, _, in := strings.Cut(reserved, "."); in && of == tenant {
		return reserved
	}
	return ""
}

func (r *reading) instanceMembers() (map[string]member, bool) {
	name, ok := r.instanceName()
	if !ok {
		return nil, false
	}
	key := schema.InstanceKey(r.tenant, r.project, name)
	return r.unitMembers(key, member{AppInstanceID: r.instanceID(name), OrgID: r.tenant, ProjectID: key.ProjectID()}), true
}

func (r *reading) members() *listing {
	ms, ok := r.instanceMembers()
	if !ok {
		return nil
	}
	return all(ms, func(m member) any { return m })
}

func (r *reading) oneMember() any {
	ms, _ := r.instanceMembers()
	if m, ok := ms[r.params["member_id"]]; ok {
		return m
	}
	return nil
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
	out.Status, out.followed = r.thing(o.Key, "requested")
	return out
}

// instanceOperations lists the operations on the instance that the path names.
func (r *reading) instanceOperations() map[string]*schema.MemberOperation {
	name, ok := r.instanceName()
	if !ok {
		return nil
	}
	out := map[string]*schema.MemberOperation{}
	for n, o := range r.projectEstate().Operations {
		if o.Spec.Instance == name {
			out[n] = o
		}
	}
	return out
}

func (r *reading) operations() *listing {
	ops := r.instanceOperations()
	if ops == nil {
		return nil
	}
	return all(ops, r.operation)
}

func (r *reading) oneOperation() any {
	return one(r.instanceOperations(), r.params["operation_id"], r.operation)
}

func (r *reading) artifact(a *schema.Artifact) any {
	s := a.Spec
	out := artifact{
		ID: id(a.Head()), OrgID: a.Key.Tenant, ProjectID: a.Key.ProjectID(), AppSlug: s.App, DisplayName: s.DisplayName,
		Source: s.Source, Reference: s.Reference, MediaType: s.MediaType, Digest: s.Digest, declared: r.declared(a.Head()),
	}
	out.Status, out.followed = r.thing(a.Key, cmp.Or(string(s.Status), "intent"))
	return out
}

func (r *reading) artifacts() *listing { return all(r.projectEstate().Artifacts, r.artifact) }

func (r *reading) oneArtifact() any {
	return one(r.projectEstate().Artifacts, r.params["artifact_id"], r.artifact)
}

// Shared runtimes of a tenant, and those of the platform that its projects are attached
// to. Of the latter, a tenant reads the status and its own projects' attachments.

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

// sharedID is the id of a shared runtime of a tenant; of the platform for tenant "".
func (r *reading) sharedID(tenant, name string) string {
	if s := r.Desired.SharedRuntime(tenant, name); s != nil && s.Runtime != nil {
		return id(s.Runtime.Head())
	}
	return name
}

func (r *reading) sharedRuntime(d *schema.SharedRuntime) any {
	s := d.Spec
	out := sharedRuntime{
		ID: id(d.Head()), ResourceName: d.Key.ResourceName(), Owner: "tenant", OrgID: d.Key.Tenant, AppSlug: s.App, AppVersion: s.Version,
		DisplayName: s.DisplayName, Environment: s.Environment, OperatingMode: s.OperatingMode, ControlPlaneScope: s.ControlPlaneScope,
		DesiredState: string(s.DesiredState), OperatorIdentityRef: s.OperatorIdentityRef, PlacementIntent: s.PlacementIntent,
		Roles: s.Roles, Config: object(s.Config), DeletionProtection: s.DeletionProtection, declared: r.declared(d.Head()),
	}
	if d.Key.Tenant == "" { // the platform's configuration is not shown to tenants
		out.Owner, out.OperatorIdentityRef, out.PlacementIntent, out.Config, out.Labels = "platform", "", nil, object(nil), nil
		if !r.platform {
			out.Roles = withoutSKUs(s.Roles)
		}
	}
	if v := r.Desired.Version(s.App, s.Version); v != nil {
		out.RuntimeBackend = v.Spec.RuntimeBackend
	}
	out.AttachedProjectIDs = r.attachedTo(r.Desired.SharedRuntime(d.Key.Tenant, d.Key.Name))
	out.Status, out.followed = r.thing(d.Key, string(plan.PhaseRequested))
	if u := r.Units.Get(d.Key); u != nil {
		out.Status, out.followed = string(u.Phase), followed{r.conditions(d.Key, u.Conditions), u.Revision, u.CorrelationID}
	}
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

func (r *reading) sharedRuntimes() *listing {
	docs := r.ownRuntimes()
	for name, d := range r.platformRuntimes() {
		docs["~"+name] = d // sorts after all names; no name begins like this
	}
	return all(docs, r.sharedRuntime)
}

func (r *reading) oneSharedRuntime() any {
	if s := r.shared(); s != nil {
		return r.sharedRuntime(s.Runtime)
	}
	return nil
}

func (r *reading) attachment(a *schema.Attachment) any {
	s := a.Spec
	out := attachment{
		ID: id(a.Head()), SharedRuntimeID: r.sharedID(a.Key.Tenant, a.Key.Parent), OrgID: a.Key.Tenant, ProjectID: s.ProjectID,
		ContributionPolicy: s.ContributionPolicy, SubmissionPolicy: s.SubmissionPolicy, PolicyMetadata: s.PolicyMetadata,
		BillingPolicyRef: s.BillingPolicyRef, declared: r.declared(a.Head()),
	}
	out.Status, out.followed = r.thing(a.Key, "requested")
	return out
}

func (r *reading) attachments() *listing {
	s := r.shared()
	if s == nil {
		return nil
	}
	return all(r.attachmentsOf(s), r.attachment)
}

func (r *reading) attachmentsOf(s *schema.SharedRuntimeEstate) map[string]*schema.Attachment {
	out := maps.Clone(s.Attachments)
	maps.DeleteFunc(out, func(_ string, a *schema.Attachment) bool { return !r.mine(a.Spec.ProjectID) })
	return out
}

func (r *reading) oneAttachment() any {
	s := r.shared()
	if s == nil {
		return nil
	}
	return one(r.attachmentsOf(s), r.params["attachment_id"], r.attachment)
}

// The workers of a shared runtime and the operations on them (requirement D5).

func (r *reading) workerMembers() (map[string]member, bool) {
	s := r.shared()
	if s == nil {
		return nil, false
	}
	return r.unitMembers(s.Runtime.Key, member{SharedRuntimeID: id(s.Runtime.Head()), OrgID: s.Runtime.Key.Tenant}), true
}

func (r *reading) workers() *listing {
	ms, ok := r.workerMembers()
	if !ok {
		return nil
	}
	return all(ms, func(m member) any { return m })
}

func (r *reading) oneWorker() any {
	ms, _ := r.workerMembers()
	if m, ok := ms[r.params["worker_id"]]; ok {
		return m
	}
	return nil
}

func (r *reading) workerOperations() *listing {
	s := r.shared()
	if s == nil {
		return nil
	}
	return all(workerOperationsOf(s), r.operation)
}

func (r *reading) oneWorkerOperation() any {
	s := r.shared()
	if s == nil {
		return nil
	}
	return one(workerOperationsOf(s), r.params["operation_id"], r.operation)
}

// workerOperationsOf lists the operations on a shared runtime; none of a platform
// runtime, which tenants may not read.
func workerOperationsOf(s *schema.SharedRuntimeEstate) map[string]*schema.MemberOperation {
	if s.Runtime.Key.Tenant == "" {
		return nil
	}
	return s.Operations
}
