package policy

import (
	"maps"
	"slices"

	"berth/schema"
)

// runtimes evaluates shared runtimes by the layers above them, like instances. No
// entitlement is above them, and they do not count as instances.
func (r *rules) runtimes(all map[string]*schema.SharedRuntimeEstate, layers []layer, o options) (ds []schema.Decision, ns []schema.Noncompliance) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		j := r.runtime(all[name].Runtime, layers, o)
		if j == nil {
			continue
		}
		ds = append(ds, j.decisions...)
		if j.noncompliance != nil {
			ns = append(ns, *j.noncompliance)
		}
	}
	return ds, ns
}

// runtime evaluates one shared runtime; nil for one that the reader refuses.
func (r *rules) runtime(rt *schema.SharedRuntime, above []layer, o options) *judgement {
	if rt == nil || r.versions[rt.Spec.App][rt.Spec.Version] == nil || r.apps[rt.Spec.App] == nil {
		return nil
	}
	j := &judgement{
		subject: subject{
			instance: asInstance(rt), key: rt.Key, app: r.apps[rt.Spec.App], version: r.versions[rt.Spec.App][rt.Spec.Version],
			sources: r.sources, new: !o.existing(rt.Key),
		},
		layers: layers{above: above, all: above},
		result: &schema.EffectiveInstance{AppSelection: schema.AppSelection{OperatingMode: rt.Spec.OperatingMode, ControlPlaneScope: rt.Spec.ControlPlaneScope}, DesiredState: rt.Spec.DesiredState},
	}
	j.catalog()
	j.modes()
	j.artifacts()
	j.result.Regions = j.regions("spec.placement_intent.regions")
	if intent := rt.Spec.PlacementIntent; intent != nil && len(intent.SKUs) > 0 {
		j.some("spec.placement_intent.skus", intent.SKUs, allowedSKUs())
	}
	j.result.Roles = j.roles()
	j.becomes(o.today)
	return j
}

// asInstance returns a shared runtime in the form of an instance, with its own
// document.
func asInstance(rt *schema.SharedRuntime) *schema.Instance {
	i := &schema.Instance{Header: rt.Header, Spec: schema.InstanceSpec{
		App: rt.Spec.App, Version: rt.Spec.Version, DesiredState: rt.Spec.DesiredState,
		OperatingMode: rt.Spec.OperatingMode, ControlPlaneScope: rt.Spec.ControlPlaneScope, Roles: rt.Spec.Roles,
	}}
	if rt.Spec.PlacementIntent != nil {
		i.Spec.Regions = rt.Spec.PlacementIntent.Regions
	}
	return i
}

// newRuntimes returns the names in now that are not in before, sorted.
func newRuntimes(now, before map[string]*schema.SharedRuntimeEstate) (fresh []string) {
	for name := range now {
		if before[name] == nil || before[name].Runtime == nil {
			fresh = append(fresh, name)
		}
	}
	slices.Sort(fresh)
	return fresh
}

// notAmong returns a function that reports whether a name is missing from sorted
// names, that is, exists already.
func notAmong(fresh []string) func(schema.Key) bool {
	return func(k schema.Key) bool {
		_, is := slices.BinarySearch(fresh, k.Name)
		return !is
	}
}
