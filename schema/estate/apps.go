package estate

import (
	"fmt"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// appCheck judges references to apps and to their versions.
type appCheck struct {
	*references
	shadows map[string]bool // slugs of own apps that are refused, and mean the platform's
	gone    []string        // slugs of own apps in force that this tree no longer has
}

// maxSuggested limits the number of a tenant's own apps that are compared with a misspelt name: a tenant may
// declare thousands, and misspell as many.
const maxSuggested = 32

// own returns the tree's own document of an app, or nil. In a tenant it has priority over one of
// the platform, as in schema.Platform.AppFor.
func (a *appCheck) own(name string) *load.Document {
	if a.tree.tenant == "" || a.shadows[name] {
		return nil
	}
	return a.tree.names.apps[name]
}

// names lists the apps that may be meant by a misspelt one.
func (a *appCheck) names() []string {
	all := sortedKeys(a.catalog.apps)
	if own := a.tree.names.apps; a.tree.tenant != "" && len(own) <= maxSuggested {
		all = append(all, sortedKeys(own)...)
	}
	return all
}

// exists reports whether the app exists and is valid.
func (a *appCheck) exists(doc *load.Document, at, name string) bool {
	if a.own(name) != nil || slices.Contains(a.gone, name) {
		return a.need(doc, at, "ref.missing-app", a.ownKey(name), "there is no app "+name+" any more") != nil
	}
	if of := a.catalog.apps[name]; of != nil {
		if a.catalog.bad(of) {
			a.without(doc, of.File.Path)
			return false
		}
		return true
	}
	path, _ := schema.Key{Kind: schema.KindApp, Name: name}.Path()
	message := fmt.Sprintf("there is no app %s (%s)", name, path)
	if guess := load.Nearest(name, a.names()); guess != "" {
		message += fmt.Sprintf(": did you mean %q?", guess)
	} else if of := a.tenantsOf(name); len(of) > 0 {
		message += fmt.Sprintf(": it is an app of the tenant %s alone; name one of the platform", strings.Join(of, ", "))
	}
	a.refuse(doc, at, "ref.missing-app", message, path)
	return false
}

// tenantsOf lists the tenants whose own app of a name the platform has admitted, for a document of the platform.
func (a *appCheck) tenantsOf(app string) (tenants []string) {
	if a.tree.tenant != "" {
		return nil // a tenant must not learn about others
	}
	for _, tenant := range sortedKeys(a.catalog.admitted) {
		if a.catalog.admitted[tenant][app] != nil {
			tenants = append(tenants, tenant)
		}
	}
	return tenants
}

func (a *appCheck) ownKey(app string) schema.Key {
	return schema.Key{Kind: schema.KindApp, Tenant: a.tree.tenant, Name: app}
}

// versions returns the versions of an app that documents of this tree name, by name, and whether one
// of them is not in Desired. tenant is that of their keys.
func (a *appCheck) versions(app string) (all map[string]*load.Document, tenant string, bad func(*load.Document) bool) {
	if a.own(app) == nil {
		return a.catalog.versions[app], "", a.catalog.bad
	}
	return a.tree.names.releases[app], a.tree.tenant, a.bad
}

// version returns the version that doc runs, or nil if it is missing or invalid.
func (a *appCheck) version(doc *load.Document, app, version string) *schema.AppVersion {
	there, tenant, bad := a.versions(app)
	v := there[version]
	if v == nil {
		path, _ := schema.Key{Kind: schema.KindAppVersion, Tenant: tenant, Parent: app, Name: version}.Path()
		message := fmt.Sprintf("there is no version %s of %s (%s)", version, app, path)
		if names := sortedKeys(there); len(names) > 0 {
			message += ", there is " + strings.Join(names, ", ")
		}
		needs := []string{path}
		if tenant != "" { // the platform's app had the version, and this one is new
			own, _ := a.ownKey(app).Path()
			needs = append(needs, own)
		}
		a.refuse(doc, "spec.version", "ref.missing-version", message, needs...)
		return nil
	}
	if bad(v) {
		a.without(doc, v.File.Path)
		return nil
	}
	return v.Decl.(*schema.AppVersion)
}
