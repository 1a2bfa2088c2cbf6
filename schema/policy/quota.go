package policy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"berth/schema"
)

// Used are the amounts that quotas bound, as documents declare them: a stopped unit counts, as it may start at any
// time.
type Used struct {
	Instances int `json:"instances"`
	GPUs      int `json:"gpus"`  // that members ask for
	Nodes     int `json:"nodes"` // members; each is on a node
}

// usedBy returns the amounts of one unit. A shared runtime is no instance, and an instance that uses one has no members.
func usedBy(u *schema.EffectiveUnit) (out Used) {
	if u.Key.Kind == schema.KindInstance {
		out.Instances = 1
	}
	for _, r := range u.Roles {
		out.Nodes += r.Count
		if r.GPUs != nil {
			out.GPUs += r.Count * r.GPUs.Count
		}
	}
	return out
}

// usedByAll returns the amounts of the units of a project, also of refused ones.
func usedByAll(p *schema.EffectiveProject) (out Used) {
	for _, u := range p.Units {
		out.add(usedBy(u))
	}
	return out
}

func (u *Used) add(other Used) {
	u.Instances, u.GPUs, u.Nodes = u.Instances+other.Instances, u.GPUs+other.GPUs, u.Nodes+other.Nodes
}

// quota is a maximum of an amount of a project, or of a tenant.
type quota struct {
	maximum
	ofTenant bool
	field    string // of the document of a unit that exceeds the quota
	what     string
	amount   func(Used) int
}

// quotas returns the quotas of units. max_instances_per_project is not one of them: an entitlement has it, too.
func quotas() []quota {
	instances := func(u Used) int { return u.Instances }
	gpus := func(u Used) int { return u.GPUs }
	nodes := func(u Used) int { return u.Nodes }
	return []quota{
		{maximum{"max_instances_per_tenant", func(l layer) *int { return l.MaxInstancesPerTenant }}, true, "metadata.name", "instances",
			instances},
		{maximum{"max_gpus_per_project", func(l layer) *int { return l.MaxGPUsPerProject }}, false, "spec.roles", "GPUs", gpus},
		{maximum{"max_gpus_per_tenant", func(l layer) *int { return l.MaxGPUsPerTenant }}, true, "spec.roles", "GPUs", gpus},
		{maximum{"max_nodes_per_project", func(l layer) *int { return l.MaxNodesPerProject }}, false, "spec.roles", "nodes", nodes},
		{maximum{"max_nodes_per_tenant", func(l layer) *int { return l.MaxNodesPerTenant }}, true, "spec.roles", "nodes", nodes},
	}
}

// whose names what a quota bounds.
func (q quota) whose() string {
	if q.ofTenant {
		return "tenant"
	}
	return "project"
}

// of returns the quotas of tenants, or those of projects, that a layer sets.
func quotasOf(tenants bool, layers []layer) []quota {
	return slices.DeleteFunc(quotas(), func(q quota) bool {
		_, _, isSet := q.least(layers)
		return q.ofTenant != tenants || !isSet
	})
}

// counted is a unit that quotas count.
type counted struct {
	key     schema.Key
	used    Used
	refused bool // by another rule
}

// exceeded says that a unit exceeds a quota.
type exceeded struct {
	Quota     string
	Source    schema.Position // of the quota
	Sum, Most int             // Sum: with the unit
}

// exceeding returns the units that exceed quotas. Units that exist and ask for no more than before count first, then those
// that ask for more, then new ones, each by key: so a change that exceeds a quota is refused, and no unit beside it.
// A refused unit counts if it exists.
func exceeding(qs []quota, layers []layer, units []counted, o options) map[schema.Key][]exceeded {
	rank := func(k schema.Key) int {
		switch {
		case !o.existing(k):
			return 2
		case o.grown(k):
			return 1
		}
		return 0
	}
	slices.SortFunc(units, func(a, b counted) int { return cmp.Or(cmp.Compare(rank(a.key), rank(b.key)), a.key.Compare(b.key)) })
	out, sum := map[schema.Key][]exceeded{}, Used{}
	for _, u := range units {
		if u.refused && !o.existing(u.key) {
			continue
		}
		with := sum
		with.add(u.used)
		for _, q := range qs {
			if most, by, _ := q.least(layers); q.amount(u.used) > 0 && q.amount(with) > most {
				out[u.key] = append(out[u.key], exceeded{q.key, by.at(q.key), q.amount(with), most})
			}
		}
		if o.existing(u.key) || out[u.key] == nil {
			sum = with
		}
	}
	return out
}

// ofProject refuses the instances of a project that exceed its quotas, and those of over, which exceed quotas of the
// tenant.
func (o options) ofProject(layers []layer, all []*judgement) {
	over := map[schema.Key][]exceeded{}
	if qs := quotasOf(false, layers); len(qs) > 0 {
		units := make([]counted, len(all))
		for i, j := range all {
			units[i] = counted{j.key, usedBy(j.result), j.denied()}
		}
		over = exceeding(qs, layers, units, o)
	}
	for _, j := range all {
		j.exceeds(over[j.key])
		j.exceeds(o.over[j.key])
	}
}

// exceeds refuses a unit for the quotas that it exceeds.
func (j *judgement) exceeds(all []exceeded) {
	for _, e := range all {
		q := quotas()[slices.IndexFunc(quotas(), func(q quota) bool { return q.key == e.Quota })]
		j.say(schema.Deny, q.key, e.Source, q.field, strconv.Itoa(e.Sum), strconv.Itoa(e.Most),
			"with it the %s has %d %s, at most %d are allowed", q.whose(), e.Sum, q.what, e.Most)
	}
}

