package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"berth/schema"
)

// Option changes how instances are judged.
type Option func(*options)

type options struct{ existing func(schema.Key) bool }

// Existing tells which instances exist already. A disabled app or version
// forbids new ones only, and a maximum of instances refuses the new ones first.
// Without it every instance counts as new.
func Existing(is func(schema.Key) bool) Option {
	return func(o *options) { o.existing = is }
}

// Evaluate judges everything that is declared. An instance that is refused is
// in the result too, with the Decisions that refuse it (Effective.Denied): it
// is not to be planned, and not to be taken for gone either.
func Evaluate(d *schema.Desired, opts ...Option) *schema.Effective {
	var parts []*schema.Effective
	for _, name := range slices.Sorted(maps.Keys(d.Tenants)) {
		parts = append(parts, EvaluateTenant(d.Platform, d.Tenants[name], opts...))
	}
	return Join(d.Platform, parts...)
}

// Join puts tenants that were judged one by one together.
func Join(p *schema.Platform, tenants ...*schema.Effective) *schema.Effective {
	e := &schema.Effective{Instances: map[schema.Key]*schema.EffectiveInstance{}, Nodes: p.Nodes}
	for _, t := range tenants {
		maps.Copy(e.Instances, t.Instances)
		e.Decisions = append(e.Decisions, t.Decisions...)
	}
	sortDecisions(e.Decisions)
	return e
}

func sortDecisions(ds []schema.Decision) {
	slices.SortStableFunc(ds, func(a, b schema.Decision) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.Source.File, b.Source.File), cmp.Compare(a.Message, b.Message))
	})
}

// EvaluateTenant judges one tenant; it depends on nothing but the platform and
// the tenant, so equal pointers give equal results. Nodes is left nil.
func EvaluateTenant(p *schema.Platform, t *schema.TenantEstate, opts ...Option) *schema.Effective {
	o := options{existing: func(schema.Key) bool { return false }}
	for _, opt := range opts {
		opt(&o)
	}
	e := &schema.Effective{Instances: map[schema.Key]*schema.EffectiveInstance{}}
	above := tenantLayers(platformLayers(p), t)
	for _, name := range slices.Sorted(maps.Keys(t.Projects)) {
		project := t.Projects[name]
		who := users(t, project)
		counts := newCounts(o)
		for _, i := range counts.order(project.Instances) {
			ent := project.Entitlements[i.Spec.App]
			app, version := p.Apps[i.Spec.App], p.Versions[i.Spec.App][i.Spec.Version]
			if ent == nil || app == nil || version == nil {
				continue // the reader lets none of these through
			}
			j := &judgement{instance: i, key: i.Key, new: !o.existing(i.Key), layers: entitlementLayers(above, ent)}
			j.catalog(app, version, ent)
			j.modes()
			e.Instances[i.Key] = j.effective(version, who)
			j.counted(counts, len(above), ent)
			e.Decisions = append(e.Decisions, j.decisions...)
		}
	}
	sortDecisions(e.Decisions)
	return e
}

// judgement is the judging of one instance.
type judgement struct {
	instance  *schema.Instance
	key       schema.Key
	new       bool
	layers    []layer
	decisions []schema.Decision
}

func (j *judgement) say(v schema.Verdict, rule string, source schema.Position, field, before, after, format string, args ...any) {
	j.decisions = append(j.decisions, schema.Decision{
		Key: j.key, Field: field, Verdict: v, Rule: rule, Source: source, At: j.instance.At(field),
		Before: before, After: after, Message: fmt.Sprintf(format, args...),
	})
}

