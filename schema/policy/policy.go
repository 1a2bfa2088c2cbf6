package policy

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"berth/schema"
)

// Option changes how instances are evaluated.
type Option func(*options)

type options struct {
	existing func(schema.Key) bool
	grown    func(schema.Key) bool     // units that exist and ask for more than before
	over     map[schema.Key][]exceeded // units that exceed quotas of the tenant
	today    string
	outside  *schema.Noncompliance
}

// Existing reports which instances exist already. A disabled app or version denies
// new instances only, and a maximum of instances denies the new ones first. Without
// this option every instance counts as new.
func Existing(is func(schema.Key) bool) Option {
	return func(o *options) { o.existing = is }
}

// At sets the day, "2006-01-02" in UTC. An existing instance that is denied and
// whose grace period is over is then stopped instead of left running. Without this
// option no grace period is over. The denials are the same on every day, so a caller
// that decides by Findings which documents come into force needs no day.
func At(day string) Option {
	return func(o *options) { o.today = day }
}

// Outside sets the noncompliance of an explained instance whose members are on nodes
// that policy does not allow. Policy itself does not see nodes. nil: no such
// members.
func Outside(n *schema.Noncompliance) Option {
	return func(o *options) { o.outside = n }
}

// with returns the options for a project some of whose units exceed quotas of the tenant.
func (o options) with(over map[schema.Key][]exceeded) options {
	o.over = over
	return o
}

func with(opts []Option) options {
	never := func(schema.Key) bool { return false }
	o := options{existing: never, grown: never}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// Evaluate applies policy to the whole estate. A denied instance is in the result
// too, with the Decisions that deny it (Effective.Denied): it is not planned, and it
// is not deleted either.
func Evaluate(d *schema.Desired, opts ...Option) *schema.Effective {
	r, o := newRules(d.Platform), with(opts)
	tenants := make(map[string]*schema.EffectiveTenant, len(d.Tenants))
	for name, t := range d.Tenants {
		tenants[name] = r.tenant(t, o)
	}
	tenants[""] = ofPlatform(r.platform(d, o))
	return &schema.Effective{Tenants: tenants, Nodes: placeable(d.Platform, nil)}
}

// ofPlatform is the tenant "" with the platform's own documents.
func ofPlatform(own *schema.EffectiveProject) *schema.EffectiveTenant {
	return &schema.EffectiveTenant{Projects: map[string]*schema.EffectiveProject{"": own}}
}

func sortDecisions(ds []schema.Decision) {
	slices.SortStableFunc(ds, func(a, b schema.Decision) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.Source.File, b.Source.File), cmp.Compare(a.Message, b.Message))
	})
}

// EvaluateTenant evaluates one tenant. The result depends only on the platform and the
// tenant.
func EvaluateTenant(p *schema.Platform, t *schema.TenantEstate, opts ...Option) *schema.EffectiveTenant {
	return newRules(p).tenant(t, with(opts))
}

// rules is the part of a platform that affects every tenant.
type rules struct {
	catalog  *schema.Platform // with its apps, versions, admissions and sources alone
	policies map[string]*schema.Policy
	sites    map[string][]string // regions by site
	layers   []layer
	configs  configs
	about    []schema.Decision // about the sources
}

func newRules(p *schema.Platform) *rules {
	catalog := &schema.Platform{Apps: p.Apps, Versions: p.Versions, Admissions: p.Admissions, ArtifactSources: p.ArtifactSources}
	return &rules{catalog: catalog, policies: p.Policies, sites: regionsBySite(p),
		layers: platformLayers(p), configs: newConfigs(p.Versions), about: evaluatePlatform(p)}
}

// platform evaluates the platform's own documents. Its shared runtimes serve projects of any
// tenant.
func (r *rules) platform(d *schema.Desired, o options) *schema.EffectiveProject {
	return r.runtimes(sharedBy{runtimes: d.Platform.SharedRuntimes, tenants: d.Tenants}, r.layers, o, r.about)
}

// own evaluates a tenant's own documents, without its projects.
func (r *rules) own(t *schema.TenantEstate, above []layer, o options) *schema.EffectiveProject {
	by := sharedBy{owner: t, runtimes: t.SharedRuntimes, tenants: map[string]*schema.TenantEstate{t.Name: t}}
	return r.runtimes(by, above, o, tenantSources(r.catalog, t, above))
}

