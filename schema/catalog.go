package schema

import (
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

// AppAdmissionSpec is the spec of an AppAdmission: limits of the units of the App. Lists of this kind
// are never nil; an empty list of sources allows no host.
type AppAdmissionSpec struct {
	AllowedControlPlaneScopes []string `json:"allowed_control_plane_scopes"` // never platform: such a unit serves several tenants
	AllowedRuntimeBackends    []string `json:"allowed_runtime_backends"`
	ArtifactSourceAllowlist   []string `json:"artifact_source_allowlist"` // host patterns: a tenant may rename its own sources
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

// Shadowing warns of the Apps of tenants with the slug of an App of the platform. The reader refuses a
// new one, so such an App is older than the platform's: it stays, so that neither holds the other.
func Shadowing(d *Desired) (out []Diagnostic) {
	for tenant, t := range Sorted(d.Tenants) {
		for slug, app := range Sorted(t.Apps) {
			if platform := d.Platform.Apps[slug]; platform != nil {
				out = append(out, app.finding(SeverityWarning, CodeAppShadowed, "metadata.name",
					"the platform has an app %s too (%s): documents of %s that name it mean this one; move to another slug "+
						"to use the platform's", slug, platform.File, tenant))
			}
		}
	}
	return out
}