// catalog judges by the status of app and version, hard denies and the entitlement.
func (j *judgement) catalog(app *schema.App, version *schema.AppVersion, ent *schema.Entitlement) {
	j.status("spec.app", app.Spec.Status, &app.Header)
	j.status("spec.version", version.Spec.Status, &version.Header)
	if !ent.Spec.Enabled {
		j.say(schema.Deny, "entitlement", ent.At("spec.enabled"), "spec.app", "", "", "the project's entitlement to %s is not enabled", app.Key.Name)
	}
	for _, l := range j.layers {
		if slices.Contains(l.deny, app.Key.Name) {
			j.say(schema.Deny, "hard_deny", l.at("hard_deny.apps"), "spec.app", "", "", "the platform denies the app %s", app.Key.Name)
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

// modes judges the values that must be in each layer's list.
func (j *judgement) modes() {
	spec := &j.instance.Spec
	j.listed("operating_mode", spec.OperatingMode, "allowed_operating_modes", func(o schema.Overlay) []string { return o.AllowedOperatingModes })
	j.listed("control_plane_scope", spec.ControlPlaneScope, "allowed_control_plane_scopes", func(o schema.Overlay) []string { return o.AllowedControlPlaneScopes })
}

func (j *judgement) listed(field, value, rule string, list func(schema.Overlay) []string) bool {
	for _, l := range j.layers {
		if allowed := list(l.Overlay); allowed != nil && !slices.Contains(allowed, value) {
			j.say(schema.Deny, rule, l.at(rule), "spec."+field, value, "", "%s is not allowed, %s", value, only(allowed))
			return false
		}
	}
	return true
}

func only(allowed []string) string {
	if len(allowed) == 0 {
		return "nothing is"
	}
	return "only " + strings.Join(slices.Sorted(slices.Values(allowed)), ", ")
}

// effective is the instance with policy applied.
func (j *judgement) effective(version *schema.AppVersion, who []schema.UnixUser) *schema.EffectiveInstance {
	i := j.instance
	return &schema.EffectiveInstance{
		Key: i.Key, UID: i.UID, Suspend: i.Suspend || i.Spec.SharedRuntime != "", DisplayName: i.Spec.DisplayName,
		App: i.Spec.App, Version: i.Spec.Version, RuntimeBackend: version.Spec.RuntimeBackend,
		OperatingMode: i.Spec.OperatingMode, ControlPlaneScope: i.Spec.ControlPlaneScope, TenantBoundaryMode: i.Spec.TenantBoundaryMode,
		DesiredState: i.Spec.DesiredState, Regions: j.regions(), Roles: j.roles(version.Spec.Manifest.Roles),
		Config: overlayConfig(version.Spec.Manifest.Parameters, i.Spec.Config), Users: who, OnJobs: i.Spec.OnJobs, SharedRuntime: i.Spec.SharedRuntime,
	}
}

func (j *judgement) regions() []string {
	const rule = "allowed_regions"
	want := j.instance.Spec.Regions
	if len(want) == 0 {
		want = nil
	}
	left, by := allow(want, j.layers, func(o schema.Overlay) []string { return o.AllowedRegions })
	switch {
	case left != nil && len(left) == 0:
		j.say(schema.Deny, rule, by[len(by)-1].at(rule), "spec.regions", strings.Join(want, ", "), "", "no region is left that every policy allows")
	case want != nil && len(left) < len(want):
		for _, l := range by {
			j.say(schema.Narrow, rule, l.at(rule), "spec.regions", strings.Join(want, ", "), strings.Join(left, ", "), "only %s", strings.Join(left, ", "))
		}
	}
	return left
}

func (j *judgement) roles(manifest map[string]schema.ManifestRole) []schema.EffectiveRole {
	var roles []schema.EffectiveRole
	gpus := 0
	for _, name := range slices.Sorted(maps.Keys(manifest)) {
		m := manifest[name]
		want, given := j.instance.Spec.Roles[name]
		if !given {
			want.Count = m.Min
		}
		if want.GPUs != nil {
			gpus += want.Count * want.GPUs.Count
		}
		roles = append(roles, schema.EffectiveRole{
			Name: name, NodeRole: m.NodeRole, ControlPlane: m.ControlPlane, Shareable: m.Shareable,
			Count: want.Count, SKUs: j.skus("spec.roles."+name+".sku", want.SKU), GPUs: want.GPUs, CPUs: want.CPUs, MemoryMiB: want.MemoryMiB,
		})
	}
	slices.SortStableFunc(roles, func(a, b schema.EffectiveRole) int {
		switch {
		case a.ControlPlane == b.ControlPlane:
			return 0
		case a.ControlPlane:
			return -1
		}
		return 1
	})
	const rule = "max_gpus_per_instance"
	if most, by, ok := least(j.layers, func(o schema.Overlay) *int { return o.MaxGPUsPerInstance }); ok && gpus > most {
		j.say(schema.Deny, rule, by.at(rule), "spec.roles", strconv.Itoa(gpus), strconv.Itoa(most), "asks for %d GPUs, at most %d are allowed", gpus, most)
	}
	return roles
}

func (j *judgement) skus(field, want string) []string {
	const rule = "allowed_skus"
	list := func(o schema.Overlay) []string { return o.AllowedSKUs }
	if want != "" {
		j.listed(strings.TrimPrefix(field, "spec."), want, rule, list)
		return []string{want}
	}
	left, by := allow(nil, j.layers, list)
	if left != nil && len(left) == 0 {
		j.say(schema.Deny, rule, by[len(by)-1].at(rule), field, "", "", "no SKU is left that every policy allows")
	}
	return left
}

// counts are the instances of a project counted so far.
type counts struct {
	options
	all   int
	byApp map[string]int
}

func newCounts(o options) *counts { return &counts{options: o, byApp: map[string]int{}} }

// order is the order instances are counted in: those that exist, then by name.
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

// counted judges by the number of instances: all of the project's for the
// layers above, those of the app for the entitlement's. What is refused
// otherwise is not counted.
func (j *judgement) counted(c *counts, above int, ent *schema.Entitlement) {
	if j.denied() {
		return
	}
	c.all++
	app := ent.Key.Name
	c.byApp[app]++
	const rule = "max_instances_per_project"
	limit := func(o schema.Overlay) *int { return o.MaxInstancesPerProject }
	if most, by, ok := least(j.layers[:above], limit); ok && c.all > most {
		j.say(schema.Deny, rule, by.at(rule), "metadata.name", strconv.Itoa(c.all), strconv.Itoa(most), "would be instance %d of the project, at most %d are allowed", c.all, most)
	}
	if most, by, ok := least(j.layers[above:], limit); ok && c.byApp[app] > most {
		j.say(schema.Deny, rule, by.at(rule), "metadata.name", strconv.Itoa(c.byApp[app]), strconv.Itoa(most), "would be instance %d of %s in the project, at most %d are allowed", c.byApp[app], app, most)
	}
}

func (j *judgement) denied() bool {
	return slices.ContainsFunc(j.decisions, func(d schema.Decision) bool { return d.Verdict == schema.Deny })
}
