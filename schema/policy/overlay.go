package policy

import (
	"slices"
	"strconv"
	"strings"

	"berth/schema"
)

// Scope is the kind of document of a layer.
type Scope string

// The scopes: the layers of policy from wide to narrow, and the documents whose values
// they limit. Default marks a value that the reader filled in.
const (
	ScopePlatform    Scope = "platform"
	ScopeTenant      Scope = "tenant"
	ScopeProject     Scope = "project"
	ScopeAdmission   Scope = "admission"
	ScopeEntitlement Scope = "entitlement"
	ScopeApp         Scope = "app"
	ScopeVersion     Scope = "version"
	ScopeInstance    Scope = "instance"
	// ScopeAttachment is an Attachment to a shared runtime.
	ScopeAttachment Scope = "attachment"
	// ScopeSharedRuntime is a shared runtime's document.
	ScopeSharedRuntime Scope = "shared_runtime"

	ScopeDefault Scope = "default"
)

// layer is one overlay, with its document.
type layer struct {
	schema.Overlay
	schema.Quotas
	scope        Scope
	header       *schema.Header
	prefix       string // path of the overlay's fields in its document
	deny         []string
	noncompliant schema.Noncompliant
	sites        []siteRegions // of a layer that allows sites, by their regions; nil: it is another one
}

// siteRegions is an allowed site.
type siteRegions struct {
	name    string
	regions []string
}

// regionsBySite returns the regions of each site.
func regionsBySite(p *schema.Platform) map[string][]string {
	out := map[string][]string{}
	for name, s := range p.Sites() {
		out[name] = s.Spec.Regions
	}
	return out
}

// ofPolicy returns the layers of a policy. A site is a name for its regions: allowed_sites is a layer of its own that allows
// the regions of these sites.
func ofPolicy(d *schema.Policy, scope Scope, sites map[string][]string) []layer {
	l := layer{Overlay: d.Spec.Overlay, Quotas: d.Spec.Quotas, scope: scope, header: &d.Header, prefix: "spec",
		deny: d.Spec.HardDeny.Apps, noncompliant: d.Spec.Noncompliant}
	if d.Spec.AllowedSites == nil {
		return []layer{l}
	}
	allowed := layer{Overlay: schema.Overlay{AllowedRegions: []string{}}, scope: scope, header: &d.Header, prefix: "spec",
		sites: []siteRegions{}}
	for _, name := range d.Spec.AllowedSites {
		allowed.AllowedRegions = append(allowed.AllowedRegions, sites[name]...)
		allowed.sites = append(allowed.sites, siteRegions{name, sites[name]})
	}
	return []layer{l, allowed}
}

// named returns the key of a list in the document of the layer.
func (l layer) named(key string) string {
	if l.sites != nil && key == allowedRegions().key {
		return "allowed_sites"
	}
	return key
}

func (l layer) at(field string) schema.Position {
	if l.header == nil {
		return schema.Position{File: "platform/artifact-sources"} // the directory: no document says it
	}
	return l.header.At(l.prefix + "." + l.named(field))
}

// whose names the owner of the layer.
func (l layer) whose() string { return "the " + string(l.scope) }

// platformLayers returns the platform's policies by name. A suspended policy still
// counts: suspend stops Berth's actions, not limits.
func platformLayers(p *schema.Platform) []layer {
	var ls []layer
	sites := regionsBySite(p)
	for _, d := range schema.Sorted(p.Policies) {
		ls = append(ls, ofPolicy(d, ScopePlatform, sites)...)
	}
	if slices.ContainsFunc(ls, func(l layer) bool { return l.ArtifactSourceAllowlist != nil }) {
		return ls
	}
	return append([]layer{ownSources(p)}, ls...)
}

// ownSources returns the widest layer if no policy of the platform lists source hosts.
// It allows only the hosts of the platform's own sources. Otherwise a tenant's list
// would allow any host.
func ownSources(p *schema.Platform) layer {
	l := layer{Overlay: schema.Overlay{ArtifactSourceAllowlist: []string{}}, scope: ScopePlatform,
		prefix: "spec.host"}
	for _, s := range schema.Sorted(p.ArtifactSources) {
		if s.Spec.Host == "" {
			continue
		}
		if len(l.ArtifactSourceAllowlist) == 0 {
			l.header = &s.Header
		}
		l.ArtifactSourceAllowlist = append(l.ArtifactSourceAllowlist, s.Spec.Host)
	}
	return l
}

func tenantLayers(above []layer, t *schema.TenantEstate, sites map[string][]string) []layer {
	if t.Policy == nil {
		return above
	}
	return append(slices.Clip(above), ofPolicy(t.Policy, ScopeTenant, sites)...)
}

func entitlementLayers(above []layer, e *schema.Entitlement) []layer {
	return append(slices.Clip(above),
		layer{Overlay: e.Spec.PolicyOverrides, scope: ScopeEntitlement, header: &e.Header, prefix: "spec.policy_overrides"})
}

// list is a key that lists allowed values.
type list struct {
	key  string
	one  string // name of an item
	of   func(schema.Overlay) []string
	both func(a, b []string) []string // intersection of two lists
	// beyond returns a value that item allows and the list does not.
	beyond func(item string, allowed []string) (witness string, ok bool)
}