// ofTenant returns the units that exceed quotas of their tenant, by project, by the results of its projects without these
// quotas; nil: none does.
func (o options) ofTenant(layers []layer, results map[string]*schema.EffectiveProject) map[string]map[schema.Key][]exceeded {
	qs := quotasOf(true, layers)
	if len(qs) == 0 {
		return nil
	}
	var units []counted
	for _, p := range results {
		for _, u := range p.Units {
			units = append(units, counted{u.Key, usedBy(u), refuses(p, u.Key)})
		}
	}
	var out map[string]map[schema.Key][]exceeded
	for key, all := range exceeding(qs, layers, units, o) {
		if out == nil {
			out = map[string]map[schema.Key][]exceeded{}
		}
		if out[key.Project] == nil {
			out[key.Project] = map[schema.Key][]exceeded{}
		}
		out[key.Project][key] = all
	}
	return out
}

// refuses reports whether a result refuses a unit.
func refuses(p *schema.EffectiveProject, key schema.Key) bool {
	return slices.ContainsFunc(p.Decisions, func(d schema.Decision) bool {
		return d.Key == key && (d.Verdict == schema.Deny || d.Verdict == schema.Stop)
	})
}

// grownUnits returns the units of a tenant that exist in before and ask for more than there.
func grownUnits(t, before *schema.TenantEstate) map[string][]string {
	if t == before || before == nil {
		return nil
	}
	grown := map[string][]string{}
	note := func(project, name string, was, is map[string]schema.InstanceRole) {
		if a, b := asked(was), asked(is); b.GPUs > a.GPUs || b.Nodes > a.Nodes {
			grown[project] = append(grown[project], name)
		}
	}
	for name, p := range t.Projects {
		was := before.Projects[name]
		if was == nil || was == p {
			continue
		}
		for _, i := range slices.Sorted(maps.Keys(p.Instances)) {
			if old, now := was.Instances[i], p.Instances[i]; old != nil && old != now {
				note(name, i, old.Spec.Roles, now.Spec.Roles)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.SharedRuntimes)) {
		old, now := before.SharedRuntimes[name], t.SharedRuntimes[name]
		if old != nil && old != now && old.Runtime != nil && now.Runtime != nil {
			note("", name, old.Runtime.Spec.Roles, now.Runtime.Spec.Roles)
		}
	}
	return grown
}

// asked returns what roles of a document ask for.
func asked(roles map[string]schema.InstanceRole) (out Used) {
	for _, r := range roles {
		out.Nodes += r.Count
		if r.GPUs != nil {
			out.GPUs += r.Count * r.GPUs.Count
		}
	}
	return out
}

// Since is Existing for the units of before, which may be nil. Of the units that exist, those that ask for more than in
// before are refused first where a quota is exceeded.
func Since(now, before *schema.TenantEstate) Option {
	return func(o *options) {
		by := since(newInstances(now, before), grownUnits(now, before))
		o.existing, o.grown = by.existing, by.grown
	}
}

// since returns the options for the names of new units and of grown ones, sorted, by project.
func since(fresh, grown map[string][]string) options {
	among := func(all map[string][]string) func(schema.Key) bool {
		return func(k schema.Key) bool {
			_, is := slices.BinarySearch(all[k.Project], k.Name)
			return is
		}
	}
	isNew := among(fresh)
	return options{existing: func(k schema.Key) bool { return !isNew(k) }, grown: among(grown)}
}

// at returns the options for a day.
func (o options) at(today string) options {
	o.today = today
	return o
}

// QuotasUsed returns the quotas that policies of d set and of which after uses more or less than before, sorted by owner.
func QuotasUsed(d *schema.Desired, before, after *schema.Effective) (out []schema.QuotaUse) {
	platform := platformLayers(d.Platform)
	for _, name := range slices.Sorted(maps.Keys(d.Tenants)) {
		was, is := before.Tenants[name], after.Tenants[name]
		if name == "" || was == is {
			continue
		}
		layers := tenantLayers(platform, d.Tenants[name], regionsBySite(d.Platform))
		parts := func(e *schema.EffectiveTenant) map[string]*schema.EffectiveProject {
			if e == nil {
				return nil
			}
			return e.Projects
		}
		a, b := parts(was), parts(is)
		out = append(out, usesOf(name, quotasOf(true, layers), layers, sumOf(a, nil), sumOf(b, nil))...)
		of := append([]quota{perProject()}, quotasOf(false, layers)...)
		for _, project := range slices.Sorted(maps.Keys(b)) {
			if project != "" {
				out = append(out, usesOf(name+"."+project, of, layers, sumOf(a, &project), sumOf(b, &project))...)
			}
		}
	}
	return out
}

// sumOf returns the amounts of all parts of a tenant, or of one project.
func sumOf(parts map[string]*schema.EffectiveProject, only *string) (sum Used) {
	for name, p := range parts {
		if only == nil || name == *only {
			sum.add(usedByAll(p))
		}
	}
	return sum
}

// perProject is the maximum of instances of a project as a quota. counts enforces it.
func perProject() quota {
	return quota{maxInstances(), false, "metadata.name", "instances", func(u Used) int { return u.Instances }}
}

// usesOf returns the quotas of which an owner uses another amount than before.
func usesOf(owner string, of []quota, layers []layer, was, is Used) (out []schema.QuotaUse) {
	for _, q := range of {
		most, by, isSet := q.least(layers)
		if isSet && q.amount(was) != q.amount(is) {
			out = append(out, schema.QuotaUse{Owner: owner, Rule: q.key, What: q.what, Was: q.amount(was), Used: q.amount(is), Most: most,
				Source: by.at(q.key)})
		}
	}
	return out
}
