package policy

import "berth/schema"

// Bound is a number that policies allow an owner.
type Bound struct {
	Owner  string // such as physics.lhc, or physics
	Most   int
	Source schema.Position
}

// ChangesPerHour returns how many changes of units may begin in an hour in a project and in its tenant. project "" stands for the
// shared runtimes of the tenant.
func ChangesPerHour(d *schema.Desired, tenant, project string) []Bound {
	return maxChanges().bounds(d, tenant, project)
}

// RequestsPerMinute returns how many requests to the API the service accounts of a project and of its tenant may send in a minute.
func RequestsPerMinute(d *schema.Desired, tenant, project string) []Bound {
	return maxRequests().bounds(d, tenant, project)
}

// bounds returns the maxima that are set for a project, if there is one, and for its tenant.
func (r ownerMaximum) bounds(d *schema.Desired, tenant, project string) (out []Bound) {
	t := d.Tenants[tenant]
	if t == nil {
		return nil
	}
	layers := tenantLayers(platformLayers(d.Platform), t, nil) // sites bound no rate
	add := func(k maximum, owner string) {
		if most, by, isSet := k.least(layers); isSet {
			out = append(out, Bound{owner, most, by.at(k.key)})
		}
	}
	if project != "" {
		add(r.of(false), tenant+"."+project)
	}
	add(r.of(true), tenant)
	return out
}