func plain(key string, of func(schema.Overlay) []string) list {
	one := "region"
	if key == "allowed_skus" {
		one = "SKU"
	}
	return list{key: key, one: one, of: of,
		both: func(a, b []string) []string {
			return slices.DeleteFunc(slices.Clone(a), func(v string) bool { return !slices.Contains(b, v) })
		},
		beyond: func(item string, allowed []string) (string, bool) { return item, !slices.Contains(allowed, item) },
	}
}

func allowedRegions() list {
	return plain("allowed_regions", func(o schema.Overlay) []string { return o.AllowedRegions })
}

func allowedSKUs() list {
	return plain("allowed_skus", func(o schema.Overlay) []string { return o.AllowedSKUs })
}

func allowedModes() list {
	return plain("allowed_operating_modes", func(o schema.Overlay) []string { return o.AllowedOperatingModes })
}

func allowedScopes() list {
	return plain("allowed_control_plane_scopes", func(o schema.Overlay) []string { return o.AllowedControlPlaneScopes })
}

func sourceHosts() list {
	return list{key: "artifact_source_allowlist", of: func(o schema.Overlay) []string { return o.ArtifactSourceAllowlist }, both: bothHosts,
		beyond: outside}
}

// maximum is a key that is a maximum.
type maximum struct {
	key string
	of  func(layer) *int
}

func maxInstances() maximum {
	return maximum{"max_instances_per_project", func(l layer) *int { return l.MaxInstancesPerProject }}
}

func maxGPUs() maximum {
	return maximum{"max_gpus_per_instance", func(l layer) *int { return l.MaxGPUsPerInstance }}
}

// ownerMaximum is a maximum for a project, and one for its tenant with all projects.
type ownerMaximum struct {
	key     string // without the owner
	project func(layer) *int
	tenant  func(layer) *int
}

func (r ownerMaximum) of(tenant bool) maximum {
	if tenant {
		return maximum{r.key + "_per_tenant", r.tenant}
	}
	return maximum{r.key + "_per_project", r.project}
}

// maxWaiting is the maximum of operations that are not done.
func maxWaiting() ownerMaximum {
	return ownerMaximum{"max_waiting_operations", func(l layer) *int { return l.MaxWaitingOperationsPerProject },
		func(l layer) *int { return l.MaxWaitingOperationsPerTenant }}
}

// maxGPUHours is the maximum of GPU hours in a month.
func maxGPUHours() ownerMaximum {
	return ownerMaximum{"max_monthly_gpu_hours", func(l layer) *int { return l.MaxMonthlyGPUHoursPerProject },
		func(l layer) *int { return l.MaxMonthlyGPUHoursPerTenant }}
}

// maxChanges is the maximum of changes that begin in an hour.
func maxChanges() ownerMaximum {
	return ownerMaximum{"max_hourly_changes", func(l layer) *int { return l.MaxHourlyChangesPerProject },
		func(l layer) *int { return l.MaxHourlyChangesPerTenant }}
}

// maxRequests is the maximum of requests of service accounts in a minute.
func maxRequests() ownerMaximum {
	return ownerMaximum{"max_api_requests_per_minute", func(l layer) *int { return l.MaxAPIRequestsPerMinutePerProject },
		func(l layer) *int { return l.MaxAPIRequestsPerMinutePerTenant }}
}

// maxima returns all maxima.
func maxima() []maximum {
	out := []maximum{maxInstances(), maxGPUs()}
	for _, q := range quotas() {
		out = append(out, q.maximum)
	}
	for _, r := range []ownerMaximum{maxWaiting(), maxGPUHours(), maxChanges(), maxRequests()} {
		out = append(out, r.of(false), r.of(true))
	}
	return out
}

// allow narrows values by the list of each layer. Nil values mean "any". by has the
// layers that removed a value.
func (k list) allow(values []string, layers []layer) (left []string, by []layer) {
	left = slices.Clone(values)
	for _, l := range layers {
		allowed := k.of(l.Overlay)
		switch {
		case allowed == nil:
		case left == nil:
			left = slices.Clone(allowed)
			by = append(by, l)
		default:
			kept := k.both(left, allowed)
			if len(kept) < len(left) {
				by = append(by, l)
			}
			left = kept
		}
	}
	if left != nil {
		slices.Sort(left)
		left = slices.Compact(left)
	}
	return left, by
}

// refuses returns the first layer that does not allow all of item, and a value that it
// does not allow.
func (k list) refuses(item string, layers []layer) (by layer, witness string, ok bool) {
	for _, l := range layers {
		if allowed := k.of(l.Overlay); allowed != nil {
			if witness, ok := k.beyond(item, allowed); ok {
				return l, witness, true
			}
		}
	}
	return layer{}, "", false
}

// least returns the layer with the least maximum, the widest of equal ones.
func (k maximum) least(layers []layer) (n int, by layer, ok bool) {
	for _, l := range layers {
		if m := k.of(l); m != nil && (!ok || *m < n) {
			n, by, ok = *m, l, true
		}
	}
	return n, by, ok
}

// only describes a list and shortens a long one.
func only(allowed []string) string {
	const most = 8
	if len(allowed) == 0 {
		return "nothing is"
	}
	sorted := slices.Sorted(slices.Values(allowed))
	if more := len(sorted) - most; more > 0 {
		sorted = append(sorted[:most], "and "+strconv.Itoa(more)+" more")
	}
	return "only " + strings.Join(sorted, ", ")
}
