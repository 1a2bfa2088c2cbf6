package policy

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"berth/schema"
)

// mostPlatforms limits the platforms of which a Judge keeps results.
const mostPlatforms = 3

// Judge evaluates the estates of one repository one after another. Its result is
// that of Evaluate. It keeps the results of tenants and projects, and returns the same
// pointers while everything that they depend on is the same, so the cost is that of the
// changed projects. It relies on the reader to keep the pointers of unchanged
// documents. Safe for concurrent use.
type Judge struct {
	mu      sync.Mutex
	rules   []*rules // the most recently used first
	tenants recent[judgedTenant]
	own     *schema.EffectiveTenant       // last result for the platform's own documents
	drained map[*schema.Node]*schema.Node // nodes of drained sites, as nothing new is placed on them
}

// judgedTenant is the result for a tenant, and everything that it depends on.
type judgedTenant struct {
	rules  *rules
	estate *schema.TenantEstate
	fresh  map[string][]string // units that do not exist yet, sorted, by project
	grown  map[string][]string // units that exist and ask for more than before, sorted, by project
	dated  bool                // the result may differ on another day
	day    string              // "" unless it is dated

	alone  map[string]*schema.EffectiveProject // results without quotas of the tenant
	over   map[string]map[schema.Key][]exceeded
	result *schema.EffectiveTenant
}

// Evaluate evaluates the whole estate; instances in before exist.
func (j *Judge) Evaluate(d, before *schema.Desired, today string) *schema.Effective {
	r := j.by(d.Platform)
	tenants := make(map[string]*schema.EffectiveTenant, len(d.Tenants))
	for name, t := range d.Tenants {
		tenants[name] = j.tenant(r, t, before.Tenants[name], today)
	}
	j.tenants.forget(d.Tenants)
	tenants[""] = j.platform(r.platform(d, existingIn(d.Platform, before.Platform, today)))
	return &schema.Effective{Tenants: tenants, Nodes: j.placeable(d.Platform)}
}

// platform returns the tenant "" with the platform's own documents. It shares equal parts with
// the last result.
func (j *Judge) platform(own *schema.EffectiveProject) *schema.EffectiveTenant {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.own == nil || share(own, j.own.Projects[""]) != j.own.Projects[""] {
		j.own = ofPlatform(own)
	}
	return j.own
}

// Tenant evaluates one tenant of an estate; instances in before, which is nil for a
// new tenant, exist.
func (j *Judge) Tenant(p *schema.Platform, t, before *schema.TenantEstate, today string) *schema.EffectiveTenant {
	return j.tenant(j.by(p), t, before, today)
}

// Platform evaluates the platform's own documents; those in before, which may be
// nil, exist.
func (j *Judge) Platform(p, before *schema.Platform, today string) []schema.Decision {
	return j.by(p).platform(&schema.Desired{Platform: p}, existingIn(p, before, today)).Decisions
}

// existingIn returns options by which the shared runtimes in before exist.
func existingIn(p, before *schema.Platform, today string) options {
	var was map[string]*schema.SharedRuntimeEstate
	if before != nil {
		was = before.SharedRuntimes
	}
	return since(map[string][]string{"": newRuntimes(p.SharedRuntimes, was)}, nil).at(today)
}

// by finds or makes the rules of a platform. Nodes do not affect rules.
func (j *Judge) by(p *schema.Platform) *rules {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := slices.IndexFunc(j.rules, func(r *rules) bool { return r.of(p) })
	var r *rules
	if i >= 0 {
		r = j.rules[i]
		j.rules = slices.Delete(j.rules, i, i+1)
	} else {
		r = newRules(p)
	}
	j.rules = slices.Insert(j.rules, 0, r)
	if len(j.rules) > mostPlatforms {
		gone := j.rules[mostPlatforms]
		j.rules = slices.Delete(j.rules, mostPlatforms, mostPlatforms+1)
		j.tenants.drop(func(t judgedTenant) bool { return t.rules == gone })
	}
	return r
}

// of reports whether these are the rules of p.
func (r *rules) of(p *schema.Platform) bool {
	c := r.catalog
	return maps.EqualFunc(r.sites, regionsBySite(p), slices.Equal[[]string]) && maps.Equal(c.Apps, p.Apps) &&
		maps.Equal(r.policies, p.Policies) && maps.Equal(c.ArtifactSources, p.ArtifactSources) &&
		sameVersions(c.Versions, p.Versions) &&
		maps.EqualFunc(c.Admissions, p.Admissions, maps.Equal[map[string]*schema.AppAdmission, map[string]*schema.AppAdmission])
}

func sameVersions(a, b map[string]map[string]*schema.AppVersion) bool {
	return maps.EqualFunc(a, b, maps.Equal[map[string]*schema.AppVersion, map[string]*schema.AppVersion])
}

