package daemon

import (
	"fmt"
	"maps"

	"berth/schema"
)

// featureConfig is the section features of berth.yaml: the kinds of changes that may
// come into force (all but those switched off; requirement A16).
type featureConfig struct {
	EntitlementChanges *bool `json:"entitlement_changes"`
	InstanceChanges    *bool `json:"instance_changes"`
}

// gate returns an error finding for each document of a kind switched off that a
// change adds, changes or removes, so that it is held. before may be nil. Pure.
func (f featureConfig) gate(before, after *schema.Desired) []schema.Diagnostic {
	off := func(on *bool) bool { return on != nil && !*on }
	entitlements, instances := off(f.EntitlementChanges), off(f.InstanceChanges)
	if !entitlements && !instances {
		return nil
	}
	var out []schema.Diagnostic
	old, new := tenantsOf(before), tenantsOf(after)
	for tenant := range keysOf(old, new) {
		if old[tenant] == new[tenant] { // unchanged tenants are shared
			continue
		}
		a, b := projectsOf(old[tenant]), projectsOf(new[tenant])
		for name := range keysOf(a, b) {
			p, q := orEmpty(a[name]), orEmpty(b[name])
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

// gated returns a finding for each document that differs between two maps.
func gated[D interface {
	comparable
	Head() *schema.Header
}](before, after map[string]D, feature string) []schema.Diagnostic {
	var out []schema.Diagnostic
	var none D
	for name := range keysOf(before, after) {
		old, doc := before[name], after[name]
		if old != none && doc != none && old.Head().Blob == doc.Head().Blob {
			continue
		}
		if doc == none {
			doc = old
		}
		out = append(out, schema.Diagnostic{
			Severity: schema.SeverityError, Code: "feature.disabled", File: doc.Head().File, Line: 1, Column: 1,
			Message: fmt.Sprintf("changes of %s documents are switched off by features.%s in berth.yaml; the version in force stays",
				doc.Head().Key.Kind, feature),
		})
	}
	return out
}

// keysOf returns the keys of both maps.
func keysOf[K comparable, V any](a, b map[K]V) map[K]V {
	out := maps.Clone(a)
	if out == nil {
		out = map[K]V{}
	}
	maps.Copy(out, b)
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

func orEmpty(p *schema.ProjectEstate) *schema.ProjectEstate {
	if p == nil {
		return &schema.ProjectEstate{}
	}
	return p
}
