package daemon

import (
	"fmt"
	"maps"
	"slices"

	"berth/schema"
)

// featureConfig is berth.yaml's features section: which changes come into force
// yet, which is all but those said not to (requirement A16).
type featureConfig struct {
	EntitlementChanges *bool `json:"entitlement_changes"`
	InstanceChanges    *bool `json:"instance_changes"`
}

// gate finds, for what is switched off, every document that a change adds,
// changes or takes away, so that it is held. It reports in the documents' own
// files; a nil before is an estate without any. Pure.
func (f featureConfig) gate(before, after *schema.Desired) []schema.Diagnostic {
	off := func(on *bool) bool { return on != nil && !*on }
	entitlements, instances := off(f.EntitlementChanges), off(f.InstanceChanges)
	if !entitlements && !instances {
		return nil
	}
	var out []schema.Diagnostic
	was, is := tenantsOf(before), tenantsOf(after)
	for _, tenant := range slices.Sorted(maps.Keys(union(was, is))) {
		if was[tenant] == is[tenant] { // what did not change is shared
			continue
		}
		a, b := projectsOf(was[tenant]), projectsOf(is[tenant])
		for _, name := range slices.Sorted(maps.Keys(union(a, b))) {
			p, q := orNone(a[name]), orNone(b[name])
			if p == q {
				continue
			}
			if entitlements {
				out = append(out, gated(p.Entitlements, q.Entitlements, "entitlement_changes")...)
			}
			if instances {
				out = append(out, gated(p.Instances, q.Instances, "instance_changes")...)
				out = append(out, gated(p.Operations, q.Operations, "instance_changes")...)
			}
		}
	}
	schema.SortDiagnostics(out)
	return out
}

// gated are the documents in which two maps of them differ.
func gated[D interface {
	comparable
	Head() *schema.Header
}](before, after map[string]D, feature string) []schema.Diagnostic {
	var out []schema.Diagnostic
	var none D
	for name := range union(before, after) {
		was, is := before[name], after[name]
		if was != none && is != none && was.Head().Blob == is.Head().Blob {
			continue
		}
		h := is
		if is == none {
			h = was
		}
		out = append(out, schema.Diagnostic{
			Severity: schema.SeverityError, Code: "feature.disabled", File: h.Head().File, Line: 1, Column: 1,
			Message: fmt.Sprintf("changes of %s documents are switched off here: features.%s in berth.yaml switches them on; until then it stays as it is in force", h.Head().Key.Kind, feature),
		})
	}
	return out
}

func union[K comparable, V any](a, b map[K]V) map[K]bool {
	out := make(map[K]bool, len(a)+len(b))
	for k := range a {
		out[k] = true
	}
	for k := range b {
		out[k] = true
	}
	return out
}

func tenantsOf(d *schema.Desired) map[string]*schema.TenantEstate {
	if d == nil {
		return nil
	}
	return d.Tenants
}

func projectsOf(t *schema.TenantEstate) map[string]*schema.ProjectEstate {
	if t == nil {
		return nil
	}
	return t.Projects
}

func orNone(p *schema.ProjectEstate) *schema.ProjectEstate {
	if p == nil {
		return &schema.ProjectEstate{}
	}
	return p
}
