package schema

import (
	"fmt"
	"maps"
	"slices"
)

// AppAdmission lets a tenant use an App of its own catalogue (requirement F9): Key.Parent is the
// tenant and Key.Name the slug. Without one, the App is a proposal. An admission is a layer of policy
// for the units of that App: it only narrows what the layers above leave.
type AppAdmission struct {
	Header
	Spec AppAdmissionSpec
}

// AppAdmissionSpec is the spec of an AppAdmission: what units of the App may be. Lists of this kind
// are never nil; an empty list of sources allows no host.
type AppAdmissionSpec struct {
	AllowedControlPlaneScopes []string `json:"allowed_control_plane_scopes"` // never platform: such a unit serves several tenants
	AllowedRuntimeBackends    []string `json:"allowed_runtime_backends"`
	ArtifactSourceAllowlist   []string `json:"artifact_source_allowlist"` // host patterns: a tenant may change what its own sources are named
}

// AdmissionKey is the key of the admission of a tenant's App.
func AdmissionKey(tenant, app string) Key {
	return Key{Kind: KindAppAdmission, Parent: tenant, Name: app}
}

// AppFor is the App that a document of t, nil for the platform, names by a slug, or nil. A tenant's
// own App comes before the platform's: a new App of the platform changes no unit that runs.
// The reader refuses a tenant's new App with a slug of the platform.
func (p *Platform) AppFor(t *TenantEstate, slug string) *App {
	if t != nil && t.Apps[slug] != nil {
		return t.Apps[slug]
	}
	return p.Apps[slug]
}

// VersionsFor are the versions of AppFor, by name.
func (p *Platform) VersionsFor(t *TenantEstate, slug string) map[string]*AppVersion {
	if t != nil && t.Apps[slug] != nil {
		return t.Versions[slug]
	}
	return p.Versions[slug]
}

// App is the App that a document of a tenant, "" for the platform, names by a slug, or nil.
func (d *Desired) App(tenant, slug string) *App {
	return d.Platform.AppFor(d.Tenants[tenant], slug)
}

// Version is a version of App(tenant, app), or nil.
func (d *Desired) Version(tenant, app, version string) *AppVersion {
	return d.Platform.VersionsFor(d.Tenants[tenant], app)[version]
}

// Admission is the admission of a tenant's App, or nil.
func (d *Desired) Admission(tenant, app string) *AppAdmission {
	return d.Platform.Admissions[tenant][app]
}

// versions are all versions of the platform and of the tenants, by tenant, app and name.
func (d *Desired) versions() (all []*AppVersion) {
	add := func(of map[string]map[string]*AppVersion) {
		for _, app := range slices.Sorted(maps.Keys(of)) {
			for _, name := range slices.Sorted(maps.Keys(of[app])) {
				all = append(all, of[app][name])
			}
		}
	}
	add(d.Platform.Versions)
	for _, tenant := range slices.Sorted(maps.Keys(d.Tenants)) {
		add(d.Tenants[tenant].Versions)
	}
	return all
}

// CodeAppShadowed is the code of a finding about an App of a tenant with the slug of an App of the
// platform.
const CodeAppShadowed = "conflict.app"

// Shadowing finds the Apps of tenants in force with the slug of an App of the platform. The reader
// refuses a new one, so such an App is older than the platform's: it stays, so that neither holds the
// other, and cannot be deleted while its units run, which would become units of another App. before is
// in force and may be nil; after is what would be. Apps of different tenants are unrelated. Pure.
func Shadowing(before, after *Desired) (out []Diagnostic) {
	for _, tenant := range slices.Sorted(maps.Keys(after.Tenants)) {
		t := after.Tenants[tenant]
		for _, slug := range slices.Sorted(maps.Keys(t.Apps)) {
			if platform := after.Platform.Apps[slug]; platform != nil {
				out = append(out, t.Apps[slug].finding("metadata.name", SeverityWarning, CodeAppShadowed,
					fmt.Sprintf("the platform has an app %s too (%s): documents of %s that name it mean this one; move to another slug to use the platform's", slug, platform.File, tenant)))
			}
		}
		if before == nil || before.Tenants[tenant] == nil {
			continue
		}
		was := before.Tenants[tenant]
		for _, slug := range slices.Sorted(maps.Keys(was.Apps)) {
			platform, user := after.Platform.Apps[slug], t.userOf(slug)
			if t.Apps[slug] != nil || platform == nil || user == nil || was.userOf(slug) == nil {
				continue
			}
			out = append(out, was.Apps[slug].finding("metadata.name", SeverityError, CodeAppShadowed,
				fmt.Sprintf("%s runs it, and would become one of the platform's %s (%s): delete its instances and shared runtimes first", user.Key, platform.Key, platform.File)))
		}
	}
	return out
}

// userOf is the first unit of a tenant that runs an App, or nil.
func (t *TenantEstate) userOf(slug string) *Header {
	for _, name := range slices.Sorted(maps.Keys(t.SharedRuntimes)) {
		if r := t.SharedRuntimes[name].Runtime; r != nil && r.Spec.App == slug {
			return &r.Header
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Projects)) {
		p := t.Projects[name]
		for _, i := range slices.Sorted(maps.Keys(p.Instances)) {
			if p.Instances[i].Spec.App == slug {
				return &p.Instances[i].Header
			}
		}
	}
	return nil
}
