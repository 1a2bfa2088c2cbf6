package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
)

// HasGPUHours reports whether a policy bounds GPU hours, so that the use has to be known.
func HasGPUHours(d *schema.Desired) bool {
	bounds := func(p *schema.Policy) bool {
		return p != nil && (p.Spec.MaxMonthlyGPUHoursPerProject != nil || p.Spec.MaxMonthlyGPUHoursPerTenant != nil)
	}
	for _, p := range d.Platform.Policies {
		if bounds(p) {
			return true
		}
	}
	for _, t := range d.Tenants {
		if bounds(t.Policy) {
			return true
		}
	}
	return false
}

// UsedUp returns the projects, such as physics.lhc, and tenants whose GPU hours of the month are used up, each with the reason.
// seconds has the GPU seconds of the month by project.
func UsedUp(d *schema.Desired, seconds map[string]int64) map[string]string {
	out, platform, sites := map[string]string{}, platformLayers(d.Platform), regionsBySite(d.Platform)
	for name, t := range d.Tenants {
		layers, total := tenantLayers(platform, t, sites), int64(0)
		for id, used := range seconds {
			if tenant, _, _ := strings.Cut(id, "."); tenant == name {
				total += used
			}
		}
		note := func(owner string, k maximum, used int64) {
			if most, by, isSet := k.least(layers); isSet && used >= int64(most)*3600 {
				out[owner] = fmt.Sprintf("%s used %d GPU hours this month (UTC), and %d are allowed (%s)", owner, used/3600, most,
					by.at(k.key).Place())
			}
		}
		note(name, maxGPUHours().of(true), total)
		for project := range t.Projects {
			note(name+"."+project, maxGPUHours().of(false), seconds[name+"."+project])
		}
	}
	return out
}

// AddsGPUs holds changes of units that add GPUs while the GPU hours of their project or tenant are used up. A stopped unit
// has none. Running units go on, and every other change comes into force.
func AddsGPUs(t, before *schema.TenantEstate, usedUp map[string]string) (out []schema.Diagnostic) {
	check := func(h *schema.Header, now, was int, owners ...string) {
		for _, owner := range owners {
			if why := usedUp[owner]; why != "" && now > was {
				out = append(out, h.At("spec.roles").Finding(schema.SeverityError, "spec.roles", schema.CodeUsedUp,
					"would add %d GPUs; %s; it is held until the month ends or the policy allows more", now-was, why))
				return
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Projects)) {
		was := map[string]*schema.Instance{}
		if before != nil && before.Projects[name] != nil {
			was = before.Projects[name].Instances
		}
		for _, i := range slices.Sorted(maps.Keys(t.Projects[name].Instances)) {
			if now := t.Projects[name].Instances[i]; now != was[i] {
				check(&now.Header, gpusOf(now), gpusOf(was[i]), t.Name+"."+name, t.Name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.SharedRuntimes)) {
		var was *schema.Instance
		if before != nil && before.SharedRuntimes[name] != nil && before.SharedRuntimes[name].Runtime != nil {
			was = asInstance(before.SharedRuntimes[name].Runtime)
		}
		if rt := t.SharedRuntimes[name].Runtime; rt != nil {
			check(&rt.Header, gpusOf(asInstance(rt)), gpusOf(was), t.Name)
		}
	}
	return out
}

// gpusOf returns the GPUs that a unit, which may be nil, asks for while it runs.
func gpusOf(i *schema.Instance) int {
	if i == nil || i.Spec.DesiredState == schema.DesiredStopped {
		return 0
	}
	return asked(i.Spec.Roles).GPUs
}
