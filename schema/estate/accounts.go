package estate

import (
	"fmt"
	"slices"

	"berth/schema"
	"berth/schema/authority"
	"berth/schema/load"
)

// endpoints warns about calls of the API that no account may make, and about those whose permission is not among
// permissions, which the field listed has; nil permissions set no bound. They are warnings: the
// endpoints depend on the version of Berth, and a document in force must not block an upgrade.
func (c *check) endpoints(doc *load.Document, path string, list []string, listed string, permissions []string) {
	takes := map[string]string{}
	var all []string
	for _, e := range authority.Endpoints() {
		takes[e.Call], all = string(e.Permission), append(all, e.Call)
	}
	c.warnUnknown(doc, load.Items(path), list, unknown{
		code:  CodeNoEffect,
		known: func(name string) bool { return slices.Contains(all, name) },
		all:   func() []string { return all },
		says: func(name string) string {
			return name + " is not an endpoint of the API that an account can call, and grants nothing"
		},
	})
	for i, call := range list {
		if p := takes[call]; p != "" && permissions != nil && !slices.Contains(permissions, p) {
			c.warn(doc, load.Item(path, i), CodeNoEffect,
				fmt.Sprintf("%s grants nothing: it takes %s, which %s lacks; add it there, or take the endpoint away", call, p, listed))
		}
	}
}

// scopes warns about permissions that no service account of the place can have.
func (c *tenantCheck) scopes(doc *load.Document, d *schema.ServiceAccount) {
	for i, p := range d.Spec.Scopes {
		if authority.AccountMayHave(d.Key, authority.Permission(p)) {
			continue
		}
		why := "no service account can have it"
		if d.Key.Project == "" {
			why = "a tenant's service account acts on shared runtimes only"
		}
		c.warn(doc, load.Item("spec.scopes", i), CodeNoEffect, fmt.Sprintf("%s grants nothing: %s; take it away", p, why))
	}
}

// operatedUnit is an instance or a shared runtime that a service account operates.
type operatedUnit struct {
	key schema.Key
	app string
}

// operatedUnits returns the units that a service account operates, by key.
func (c *tenantCheck) operatedUnits(account schema.Key) []operatedUnit {
	if c.operated != nil {
		return c.operated[account]
	}
	c.operated = map[schema.Key][]operatedUnit{}
	for _, doc := range c.tree.docs {
		by, app := schema.Key{Kind: schema.KindServiceAccount, Tenant: doc.Key.Tenant, Project: doc.Key.Project}, ""
		switch d := doc.Decl.(type) {
		case *schema.Instance:
			by.Name, app = d.Spec.OperatorServiceAccount, d.Spec.App
		case *schema.SharedRuntime:
			by.Name, app = d.Spec.OperatorIdentityRef, d.Spec.App
		}
		if by.Name != "" && !c.bad(doc) {
			c.operated[by] = append(c.operated[by], operatedUnit{doc.Key, app})
		}
	}
	for _, units := range c.operated {
		slices.SortFunc(units, func(a, b operatedUnit) int { return a.key.Compare(b.key) })
	}
	return c.operated[account]
}

// appOf returns the valid App of a unit: the tenant's own, or else the platform's.
func (c *tenantCheck) appOf(unit operatedUnit) *schema.App {
	doc, bad := c.catalog.apps[unit.app], c.catalog.bad
	if own := c.apps.own(unit.app); own != nil {
		doc, bad = own, c.bad
	}
	if doc == nil || bad(doc) {
		return nil
	}
	return doc.Decl.(*schema.App)
}

// beyondApps warns about what an account lists and an App whose units it operates does not
// require. The account is valid: the platform may narrow an App at any time, and authority
// denies the rest when it is used.
func (c *tenantCheck) beyondApps(doc *load.Document, d *schema.ServiceAccount) {
	warned, checked := map[string]bool{}, map[string]bool{} // by path: one App is enough; by App: one unit is enough
	for _, unit := range c.operatedUnits(d.Key) {
		app := c.appOf(unit)
		if app == nil || checked[unit.app] {
			continue
		}
		checked[unit.app] = true
		for _, list := range []struct {
			path, of string
			items    []string
			allows   func(string) bool
		}{
			{"spec.scopes", "permissions", d.Spec.Scopes, app.Spec.Requires.AllowsPermission},
			{"spec.allowed_endpoints", "endpoints", d.Spec.AllowedEndpoints, app.Spec.Requires.AllowsEndpoint},
		} {
			at := app.At("spec.requires." + list.of)
			for i, item := range list.items {
				path := load.Item(list.path, i)
				if list.allows(item) || warned[path] {
					continue
				}
				warned[path] = true
				c.warn(doc, path, CodeNoEffect,
					fmt.Sprintf("%s grants nothing: the account operates %s, and the app %s does not require it (%s:%d); take it away, "+
						"or operate the unit with another account",
						item, unit.key, unit.app, at.File, at.Line))
			}
		}
	}
}