func (r *rules) tenant(t *schema.TenantEstate, o options) *schema.EffectiveTenant {
	above := tenantLayers(r.layers, t, r.sites)
	e := &schema.EffectiveTenant{Projects: r.parts(t, above, o)}
	for name, over := range o.ofTenant(above, e.Projects) {
		e.Projects[name] = r.part(t, name, above, o.with(over))
	}
	return e
}

// parts evaluates the projects and the own documents of a tenant without its quotas.
func (r *rules) parts(t *schema.TenantEstate, above []layer, o options) map[string]*schema.EffectiveProject {
	out := make(map[string]*schema.EffectiveProject, len(t.Projects)+1)
	for name := range withOwn(t) {
		out[name] = r.part(t, name, above, o)
	}
	return out
}

// withOwn returns the projects of a tenant, and "" for its own documents.
func withOwn(t *schema.TenantEstate) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield("") {
			return
		}
		for name := range t.Projects {
			if !yield(name) {
				return
			}
		}
	}
}

// part evaluates a project, or with "" the tenant's own documents.
func (r *rules) part(t *schema.TenantEstate, project string, above []layer, o options) *schema.EffectiveProject {
	if project == "" {
		return r.own(t, above, o)
	}
	return r.effective(t, t.Projects[project], above, o)
}

// effective evaluates a project.
func (r *rules) effective(t *schema.TenantEstate, project *schema.ProjectEstate, above []layer, o options) *schema.EffectiveProject {
	e := collect(r.project(t, project, above, o), append(r.artifacts(t, project, above), r.entitlements(t, project)...))
	e.Operations = operations(project.Operations, func(o *schema.MemberOperation) string { return o.Spec.Instance })
	return e
}

// operations returns those that are not suspended by their unit, in the order of their names.
func operations(all map[string]*schema.MemberOperation, unit func(*schema.MemberOperation) string) map[string][]*schema.MemberOperation {
	out := map[string][]*schema.MemberOperation{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if o := all[name]; !o.Suspend {
			out[unit(o)] = append(out[unit(o)], o)
		}
	}
	return out
}

// collect returns the results of units, with other decisions beside them.
func collect(all []*judgement, others []schema.Decision) *schema.EffectiveProject {
	e := &schema.EffectiveProject{Units: make(map[string]*schema.EffectiveUnit, len(all)), Bounds: make(map[string]*schema.Bounds),
		Decisions: slices.Clone(others)}
	for _, j := range all {
		e.Units[j.key.Name] = j.result
		e.Decisions = append(e.Decisions, j.decisions...)
		if j.noncompliance != nil {
			e.Noncompliant = append(e.Noncompliant, *j.noncompliance)
		}
		if j.bounds != nil {
			e.Bounds[j.key.Name] = j.bounds
		}
	}
	sortDecisions(e.Decisions)
	sortNoncompliant(e.Noncompliant)
	return e
}

// project evaluates the instances of a project in the order of counting.
func (r *rules) project(t *schema.TenantEstate, project *schema.ProjectEstate, above []layer, o options) []*judgement {
	who, suspended, counts := users(t, project), suspending(t, project), newCounts(o)
	under := map[*schema.Entitlement]layers{}
	all := make([]*judgement, 0, len(project.Instances))
	for _, i := range counts.order(project.Instances) {
		ent := project.Entitlements[i.Spec.App]
		app, version := r.catalog.AppFor(t, i.Spec.App), r.catalog.VersionsFor(t, i.Spec.App)[i.Spec.Version]
		if ent == nil || app == nil || version == nil {
			continue // the reader refuses these
		}
		if _, known := under[ent]; !known {
			over := admissionLayers(r.catalog, t, i.Spec.App, above)
			under[ent] = newLayers(over, entitlementLayers(over, ent))
		}
		j := &judgement{layers: under[ent], subject: subject{
			instance: i, key: i.Key, app: app, version: version, ent: ent, source: sourcesFor(r.catalog, t, app),
			admission: r.catalog.Admissions[t.Name][i.Spec.App],
			new:       !o.existing(i.Key), suspended: suspended, regionsField: "spec.regions",
		}}
		j.catalog()
		j.admitted()
		j.modes()
		j.artifacts()
		j.effective(who, r.configs)
		j.nth, j.nthOfApp = counts.count(j)
		j.counted()
		all = append(all, j)
	}
	o.ofProject(above, all)
	for _, j := range all {
		j.becomes(o.today)
		j.bound(o.today)
	}
	return all
}

