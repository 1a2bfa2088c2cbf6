package policy

import (
	"fmt"
	"maps"
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
	for _, name := range slices.Sorted(maps.Keys(p.Nodes)) {
		n := p.Nodes[name]
		for _, f := range []struct {
			field, value string
			allowed      list
		}{{"spec.region", n.Spec.Region, allowedRegions()}, {"spec.sku", n.Spec.SKU, allowedSKUs()}} {
			l, _, refused := f.allowed.refuses(f.value, layers)
			if !refused {
				continue
			}
			from := l.at(f.allowed.key)
			out = append(out, warnAt(n.At(f.field), f.field, "policy.unusable-node", "nobody may use this node: the %s %s is not in %s (%s:%d); add it there, or change the node",
				f.allowed.one, f.value, f.allowed.key, from.File, from.Line))
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
			field := l.prefix + "." + k.key
			out = append(out, warnAt(l.at(k.key), field, "policy.nothing-allowed", "no %s is left that every policy allows, so no instance below can run: allow one that the policies above allow", k.one))
			break
		}
	}
	return out
}

// narrowed warns of layers of a tenant that leave nothing, and of requested regions
// that policy does not allow.
func narrowed(platform []layer, t *schema.TenantEstate, e *schema.EffectiveTenant) (out []schema.Diagnostic) {
	above := tenantLayers(platform, t)
	out = append(out, nothingLeft(platform, above[len(platform):])...)
	for name, p := range t.Projects {
		for _, ent := range p.Entitlements {
			out = append(out, nothingLeft(above, entitlementLayers(nil, ent))...)
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
			out = append(out, warnAt(d.At, d.Field, "policy.ignored-region", "%s is ignored, as policy does not allow it here (%s:%d): members are put in %s only",
				strings.Join(dropped, ", "), d.Source.File, d.Source.Line, d.After))
		}
	}
	return out
}

// warnAt returns a warning about a field at a position.
func warnAt(at schema.Position, path, code, format string, args ...any) schema.Diagnostic {
	return schema.Diagnostic{
		Severity: schema.SeverityWarning, Code: code, Message: path + ": " + fmt.Sprintf(format, args...),
		File: at.File, Line: at.Line, Column: at.Column, Path: path,
	}
}
