package policy

import (
	"fmt"

	"berth/schema"
)

// CodeWider is the code of a layer that allows more than those above it.
const CodeWider = "policy.wider"

// Wider returns the values that a tenant's policy or an entitlement allows and the
// layers above it do not: each item with the layer that does not allow it, and an
// example. Such a value has no effect, because layers only narrow; its author
// probably expects one. A tenant's findings depend on the platform and that tenant
// alone.
func Wider(d *schema.Desired) []schema.Diagnostic {
	var ds []schema.Diagnostic
	for _, t := range d.Tenants {
		ds = append(ds, WiderTenant(d.Platform, t)...)
	}
	schema.SortDiagnostics(ds)
	return ds
}

// WiderTenant is Wider for one tenant.
func WiderTenant(p *schema.Platform, t *schema.TenantEstate) []schema.Diagnostic {
	platform, sites := platformLayers(p), regionsBySite(p)
	above := tenantLayers(platform, t, sites)
	var ds []schema.Diagnostic
	for _, l := range above[len(platform):] {
		ds = append(ds, wider(platform, l)...)
	}
	for _, project := range t.Projects {
		for _, e := range project.Entitlements {
			ds = append(ds, wider(admissionLayers(p, t, e.Key.Name, above), entitlementLayers(nil, e)[0])...)
		}
	}
	schema.SortDiagnostics(ds)
	return ds
}

// wider returns the values that child allows and the layers above it do not.
func wider(above []layer, child layer) (ds []schema.Diagnostic) {
	say := func(field string, by layer, rule, format string, args ...any) {
		ds = append(ds, child.at(field).Finding(schema.SeverityError, child.prefix+"."+field, CodeWider,
			"%s (%s); a layer below can only narrow", fmt.Sprintf(format, args...), by.at(rule).Place()))
	}
	for i, site := range child.sites {
		for _, region := range site.regions {
			if by, _, refused := allowedRegions().refuses(region, above); refused {
				say(fmt.Sprintf("allowed_sites[%d]", i), by, allowedRegions().key, "allows %s with the region %s, which is not allowed above: %s",
					site.name, region, only(by.AllowedRegions))
				break
			}
		}
	}
	if child.sites != nil {
		return ds
	}
	for _, k := range []list{allowedRegions(), allowedSKUs(), sourceHosts(), allowedModes(), allowedScopes()} {
		for i, item := range k.of(child.Overlay) {
			by, witness, refused := k.refuses(item, above)
			if !refused {
				continue
			}
			what := witness
			if witness != item {
				what = fmt.Sprintf("%s by %q", witness, item)
			}
			say(fmt.Sprintf("%s[%d]", k.key, i), by, k.key, "allows %s, which is not allowed above: %s", what, only(k.of(by.Overlay)))
		}
	}
	for _, k := range maxima() {
		n := k.of(child)
		if most, by, ok := k.least(above); ok && n != nil && *n > most {
			say(k.key, by, k.key, "allows %d, which is not allowed above: at most %d", *n, most)
		}
	}
	return ds
}
