package policy

import (
	"maps"
	"slices"
	"sync"

	"berth/schema"
)

// Limits of the results that a Judge keeps: for each tenant the last few estates, such
// as those in force, on main and in a pull request; and only results of the last few
// platforms.
const (
	mostEstates   = 4
	mostPlatforms = 3
)

// Judge evaluates the estates of one repository one after another. Its result is
// that of Evaluate. It does not evaluate tenants, projects and instances again whose
// inputs are unchanged, and returns the same pointers for them, so the cost is that
// of the change. It relies on the reader to keep the pointers of unchanged
// documents. Safe for concurrent use.
type Judge struct {
	mu      sync.Mutex
	rules   []*judgedRules // the most recently used first
	tenants map[string][]*judgedTenant
}

// judgedRules is rules with the platform's own decisions.
type judgedRules struct {
	*rules
	platform *schema.Platform  // the last platform with these rules
	sources  []schema.Decision // decisions about the platform's sources
}

// judgedTenant is the result for a tenant, and its inputs.
type judgedTenant struct {
	rules    *judgedRules
	estate   *schema.TenantEstate
	fresh    map[string][]string // instances that do not exist yet, sorted, by project
	today    string
	dated    bool // the result may differ on another day
	projects map[string]*judgedProject
	result   *schema.EffectiveTenant
}

type judgedProject struct {
	estate    *schema.ProjectEstate
	instances map[string]*judgement
	dated     bool
	result    *schema.EffectiveProject
}

// Evaluate evaluates the whole estate; instances in before exist.
func (j *Judge) Evaluate(d, before *schema.Desired, today string) *schema.Effective {
	r := j.by(d.Platform)
	tenants := make(map[string]*schema.EffectiveTenant, len(d.Tenants))
	for name, t := range d.Tenants {
		tenants[name] = j.tenant(r, t, before.Tenants[name], today)
	}
	j.forget(d.Tenants)
	e := &schema.Effective{Tenants: tenants, Nodes: d.Platform.Nodes}
	e.Own, e.OwnNoncompliant = r.ofPlatform(d.Platform, before.Platform, today)
	return e
}

// Tenant evaluates one tenant of an estate; instances in before, which is nil for a
// new tenant, exist.
func (j *Judge) Tenant(p *schema.Platform, t, before *schema.TenantEstate, today string) *schema.EffectiveTenant {
	return j.tenant(j.by(p), t, before, today)
}

// Platform evaluates the platform's own documents; those in before, which may be
// nil, exist.
func (j *Judge) Platform(p, before *schema.Platform, today string) []schema.Decision {
	ds, _ := j.by(p).ofPlatform(p, before, today)
	return ds
}

func (r *judgedRules) ofPlatform(p, before *schema.Platform, today string) ([]schema.Decision, []schema.Noncompliance) {
	var was map[string]*schema.SharedRuntimeEstate
	if before != nil {
		was = before.SharedRuntimes
	}
	return r.rules.platform(p, r.sources, options{today: today, existing: notAmong(newRuntimes(p.SharedRuntimes, was))})
}

// by finds or makes the rules of a platform. Nodes do not affect rules.
func (j *Judge) by(p *schema.Platform) *judgedRules {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := slices.IndexFunc(j.rules, func(r *judgedRules) bool { return r.platform == p || r.of(p) })
	var r *judgedRules
	if i >= 0 {
		r = j.rules[i]
		j.rules = slices.Delete(j.rules, i, i+1)
	} else {
		r = &judgedRules{rules: newRules(p), sources: EvaluatePlatform(p)}
	}
	r.platform = p
	j.rules = slices.Insert(j.rules, 0, r)
	if len(j.rules) > mostPlatforms {
		gone := j.rules[mostPlatforms]
		j.rules = slices.Delete(j.rules, mostPlatforms, mostPlatforms+1)
		for name, all := range j.tenants {
			j.tenants[name] = slices.DeleteFunc(slices.Clone(all), func(t *judgedTenant) bool { return t.rules == gone })
		}
	}
	return r
}