// subject is an instance, or a shared runtime in that form, with the documents on which
// it depends.
type subject struct {
	instance  *schema.Instance
	key       schema.Key
	app       *schema.App
	version   *schema.AppVersion
	ent       *schema.Entitlement // nil for a shared runtime
	source    func(name string) *schema.ArtifactSource
	admission *schema.AppAdmission // of a tenant's own app; nil: none
	new       bool
	suspended []*schema.Header // documents of tenant and project with suspend: true

	regionsField string // of the document
}

// layers are the policies that limit a subject.
type layers struct {
	above  []layer // of the platform and the tenant
	all    []layer // down to the entitlement
	limits *schema.Limits
}

func newLayers(above, all []layer) layers { return layers{above, all, limits(all)} }

// judgement is the evaluation of one subject.
type judgement struct {
	subject
	layers
	result        *schema.EffectiveUnit
	gpus          int // requested number
	nth, nthOfApp int // its numbers in the count
	decisions     []schema.Decision
	noncompliance *schema.Noncompliance
	bounds        *schema.Bounds
}

func (j *judgement) say(v schema.Verdict, rule string, source schema.Position, field, before, after, format string, args ...any) {
	j.decisions = append(j.decisions, schema.Decision{
		Key: j.key, Field: field, Verdict: v, Rule: rule, Source: source, At: j.instance.At(field),
		Before: before, After: after, Message: fmt.Sprintf(format, args...),
	})
}

// catalog checks the status of app and version, hard denies and the entitlement.
func (j *judgement) catalog() {
	j.status("spec.app", j.app.Spec.Status, &j.app.Header)
	j.status("spec.version", j.version.Spec.Status, &j.version.Header)
	if j.ent != nil && !j.ent.Spec.Enabled {
		j.say(schema.Deny, "entitlement", j.ent.At("spec.enabled"), "spec.app", "", "", "the project's entitlement to %s is not enabled",
			j.app.Key.Name)
	}
	for _, l := range j.all {
		if slices.Contains(l.deny, j.app.Key.Name) {
			j.say(schema.Deny, "hard_deny", l.at("hard_deny.apps"), "spec.app", "", "", "%s denies the app %s", l.whose(), j.app.Key.Name)
		}
	}
}

func (j *judgement) status(field string, status schema.CatalogStatus, h *schema.Header) {
	switch {
	case status == schema.StatusDisabled && j.new:
		j.say(schema.Deny, "status", h.At("spec.status"), field, "", "", "%s is disabled: no new instances", h.Key)
	case status == schema.StatusDisabled:
		j.say(schema.Allow, "status", h.At("spec.status"), field, "", "", "%s is disabled; this instance exists and goes on", h.Key)
	case status == schema.StatusDeprecated:
		j.say(schema.Allow, "status", h.At("spec.status"), field, "", "", "%s is deprecated: plan to move away from it", h.Key)
	}
}

// modes checks the values that the app must support, and that must be in the list of each
// layer (requirement B5).
func (j *judgement) modes() {
	spec, supports := &j.instance.Spec, j.app.Spec.Supports
	j.supported("spec.operating_mode", spec.OperatingMode, "operating_modes", supports.Modes())
	j.supported("spec.control_plane_scope", spec.ControlPlaneScope, "control_plane_scopes", supports.Scopes())
	j.listed("spec.operating_mode", spec.OperatingMode, allowedModes())
	j.listed("spec.control_plane_scope", spec.ControlPlaneScope, allowedScopes())
}

// supported denies a value that the app does not support. key is its list in the App.
func (j *judgement) supported(field, value, key string, supports []string) {
	if slices.Contains(supports, value) {
		return
	}
	j.say(schema.Deny, ruleAppSupports, j.app.At(supportsPath+key), field, value, "",
		"the app %s supports %s only, not %s: choose one that it supports, or ask a user with %s to add %s to supports.%s of the app",
		j.app.Key.Name, strings.Join(supports, ", "), value, catalogPermission(j.app), value, key)
}