func (j *Judge) tenant(r *rules, t, before *schema.TenantEstate, today string) *schema.EffectiveTenant {
	is := judgedTenant{rules: r, estate: t, fresh: newInstances(t, before), grown: grownUnits(t, before)}
	known := j.tenants.get(t.Name)
	for _, k := range known {
		if k.rules == r && k.estate == t && (!k.dated || k.day == today) && maps.EqualFunc(k.fresh, is.fresh, slices.Equal[[]string]) &&
			maps.EqualFunc(k.grown, is.grown, slices.Equal[[]string]) {
			return k.result
		}
	}
	above := tenantLayers(r.layers, t, r.sites)
	if is.dated = isDated(above, t); is.dated {
		is.day = today
	}
	is.evaluate(above, known)
	j.tenants.add(t.Name, is)
	return is.result
}

// isDated reports whether the result for a tenant below the layers may differ on another day.
func isDated(layers []layer, t *schema.TenantEstate) bool {
	return slices.ContainsFunc(layers, func(l layer) bool { return l.noncompliant.GraceUntil != "" }) || hasLoanDay(t)
}

// newInstances returns the instances of t that are not in before, sorted, by
// project; for "" the shared runtimes.
func newInstances(t, before *schema.TenantEstate) map[string][]string {
	if t == before {
		return nil
	}
	fresh := map[string][]string{}
	for name, p := range t.Projects {
		var was *schema.ProjectEstate
		if before != nil {
			was = before.Projects[name]
		}
		if was == p {
			continue
		}
		for i := range p.Instances {
			if was == nil || was.Instances[i] == nil {
				fresh[name] = append(fresh[name], i)
			}
		}
		slices.Sort(fresh[name])
	}
	var runtimes map[string]*schema.SharedRuntimeEstate
	if before != nil {
		runtimes = before.SharedRuntimes
	}
	fresh[""] = newRuntimes(t.SharedRuntimes, runtimes)
	return fresh
}

// evaluate evaluates a tenant. It takes the projects from known results that depend on
// the same values, and shares equal parts with them.
func (t *judgedTenant) evaluate(above []layer, known []judgedTenant) {
	o := since(t.fresh, t.grown).at(t.day)
	t.alone = make(map[string]*schema.EffectiveProject, len(t.estate.Projects)+1)
	for name := range withOwn(t.estate) {
		project := t.estate.Projects[name]
		i := slices.IndexFunc(known, func(k judgedTenant) bool {
			return name != "" && k.estate.Projects[name] == project && slices.Equal(k.fresh[name], t.fresh[name]) &&
				slices.Equal(k.grown[name], t.grown[name]) && k.sameAbove(t)
		})
		if i >= 0 {
			t.alone[name] = known[i].alone[name]
			continue
		}
		t.alone[name] = shareAny(t.rules.part(t.estate, name, above, o), name, known,
			func(k judgedTenant) map[string]*schema.EffectiveProject { return k.alone })
	}
	t.result, t.over = &schema.EffectiveTenant{Projects: t.alone}, o.ofTenant(above, t.alone)
	if len(t.over) > 0 {
		t.result.Projects = maps.Clone(t.alone)
	}
	for name, over := range t.over {
		refused := share(t.rules.part(t.estate, name, above, o.with(over)), t.alone[name])
		t.result.Projects[name] = shareAny(refused, name, known,
			func(k judgedTenant) map[string]*schema.EffectiveProject { return k.result.Projects })
	}
	for _, k := range known {
		if maps.Equal(k.result.Projects, t.result.Projects) {
			t.result = k.result // the change does not affect policy
		}
	}
}

// sameAbove reports whether two results depend on the same values above projects.
func (t *judgedTenant) sameAbove(o *judgedTenant) bool {
	a, b := t.estate, o.estate
	return t.rules == o.rules && t.day == o.day && a.Policy == b.Policy && a.Roles == b.Roles &&
		suspended(a) == suspended(b) && maps.Equal(a.ArtifactSources, b.ArtifactSources) &&
		maps.Equal(a.Apps, b.Apps) && sameVersions(a.Versions, b.Versions)
}

func suspended(t *schema.TenantEstate) bool { return t.Tenant != nil && t.Tenant.Suspend }

// shareAny shares e with the known results of that project. It ends with the first that is equal,
// which is returned: it is in use, and must not change.
func shareAny(
	e *schema.EffectiveProject, project string, known []judgedTenant, of func(judgedTenant) map[string]*schema.EffectiveProject,
) *schema.EffectiveProject {
	for _, k := range known {
		if was := share(e, of(k)[project]); was != e {
			return was
		}
	}
	return e
}

// share replaces the values of e that equal those of a known result by the same
// pointers, and returns the known result if all of them are equal. A comparison of two estates
// then finds only what differs.
func share(e, known *schema.EffectiveProject) *schema.EffectiveProject {
	if known == nil {
		return e
	}
	shareIn(e.Units, known.Units)
	shareIn(e.Bounds, known.Bounds)
	if maps.Equal(e.Units, known.Units) && maps.Equal(e.Bounds, known.Bounds) &&
		slices.Equal(e.Decisions, known.Decisions) && maps.EqualFunc(e.Operations, known.Operations, schema.SameOperations) &&
		reflect.DeepEqual(e.Noncompliant, known.Noncompliant) {
		return known
	}
	return e
}

func shareIn[V any](of, known map[string]*V) {
	for name, v := range of {
		if was := known[name]; was != nil && reflect.DeepEqual(was, v) {
			of[name] = was
		}
	}
}
