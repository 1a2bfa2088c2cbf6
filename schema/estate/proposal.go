package estate

import (
	"fmt"

	"berth/schema"
	"berth/schema/load"
)

// codeNotAdmitted: an app of a tenant that the platform has not admitted.
const codeNotAdmitted = "ref.not-admitted"

// proposal checks an app of a tenant, which is valid and of no use until the platform admits it.
func (c *tenantCheck) proposal(doc *load.Document, d *schema.App) {
	c.endpoints(doc, "spec.requires.endpoints", d.Spec.Requires.Endpoints)
	admission := c.catalog.admitted[d.Key.Tenant][d.Key.Name]
	if admission == nil || c.catalog.bad(admission) {
		path, _ := schema.AdmissionKey(d.Key.Tenant, d.Key.Name).Path()
		c.warn(doc, "metadata.name", codeNotAdmitted, fmt.Sprintf("the app is a proposal: nobody can be entitled to it until a user with apps.catalog.admit adds %s", path))
	}
}

// ownVersion checks a version of an app of a tenant.
func (c *tenantCheck) ownVersion(doc *load.Document, d *schema.AppVersion) {
	c.catalogued(doc, d)
	for _, name := range sortedKeys(d.Spec.Manifest.Artifacts) {
		c.source(doc, "spec.manifest.artifacts."+name+".source", d.Spec.Manifest.Artifacts[name].Source)
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
		}
		if missing {
			e.refuse(s, load.Found(doc, "metadata.name", schema.SeverityWarning, code, fmt.Sprintf("there is no %s (%s): it admits nothing", what, path)))
		}
	}
}
