package authority

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"berth/schema"
)

// RuleAppRequires is the rule of a Decision that denies a service account what its scopes
// name, because an App whose units it operates does not require it.
const RuleAppRequires = "app_requires"

// operated returns the Apps whose units a service account operates, by name: those of the
// instances of its project that name it, or, for a tenant's account, those of the tenant's
// shared runtimes. A project's account never operates a shared runtime (requirement D3).
// Cost: one pass over the instances of the project.
func (r Rules) operated(account schema.Key) (apps []*schema.App) {
	base := r.Base.OrEmpty()
	t := base.Tenants[account.Tenant]
	if t == nil {
		return nil
	}
	names := map[string]bool{}
	if account.Project == "" {
		for _, rt := range t.SharedRuntimes {
			if rt.Runtime != nil && rt.Runtime.Spec.OperatorIdentityRef == account.Name {
				names[rt.Runtime.Spec.App] = true
			}
		}
	}
	for _, i := range cmp.Or(t.Projects[account.Project], &schema.ProjectEstate{}).Instances {
		if i.Spec.OperatorServiceAccount == account.Name {
			names[i.Spec.App] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if app := base.Platform.AppFor(t, name); app != nil {
			apps = append(apps, app)
		}
	}
	return apps
}

// beyondApps denies n to a service account that operates units of an App that does not
// require it. Each App is a bound of its own: an account that operates units of two Apps
// has only what both require, or it would use the rights of one on the units of the other.
func (r Rules) beyondApps(a Actor, n Need) (Decision, bool) {
	for _, app := range r.operated(a.ServiceAccount) {
		what, field := string(n.Permission), "permissions"
		if app.Spec.Requires.AllowsPermission(what) {
			if a.Proof != ProofToken || a.Endpoint == "" || app.Spec.Requires.AllowsEndpoint(a.Endpoint) {
				continue
			}
			what, field = a.Endpoint, "endpoints"
		}
		return beyondApp(n, a.ServiceAccount, app, what, field), true
	}
	return Decision{}, false
}

// BeyondApps decides whether a service account may make a call of the API, a method and a
// path as in allowed_endpoints, by the Apps whose units it operates. It does not check
// allowed_endpoints.
func BeyondApps(r Rules, account schema.Key, endpoint string) (Decision, bool) {
	for _, app := range r.operated(account) {
		if !app.Spec.Requires.AllowsEndpoint(endpoint) {
			return beyondApp(Need{}, account, app, endpoint, "endpoints"), true
		}
	}
	return Decision{}, false
}

// beyondApp denies n because requires.<field> of app does not name what.
func beyondApp(n Need, account schema.Key, app *schema.App, what, field string) Decision {
	d := denied(n, fmt.Sprintf("%s operates units of the app %s, which does not require %s", account, app.Key.Name, plain(what)),
		fmt.Sprintf("use another account, or ask a user with %s to add it to requires.%s in %s", writes(app), field, app.File))
	d.Rule, d.Source = RuleAppRequires, app.At("spec.requires."+field)
	return d
}

// writes returns the permission to change an App.
func writes(app *schema.App) Permission {
	if app.Key.Tenant != "" {
		return CatalogPropose
	}
	return CatalogWrite
}
