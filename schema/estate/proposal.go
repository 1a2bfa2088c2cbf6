package estate

import (
	"fmt"

	"berth/schema"
	"berth/schema/load"
)

// codeNotAdmitted: an app of a tenant that the platform has not admitted.
const codeNotAdmitted = "ref.not-admitted"

// shadows refuses apps of tenants with the slug of an app of the platform that are not in force:
// the slug then means the platform's. One in force is older than the platform's, and stays
// (schema.Shadowing warns of it), so that neither holds the other. A tree that is loaded alone is taken
// to be in force.
func (e *estate) shadows(refused map[*tree][]refusal) {
	platform := e.tree("platform")
	if platform == nil {
		return
	}
	for _, s := range e.trees {
		if s.tenant == "" {
			continue
		}
		held := e.held.tree(s.name)
		for _, slug := range sortedKeys(s.names.apps) {
			doc, other := s.names.apps[slug], platform.names.apps[slug]
			if other == nil {
				continue
			}
			e.free = false
			inForce := held != nil && held.at(doc.File.Path) != nil && held.at(doc.File.Path).Valid()
			if e.held == nil || inForce {
				continue
			}
			refused[s.tree] = append(refused[s.tree], refusal{doc, shadow(doc, other.File.Path), []string{other.File.Path}})
		}
	}
}

// shadow is the finding about a tenant's app, valid or not, with the slug of the platform's at path.
func shadow(doc *load.Document, path string) schema.Diagnostic {
	message := fmt.Sprintf("the platform has an app %s (%s): choose another slug", doc.Key.Name, path)
	if !doc.Valid() {
		return schema.Diagnostic{Severity: schema.SeverityError, Code: schema.CodeAppShadowed, File: doc.File.Path, Line: 1, Column: 1,
			Message: message}
	}
	return load.Found(doc, "metadata.name", schema.SeverityError, schema.CodeAppShadowed, message)
}

// proposal checks an app of a tenant, which is valid and of no use until the platform admits it.
func (c *tenantCheck) proposal(doc *load.Document, d *schema.App) {
	c.page(doc, d)
	c.endpoints(doc, "spec.requires.endpoints", d.Spec.Requires.Endpoints, "spec.requires.permissions", d.Spec.Requires.Permissions)
	admission := c.catalog.admitted[d.Key.Tenant][d.Key.Name]
	if admission == nil || c.catalog.bad(admission) {
		path, _ := schema.AdmissionKey(d.Key.Tenant, d.Key.Name).Path()
		c.warn(doc, "metadata.name", codeNotAdmitted,
			fmt.Sprintf("the app is a proposal: nobody can be entitled to it until a user with apps.catalog.admit adds %s", path))
	}
}

// ownVersion checks a version of an app of a tenant.
func (c *tenantCheck) ownVersion(doc *load.Document, d *schema.AppVersion) {
	c.catalogued(doc, d)
	for _, name := range sortedKeys(d.Spec.Manifest.Roles) {
		c.stocked(doc, "spec.manifest.roles."+name+".node_role", nodeRole, d.Spec.Manifest.Roles[name].NodeRole)
	}
	for _, name := range sortedKeys(d.Spec.Manifest.Artifacts) {
		c.source(doc, "spec.manifest.artifacts."+name+".source", d.Spec.Manifest.Artifacts[name].Source)
	}
}

// admittedHosts warns of the name of a tenant's artifact source in the list of hosts of an admission.
func (e *estate) admittedHosts(s *standing, doc *load.Document, t *standing) {
	for i, host := range doc.Decl.(*schema.AppAdmission).Spec.ArtifactSourceAllowlist {
		path, _ := schema.Key{Kind: schema.KindArtifactSource, Tenant: doc.Key.Parent, Name: host}.Path()
		if t != nil && t.at(path) != nil && !isHostOf(host, t.at(path)) {
			e.refuse(s, load.Found(doc, load.Item("spec.artifact_source_allowlist", i), schema.SeverityWarning, CodeNoEffect,
				sourceNotHost(host, t.at(path))))
		}
	}
}

// admissions warns about admissions of apps that no tenant has. An admission may come before the app,
// and stay after it.
func (e *estate) admissions() {
	s := e.tree("platform")
	if s == nil {
		return
	}
	for _, doc := range s.names.admitted {
		if s.out(doc) {
			continue
		}
		tenant := doc.Key.Parent
		path, missing := e.missing(tenant)
		code, what := "ref.missing-owner", "tenant "+tenant
		if !missing {
			path, _ = schema.Key{Kind: schema.KindApp, Tenant: tenant, Name: doc.Key.Name}.Path()
			t := e.tree("tenants/" + tenant)
			code, what = "ref.missing-app", fmt.Sprintf("app %s of the tenant %s", doc.Key.Name, tenant)
			missing = t != nil && t.at(path) == nil
			e.admittedHosts(s, doc, t)
		}
		if missing {
			e.refuse(s, load.Found(doc, "metadata.name", schema.SeverityWarning, code,
				fmt.Sprintf("there is no %s (%s): it admits nothing", what, path)))
		}
	}
}
