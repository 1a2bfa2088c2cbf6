package policy

import (
	"maps"
	"slices"

	"berth/schema"
)

// layer is one overlay, and where it stands.
type layer struct {
	schema.Overlay
	header *schema.Header
	prefix string // of the overlay's fields in its document
	deny   []string
}

func (l layer) at(field string) schema.Position { return l.header.At(l.prefix + "." + field) }

// platformLayers are the platform's policies by name. Policies that are
// suspended hold all the same: suspending is for what Berth does, not for what
// it forbids.
func platformLayers(p *schema.Platform) []layer {
	var ls []layer
	for _, name := range slices.Sorted(maps.Keys(p.Policies)) {
		d := p.Policies[name]
		ls = append(ls, layer{Overlay: d.Spec.Overlay, header: &d.Header, prefix: "spec", deny: d.Spec.HardDeny.Apps})
	}
	return ls
}

func tenantLayers(above []layer, t *schema.TenantEstate) []layer {
	if t.Policy == nil {
		return above
	}
	return append(slices.Clip(above), layer{Overlay: t.Policy.Spec.Overlay, header: &t.Policy.Header, prefix: "spec"})
}

func entitlementLayers(above []layer, e *schema.Entitlement) []layer {
	return append(slices.Clip(above), layer{Overlay: e.Spec.PolicyOverrides, header: &e.Header, prefix: "spec.policy_overrides"})
}

// allow narrows values by the list each layer has for field. A nil list of
// values is "any"; so is what no layer speaks of. by are the layers that took
// something away.
func allow(values []string, layers []layer, list func(schema.Overlay) []string) (left []string, by []layer) {
	left = values
	for _, l := range layers {
		allowed := list(l.Overlay)
		switch {
		case allowed == nil:
		case left == nil:
			left = slices.Clone(allowed)
			by = append(by, l)
		default:
			kept := slices.DeleteFunc(slices.Clone(left), func(v string) bool { return !slices.Contains(allowed, v) })
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

// least is the layer with the least maximum; the widest of equal ones.
func least(layers []layer, limit func(schema.Overlay) *int) (n int, by layer, ok bool) {
	for _, l := range layers {
		if m := limit(l.Overlay); m != nil && (!ok || *m < n) {
			n, by, ok = *m, l, true
		}
	}
	return n, by, ok
}