// catalogPermission returns the permission to change an app, as in package authority.
func catalogPermission(app *schema.App) string {
	if app.Key.Tenant != "" {
		return "apps.catalog.propose"
	}
	return "apps.catalog.write"
}

// ruleAppSupports is the rule of a unit in a mode or scope that its app does not support.
const ruleAppSupports = "app_supports"

// supportsPath comes before the lists of an App in which units are judged.
const supportsPath = "spec.supports."

func (j *judgement) listed(field, value string, k list) {
	if l, _, refused := k.refuses(value, j.all); refused {
		j.say(schema.Deny, k.key, l.at(k.key), field, value, "", "%s is not allowed, %s", value, only(k.of(l.Overlay)))
	}
}

// suspending returns the documents of the tenant and of the project with suspend:
// true, which suspends every instance below.
func suspending(t *schema.TenantEstate, project *schema.ProjectEstate) []*schema.Header {
	var all []*schema.Header
	if suspended(t) {
		all = append(all, &t.Tenant.Header)
	}
	if project.Project != nil && project.Project.Suspend {
		all = append(all, &project.Project.Header)
	}
	return all
}

// suspension returns all documents that suspend the instance, from wide to narrow.
func (j *judgement) suspension() []*schema.Header {
	all := slices.Clone(j.suspended)
	if j.ent != nil && j.ent.Suspend {
		all = append(all, &j.ent.Header)
	}
	if j.instance.Suspend {
		all = append(all, &j.instance.Header)
	}
	return all
}

func (j *judgement) suspendedBy() schema.Key {
	for _, h := range j.suspension() {
		return h.Key
	}
	return schema.Key{}
}

// effective applies policy to the instance. One that uses a shared runtime has no members.
func (j *judgement) effective(who []schema.UnixUser, configs configs) {
	i, version, by := j.instance, j.version, j.suspendedBy()
	j.result = &schema.EffectiveUnit{
		Key: i.Key, UID: i.UID, Suspend: !by.IsZero(), SuspendedBy: by, DisplayName: i.Spec.DisplayName,
		AppSelection: schema.AppSelection{App: i.Spec.App, Version: i.Spec.Version, SoftwareVersion: version.Spec.Version,
			RuntimeBackend: version.Spec.RuntimeBackend, OperatingMode: i.Spec.OperatingMode, ControlPlaneScope: i.Spec.ControlPlaneScope,
			TenantBoundaryMode: i.Spec.TenantBoundaryMode},
		DesiredState: i.Spec.DesiredState, Regions: j.regions(j.regionsField), Roles: j.roles(),
		Config: configs.under(version, i.Spec.Config), Users: who, OnJobs: i.Spec.OnJobs, SharedRuntime: i.Spec.SharedRuntime,
		Operator: operator(i),
	}
	if i.Spec.SharedRuntime != "" {
		j.result.Roles = nil
	}
}

// operator returns the service account that operates a unit: one of its project or, for a shared
// runtime, of its tenant. A project's account never operates a shared runtime (requirement D3).
func operator(i *schema.Instance) string {
	name := i.Spec.OperatorServiceAccount
	switch {
	case i.Key.Tenant == "":
		return schema.OperatorPlatform
	case name == "":
		return ""
	case i.Key.Project != "":
		return i.Key.ProjectID() + "/" + name
	}
	return i.Key.Tenant + "/" + name
}

// wantedRegions returns the requested regions; nil: any.
func wantedRegions(i *schema.Instance) []string {
	if len(i.Spec.Regions) == 0 {
		return nil
	}
	return i.Spec.Regions
}

func (j *judgement) regions(field string) []string {
	return j.some(field, wantedRegions(j.instance), allowedRegions())
}

// some returns the values of a list, nil for any, that every layer allows.
func (j *judgement) some(field string, want []string, k list) []string {
	left, by := k.allow(want, j.all)
	switch {
	case left != nil && len(left) == 0:
		message := "no " + k.one + " is left that every policy allows"
		if allowed, _ := k.allow(nil, j.all); len(allowed) > 0 {
			message = "policy does not allow " + strings.Join(want, ", ") + ", " + only(allowed)
		}
		j.say(schema.Deny, k.key, by[len(by)-1].at(k.key), field, strings.Join(want, ", "), "", "%s", message)
	case want != nil && len(left) < len(want):
		for _, l := range by {
			j.say(schema.Narrow, k.key, l.at(k.key), field, strings.Join(want, ", "), strings.Join(left, ", "), "only %s",
				strings.Join(left, ", "))
		}
	}
	return left
}

