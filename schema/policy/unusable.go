package policy

import (
	"slices"
	"strings"

	"berth/schema"
)

// unusableNodes warns of nodes that no instance can use, because a policy of the
// platform does not allow their region or SKU.
func unusableNodes(p *schema.Platform) (out []schema.Diagnostic) {
	layers := platformLayers(p)
	if out = nothingLeft(nil, layers); len(out) > 0 {
		return out // the cause of all findings below
	}
	for _, n := range schema.Sorted(p.Nodes) {
		for _, f := range []struct {
			field, value string
			allowed      list
		}{{"spec.region", n.Spec.Region, allowedRegions()}, {"spec.sku", n.Spec.SKU, allowedSKUs()}} {
			l, _, refused := f.allowed.refuses(f.value, layers)
			if !refused {
				continue
			}
			out = append(out, n.Warning(f.field, "policy.unusable-node",
				"nobody may use this node: the %s %s is not in %s (%s); add it there, or change the node",
				f.allowed.one, f.value, l.named(f.allowed.key), l.at(f.allowed.key).Place()))
		}
	}
	return out
}

// uselessMaxima warns of maxima of the platform's policies that another of them makes useless: the least counts.
func uselessMaxima(layers []layer) (out []schema.Diagnostic) {
	for _, k := range maxima() {
		most, by, ok := k.least(layers)
		for _, l := range layers {
			if n := k.of(l); ok && n != nil && *n > most {
				field := l.prefix + "." + k.key
				out = append(out, l.at(k.key).Warning(field, "policy.useless", "%d has no effect, as %s allows %d at most (%s)", *n,
					by.whose(), most, by.at(k.key).Place()))
			}
		}
	}
	return out
}

// nothingLeft warns at the first of layers with which, together with above, no region or no
// SKU remains allowed.
func nothingLeft(above, layers []layer) (out []schema.Diagnostic) {
	for _, k := range []list{allowedRegions(), allowedSKUs()} {
		if left, _ := k.allow(nil, above); left != nil && len(left) == 0 {
			continue // reported at a layer above
		}
		for i := range layers {
			if left, _ := k.allow(nil, slices.Concat(above, layers[:i+1])); left == nil || len(left) > 0 {
				continue
			}
			l := layers[i]
			field := l.prefix + "." + l.named(k.key)
			out = append(out, l.at(k.key).Warning(field, "policy.nothing-allowed",
				"no %s is left that every policy allows, so no instance below can run: allow one that the policies above allow", k.one))
			break
		}
	}
	return out
}

// narrowed warns of layers of a tenant that leave nothing, and of requested regions
// that policy does not allow.
func narrowed(platform []layer, sites map[string][]string, t *schema.TenantEstate, e *schema.EffectiveTenant) (out []schema.Diagnostic) {
	above := tenantLayers(platform, t, sites)
	out = append(out, nothingLeft(platform, above[len(platform):])...)
	for name, p := range t.Projects {
		for _, ent := range p.Entitlements {
			out = append(out, nothingLeft(above, entitlementLayers(nil, ent))...)
			out = append(out, deniedApp(above, ent)...)
		}
		if e == nil || e.Projects[name] == nil {
			continue
		}
		told := map[schema.Key]bool{}
		for _, d := range e.Projects[name].Decisions {
			if d.Verdict != schema.Narrow || d.Field != "spec.regions" || told[d.Key] {
				continue
			}
			told[d.Key] = true
			kept := strings.Split(d.After, ", ")
			dropped := slices.DeleteFunc(strings.Split(d.Before, ", "), func(r string) bool { return slices.Contains(kept, r) })
			out = append(out, d.At.Warning(d.Field, "policy.ignored-region",
				"%s is ignored, as policy does not allow it here (%s): members are put in %s only",
				strings.Join(dropped, ", "), d.Source.Place(), d.After))
		}
	}
	return out
}

// CodeUselessAdmission is the code of the finding that no version of an app meets its admission.
const CodeUselessAdmission = "policy.useless-admission"

// uselessAdmissions warns of admissions of a tenant that none of the app's versions meets.
func uselessAdmissions(p *schema.Platform, t *schema.TenantEstate) (out []schema.Diagnostic) {
	for slug, a := range p.Admissions[t.Name] {
		if app := t.Apps[slug]; app != nil && len(t.Versions[slug]) > 0 {
			out = append(out, uselessAdmission(p, t, a, app)...)
		}
	}
	return out
}

// uselessAdmission is uselessAdmissions for one app.
func uselessAdmission(p *schema.Platform, t *schema.TenantEstate, a *schema.AppAdmission, app *schema.App) (out []schema.Diagnostic) {
	slug := a.Key.Name
	useless := func(field, wants string, which []string) {
		slices.Sort(which)
		out = append(out, a.Warning(field, CodeUselessAdmission,
			"this admission allows no instance of %s: %s %s (%s); allow one of them here",
			slug, wants, strings.Join(slices.Compact(which), ", "), app.File))
	}
	if scopes := app.Spec.Supports.Scopes(); !overlap(scopes, a.Spec.AllowedControlPlaneScopes) {
		useless("spec.allowed_control_plane_scopes", "the app supports", slices.Clone(scopes))
	}
	var backends, hosts []string // hosts: those refused, of the versions with an allowed backend
	source, isMet := sourcesFor(p, t, app), false
	for _, v := range t.Versions[slug] {
		backends = append(backends, v.Spec.RuntimeBackend)
		if slices.Contains(a.Spec.AllowedRuntimeBackends, v.Spec.RuntimeBackend) {
			refused := refusedHosts(a, v, source)
			hosts, isMet = append(hosts, refused...), isMet || len(refused) == 0
		}
	}
	switch {
	case isMet:
	case len(hosts) > 0:
		useless("spec.artifact_source_allowlist", "its versions have artifacts from", hosts)
	default:
		useless("spec.allowed_runtime_backends", "its versions run on", backends)
	}
	return out
}

// refusedHosts returns the hosts of the artifacts of a version that an admission does not allow.
func refusedHosts(a *schema.AppAdmission, v *schema.AppVersion, source func(name string) *schema.ArtifactSource) (hosts []string) {
	only := []layer{{Overlay: schema.Overlay{ArtifactSourceAllowlist: a.Spec.ArtifactSourceAllowlist}}}
	for _, artifact := range v.Spec.Manifest.Artifacts {
		s := source(artifact.Source)
		if s == nil || s.Spec.Type == schema.SourceFile {
			continue
		}
		if _, _, refused := sourceHosts().refuses(s.Spec.Host, only); refused {
			hosts = append(hosts, s.Spec.Host)
		}
	}
	return hosts
}

// overlap reports whether two lists have an item in common.
func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// CodeDeniedApp is the code of the finding that a project is entitled to an app that a policy denies.
const CodeDeniedApp = "policy.denied-app"

// deniedApp warns of an entitlement by which nothing can run.
func deniedApp(above []layer, e *schema.Entitlement) (out []schema.Diagnostic) {
	for _, l := range above {
		if i := slices.Index(l.deny, e.Key.Name); i >= 0 && e.Spec.Enabled {
			const field = "spec.enabled"
			out = append(out, e.Warning(field, CodeDeniedApp, "no instance of %s can run by this, as %s denies the app (%s)",
				e.Key.Name, l.whose(), l.header.At(l.prefix+".hard_deny.apps").Place()))
		}
	}
	return out
}