// of reports whether these are the rules of p.
func (r *rules) of(p *schema.Platform) bool {
	return maps.Equal(r.apps, p.Apps) && maps.Equal(r.policies, p.Policies) && maps.Equal(r.sources, p.ArtifactSources) &&
		maps.EqualFunc(r.versions, p.Versions, maps.Equal[map[string]*schema.AppVersion, map[string]*schema.AppVersion])
}

// forget drops tenants that no longer exist, once there are many.
func (j *Judge) forget(there map[string]*schema.TenantEstate) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.tenants) > 2*len(there)+mostEstates {
		maps.DeleteFunc(j.tenants, func(name string, _ []*judgedTenant) bool { return there[name] == nil })
	}
}

func (j *Judge) tenant(r *judgedRules, t, before *schema.TenantEstate, today string) *schema.EffectiveTenant {
	fresh := newInstances(t, before)
	j.mu.Lock()
	known := j.tenants[t.Name]
	j.mu.Unlock()
	for _, k := range known {
		if k.rules == r && k.estate == t && (k.today == today || !k.dated) && maps.EqualFunc(k.fresh, fresh, slices.Equal[[]string]) {
			return k.result
		}
	}
	made := r.judge(t, fresh, today, known)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.tenants == nil {
		j.tenants = map[string][]*judgedTenant{}
	}
	all := j.tenants[t.Name]
	j.tenants[t.Name] = append([]*judgedTenant{made}, all[:min(len(all), mostEstates-1)]...)
	return made.result
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

// judge evaluates a tenant, and reuses earlier results of it.
func (r *judgedRules) judge(t *schema.TenantEstate, fresh map[string][]string, today string, known []*judgedTenant) *judgedTenant {
	known = slices.DeleteFunc(slices.Clone(known), func(k *judgedTenant) bool {
		return k.rules != r || k.estate.Policy != t.Policy || k.estate.Roles != t.Roles || !maps.Equal(k.estate.ArtifactSources, t.ArtifactSources) ||
			suspended(k.estate) != suspended(t)
	})
	above := tenantLayers(r.layers, t)
	out := &judgedTenant{rules: r, estate: t, fresh: fresh, today: today, projects: make(map[string]*judgedProject, len(t.Projects)),
		result: &schema.EffectiveTenant{Projects: make(map[string]*schema.EffectiveProject, len(t.Projects))}}
	out.result.Own, out.result.Noncompliant = r.own(t, above, options{today: today, existing: notAmong(fresh[""])})
	out.dated = slices.ContainsFunc(out.result.Noncompliant, func(n schema.Noncompliance) bool { return n.Day != "" })
	for name, project := range t.Projects {
		p := r.judgeProject(t, project, above, fresh[name], today, known)
		out.projects[name], out.result.Projects[name] = p, p.result
		out.dated = out.dated || p.dated
	}
	for _, k := range known {
		if maps.Equal(k.result.Projects, out.result.Projects) && slices.Equal(k.result.Own, out.result.Own) && slices.EqualFunc(k.result.Noncompliant, out.result.Noncompliant, sameFate) {
			out.result = k.result // the change does not affect policy
		}
	}
	return out
}

func suspended(t *schema.TenantEstate) bool { return t.Tenant != nil && t.Tenant.Suspend }

// judgeProject evaluates a project, and reuses earlier results by the same rules and
// layers.
func (r *judgedRules) judgeProject(t *schema.TenantEstate, project *schema.ProjectEstate, above []layer, fresh []string, today string, known []*judgedTenant) *judgedProject {
	var was map[string]*judgement
	for _, k := range known {
		p := k.projects[project.Name]
		if p == nil {
			continue
		}
		if p.estate == project && slices.Equal(k.fresh[project.Name], fresh) && (k.today == today || !p.dated) {
			return p
		}
		if was == nil && p.estate.Roles == project.Roles {
			was = p.instances
		}
	}
	all := r.project(t, project, above, options{today: today, existing: notAmong(fresh)}, was)
	out := &judgedProject{estate: project, instances: make(map[string]*judgement, len(all)), result: r.effective(t, project, above, all)}
	for _, j := range all {
		out.instances[j.key.Name] = j
		out.dated = out.dated || j.dated() || j.noncompliance != nil && j.noncompliance.Day != ""
	}
	return out
}