func (j *judgement) roles() []schema.EffectiveRole {
	var roles []schema.EffectiveRole
	manifest := j.version.Spec.Manifest.Roles
	for name, m := range schema.Sorted(manifest) {
		want, given := j.instance.Spec.Roles[name]
		if !given {
			want.Count = m.Min
		}
		if want.GPUs != nil {
			j.gpus += want.Count * want.GPUs.Count
		}
		roles = append(roles, schema.EffectiveRole{
			Name: name, NodeRole: m.NodeRole, ControlPlane: m.ControlPlane, Shareable: m.Shareable,
			Count: want.Count, SKUs: j.skus("spec.roles."+name+".sku", want.SKU), GPUs: want.GPUs, CPUs: want.CPUs,
			MemoryMiB: want.MemoryMiB, DiskGiB: want.DiskGiB, NodeLabels: want.NodeLabels,
			MaxUnavailable: want.MaxUnavailable, OnNodeLost: want.OnNodeLost, MissingGraceSeconds: want.MissingGraceSeconds,
			NoGPUs: want.GPUs == nil && j.limits != nil && j.limits.GPUs != nil,
		})
	}
	rank := func(r schema.EffectiveRole) int {
		if r.ControlPlane {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(roles, func(a, b schema.EffectiveRole) int { return cmp.Compare(rank(a), rank(b)) })
	k := maxGPUs()
	if most, by, ok := k.least(j.all); ok && j.gpus > most {
		j.say(schema.Deny, k.key, by.at(k.key), "spec.roles", strconv.Itoa(j.gpus), strconv.Itoa(most),
			"asks for %d GPUs, at most %d are allowed", j.gpus, most)
	}
	return roles
}

func (j *judgement) skus(field, want string) []string {
	k := allowedSKUs()
	if want != "" {
		j.listed(field, want, k)
		return []string{want}
	}
	return j.some(field, nil, k)
}

// counts counts the instances of a project.
type counts struct {
	options
	all   int
	byApp map[string]int
}

func newCounts(o options) *counts { return &counts{options: o, byApp: map[string]int{}} }

// order returns the order of counting: existing instances first, then by name. It
// ignores whether an instance runs. Otherwise a user with permission to start and stop
// one could choose the instance that exceeds the maximum.
func (c *counts) order(all map[string]*schema.Instance) []*schema.Instance {
	list := slices.Collect(maps.Values(all))
	rank := func(i *schema.Instance) int {
		if c.existing(i.Key) {
			return 0
		}
		return 1
	}
	slices.SortFunc(list, func(a, b *schema.Instance) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	return list
}

// count counts an instance, and returns its number in the project and among those of
// its app. An existing instance counts even if it is denied; a new one that is
// denied does not.
func (c *counts) count(j *judgement) (nth, nthOfApp int) {
	if j.new && j.denied() {
		return 0, 0
	}
	app := j.app.Key.Name
	c.all++
	c.byApp[app]++
	return c.all, c.byApp[app]
}

// counted compares the instances of the project with the layers above, and those of the
// app with the entitlement.
func (j *judgement) counted() {
	if j.denied() {
		return
	}
	app := j.app.Key.Name
	k := maxInstances()
	if most, by, ok := k.least(j.above); ok && j.nth > most {
		j.say(schema.Deny, k.key, by.at(k.key), "metadata.name", strconv.Itoa(j.nth), strconv.Itoa(most),
			"would be instance %d of the project, at most %d are allowed", j.nth, most)
	}
	if most, by, ok := k.least(j.all[len(j.above):]); ok && j.nthOfApp > most {
		j.say(schema.Deny, k.key, by.at(k.key), "metadata.name", strconv.Itoa(j.nthOfApp), strconv.Itoa(most),
			"would be instance %d of %s in the project, at most %d are allowed", j.nthOfApp, app, most)
	}
}
