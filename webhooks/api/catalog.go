package api

import (
	"slices"
	"time"

	"berth/schema"
	"berth/schema/authority"
)

// catalogOf returns the owners of apps in sight, with the platform as nil: each tenant of the
// caller's, and every tenant for a user with the permission at the platform, who admits apps.
func (r *reading) catalogOf() []*schema.TenantEstate {
	owners := []*schema.TenantEstate{nil}
	everything := slices.Contains(r.sight.granted, authority.Scope{})
	for name, t := range r.Desired.Tenants {
		if everything || r.sight.tenant(name) {
			owners = append(owners, t)
		}
	}
	return owners
}

// listApps lists the platform's apps and the own apps of tenants in sight (requirement F9).
func listApps(r *reading) *listing {
	by := map[string]*schema.App{}
	for _, t := range r.catalogOf() {
		of, tenant := r.Desired.Platform.Apps, ""
		if t != nil {
			of, tenant = t.Apps, t.Name
		}
		for slug, a := range of {
			if !r.hides(a) {
				by[tenant+"/"+slug] = a
			}
		}
	}
	return all(by, func(a *schema.App) any {
		return app{a.ID(), a.Key.Name, r.owner(a), a.Spec.DisplayName, a.Spec.Category, a.Spec.Publisher, a.Spec.Description,
			a.Spec.Status, r.declared(a.Head())}
	})
}

// owner is the owner of an app, and of its versions.
func (r *reading) owner(a *schema.App) owned {
	if a.Key.Tenant == "" {
		return owned{Tier: "platform"}
	}
	admitted := r.Desired.Admission(a.Key.Tenant, a.Key.Name) != nil
	return owned{"tenant", a.Key.Tenant, &admitted}
}

// appID is the id of an app that documents of the path's tenant name; its slug if the catalog no
// longer has it.
func (r *reading) appID(slug string) string {
	if a := r.Desired.App(r.tenant, slug); a != nil {
		return a.ID()
	}
	return slug
}

// listVersions lists the versions of every app in sight with a slug: that of the platform, and those
// of tenants.
func listVersions(r *reading) *listing {
	slug := r.params["app_slug"]
	apps, versions := map[string]*schema.App{}, map[string]*schema.AppVersion{}
	for _, t := range r.catalogOf() {
		tenant, a, of := "", r.Desired.Platform.Apps[slug], r.Desired.Platform.Versions[slug]
		if t != nil {
			tenant, a, of = t.Name, t.Apps[slug], t.Versions[slug]
		}
		if a == nil || r.hides(a) {
			continue
		}
		apps[tenant] = a
		for name, v := range of {
			versions[tenant+"/"+name] = v
		}
	}
	if len(apps) == 0 {
		return nil
	}
	l := all(versions, func(v *schema.AppVersion) any {
		s, a := v.Spec, apps[v.Key.Tenant]
		return version{v.Key.Name, a.ID(), slug, r.owner(a), s.Version, s.RuntimeBackend, s.Status, s.Manifest, r.declared(v.Head())}
	})
	l.filters = map[string]filter{"status": {
		[]string{string(schema.StatusActive), string(schema.StatusDeprecated), string(schema.StatusDisabled)},
		func(name, status string) bool { return string(versions[name].Spec.Status) == status },
	}}
	l.created = func(name string) time.Time { return createdAt(r, versions[name].Head()) }
	return l
}

// listSources lists the platform's artifact sources and those of the caller's tenants
// (requirement B3).
func listSources(r *reading) *listing {
	by := map[string]*schema.ArtifactSource{}
	for name, s := range r.Desired.Platform.ArtifactSources {
		by["/"+name] = s
	}
	for tenant, t := range r.Desired.Tenants {
		if r.sight.tenant(tenant) {
			for name, s := range t.ArtifactSources {
				by[tenant+"/"+name] = s
			}
		}
	}
	return all(by, func(s *schema.ArtifactSource) any {
		tier := "platform"
		if s.Key.Tenant != "" {
			tier = "tenant"
		}
		return source{s.Key.Name, tier, s.Key.Tenant, s.Spec.Type, s.Spec.Host, r.declared(s.Head())}
	})
}
