// Package onboard says whether an app of an estate is ready for onboarding: the seven points of SPA, each
// with its evidence or with what is missing (requirement B7).
//
// It is pure. It must not know any scheduler, a host or what runs: it judges what is declared and in force.
package onboard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/authority"
	"berth/schema/event"
)

// Point is one of the seven points.
type Point struct {
	Number   int      `json:"number"`
	Name     string   `json:"name"`
	Holds    bool     `json:"holds"`
	Evidence []string `json:"evidence"`          // file:line and what it shows
	Missing  string   `json:"missing,omitempty"` // what is missing, and the next step; "" if it holds
}

// Apps returns the apps of a slug: that of the platform and those of tenants, by tenant; only one
// tenant's if tenant is not "".
func Apps(d *schema.Desired, tenant, slug string) (apps []*schema.App) {
	if a := d.Platform.Apps[slug]; a != nil && tenant == "" {
		apps = append(apps, a)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Tenants)) {
		if a := d.Tenants[name].Apps[slug]; a != nil && (tenant == "" || tenant == name) {
			apps = append(apps, a)
		}
	}
	return apps
}

// Check returns the seven points for an app of the estate. backends are the runtime backends that the
// program has.
func Check(d *schema.Desired, administrators []string, app *schema.App, backends []string) []Point {
	c := newCheck(d, app, backends)
	c.rules = authority.Rules{Base: d, Administrators: administrators}
	points := []Point{c.contracts(), c.accounts(), c.boundaries(), c.events(), c.sources(), c.lifecycle(), c.runbook()}
	for i := range points {
		points[i].Number, points[i].Holds = i+1, points[i].Missing == ""
		if points[i].Evidence == nil {
			points[i].Evidence = []string{}
		}
	}
	return points
}

type check struct {
	*schema.Desired
	rules    authority.Rules
	app      *schema.App
	backends []string
	versions []*schema.AppVersion // active ones, by name
}

// newCheck returns the check of an app of the estate.
func newCheck(d *schema.Desired, app *schema.App, backends []string) *check {
	c := &check{Desired: d, app: app, backends: backends}
	versions := d.Platform.VersionsFor(d.Tenants[app.Key.Tenant], app.Key.Name)
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		if v := versions[name]; v.Spec.Status == schema.StatusActive {
			c.versions = append(c.versions, v)
		}
	}
	return c
}

// at is the place of a field of a document, for evidence.
func at(h *schema.Header, path string) string {
	return h.At(path).Place()
}

func (c *check) contracts() Point {
	p := c.published()
	entitled := false
	for e := range c.entitlements() {
		p.Evidence, entitled = append(p.Evidence, at(e.Head(), "spec.enabled")+": entitled"), true
	}
	admission := c.Admission(c.app.Key.Tenant, c.app.Key.Name)
	if admission != nil {
		p.Evidence = append(p.Evidence, at(admission.Head(), "metadata.name")+": admitted")
	}
	switch {
	case p.Missing != "":
	case c.app.Key.Tenant != "" && admission == nil:
		path, _ := schema.AdmissionKey(c.app.Key.Tenant, c.app.Key.Name).Path()
		p.Missing = at(c.app.Head(), "metadata.name") + ": the app is a proposal: ask a user with apps.catalog.admit for " + path
	case !entitled:
		p.Missing = "no project is entitled: add entitlements/" + c.app.Key.Name + ".yaml to a project"
	}
	return p
}

// published is the part of the first point that the catalogue declares.
func (c *check) published() Point {
	p := Point{Name: "uses catalog, entitlement and instance", Evidence: []string{at(c.app.Head(), "spec") + ": the app"}}
	for _, v := range c.versions {
		if !slices.Contains(c.backends, v.Spec.RuntimeBackend) {
			p.Missing = fmt.Sprintf("%s: runtime_backend %s is not one of %s: use one, or add a backend that passes runtimes/runtimetest",
				at(v.Head(), "spec.runtime_backend"), v.Spec.RuntimeBackend, strings.Join(c.backends, ", "))
			return p
		}
		p.Evidence = append(p.Evidence, at(v.Head(), "spec.runtime_backend")+": version "+v.Key.Name+" on "+v.Spec.RuntimeBackend)
	}
	switch {
	case c.app.Spec.Status == schema.StatusDisabled:
		p.Missing = at(c.app.Head(), "spec.status") + ": the app is disabled"
	case len(c.versions) == 0:
		p.Missing = "no version is active: publish one in " + strings.TrimSuffix(c.app.File, "app.yaml")
	}
	return p
}

// entitlements yields those that enable the app.
func (c *check) entitlements() func(func(*schema.Entitlement) bool) {
	return func(yield func(*schema.Entitlement) bool) {
		for p := range c.users() {
			if e := p.Entitlements[c.app.Key.Name]; e != nil && e.Spec.Enabled && !yield(e) {
				return
			}
		}
	}
}

// projects yields all projects in order.
func (c *check) projects() func(func(*schema.ProjectEstate) bool) {
	return c.projectsOf(func(string) bool { return true })
}

// users yields the projects whose documents mean this app by its slug.
func (c *check) users() func(func(*schema.ProjectEstate) bool) {
	return c.projectsOf(func(tenant string) bool { return c.App(tenant, c.app.Key.Name) == c.app })
}

// projectsOf yields the projects of some tenants in order.
func (c *check) projectsOf(some func(tenant string) bool) func(func(*schema.ProjectEstate) bool) {
	return func(yield func(*schema.ProjectEstate) bool) {
		for tenant, t := range schema.Sorted(c.Tenants) {
			if !some(tenant) {
				continue
			}
			for _, p := range schema.Sorted(t.Projects) {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// operators returns the service accounts that operate units of the app, with the place of each unit.
func (c *check) operators() (accounts []*schema.ServiceAccount, where []string) {
	add := func(sa *schema.ServiceAccount, unit *schema.Header, field string) {
		if sa != nil {
			accounts, where = append(accounts, sa), append(where, at(unit, field))
		}
	}
	for p := range c.users() {
		for _, i := range schema.Sorted(p.Instances) {
			if i.Spec.App == c.app.Key.Name {
				add(p.ServiceAccounts[i.Spec.OperatorServiceAccount], i.Head(), "spec.operator_service_account")
			}
		}
	}
	for tenant, t := range schema.Sorted(c.Tenants) {
		for _, s := range schema.Sorted(t.SharedRuntimes) {
			if r := s.Runtime; r != nil && c.App(tenant, r.Spec.App) == c.app {
				add(t.ServiceAccounts[r.Spec.OperatorIdentityRef], r.Head(), "spec.operator_identity_ref")
			}
		}
	}
	return accounts, where
}

func (c *check) accounts() Point {
	p := Point{Name: "uses service accounts for automation"}
	accounts, where := c.operators()
	for i, sa := range accounts {
		p.Evidence = append(p.Evidence, fmt.Sprintf("%s: operated by %s with %d permissions", where[i], sa.Key, len(sa.Spec.Scopes)))
	}
	switch {
	case len(accounts) == 0:
		p.Missing = "no instance of the app names an operator_service_account, and no shared runtime an operator_identity_ref: declare " +
			"an account in service-accounts/ and name it"
	case c.app.Spec.Requires.Permissions == nil:
		p.Missing = c.noRequires()
	default:
		p.Evidence = append(p.Evidence, at(c.app.Head(), "spec.requires")+": no account of the app gets more")
	}
	return p
}

func (c *check) noRequires() string {
	return at(c.app.Head(), "spec") + ": spec.requires.permissions is missing: list the permissions that an operator of the app needs"
}

// boundaries tries each permission of each operator in every other project, with the rules that decide at
// run time. The own projects of a tenant's account are those of its tenant.
func (c *check) boundaries() Point {
	p := Point{Name: "passes negative tests of tenant and project boundaries"}
	accounts, _ := c.operators()
	tried := 0
	for _, sa := range accounts {
		for other := range c.projects() {
			if other.Project == nil || other.Project.Key.Tenant == sa.Key.Tenant && (sa.Key.Project == "" || other.Name == sa.Key.Project) {
				continue
			}
			scope := authority.Scope{Tenant: other.Project.Key.Tenant, Project: other.Name}
			permission, requests := c.permitted(sa, scope)
			if permission != "" {
				p.Missing = fmt.Sprintf("%s may use %s in %s.%s: remove the role that gives it", sa.Key, permission, scope.Tenant,
					scope.Project)
				return p
			}
			tried += requests
		}
	}
	if tried == 0 {
		p.Missing = "nothing could be tried: it needs an operator account and a second project"
		return p
	}
	p.Evidence = []string{fmt.Sprintf("%d requests of its accounts in other projects were decided, and all denied", tried)}
	return p
}

// permitted tries each permission of an account at each of its endpoints. It returns the first one that the account
// has in a scope, or "", and the number of requests.
func (c *check) permitted(sa *schema.ServiceAccount, scope authority.Scope) (first authority.Permission, requests int) {
	for _, permission := range authority.Permissions() {
		for _, endpoint := range append([]string{""}, sa.Spec.AllowedEndpoints...) {
			requests++
			actor := authority.Actor{ServiceAccount: sa.Key, Proof: authority.ProofToken, Endpoint: endpoint}
			if authority.May(c.rules, actor, permission, scope).Allowed {
				return permission, requests
			}
		}
	}
	return "", requests
}

func (c *check) events() Point {
	p := Point{Name: "emits lifecycle events with correlation"}
	for _, d := range event.Definitions() {
		if strings.HasPrefix(string(d.Type), "apps.instance.") {
			p.Evidence = append(p.Evidence, string(d.Type))
		}
	}
	slices.Sort(p.Evidence)
	if len(c.versions) == 0 {
		p.Missing = "no version is active, so no backend emits events"
		return p
	}
	p.Evidence = append(p.Evidence,
		"Berth emits them for every backend, each with the correlation id of its change (berth schema export --events)")
	return p
}

func (c *check) sources() Point {
	p := Point{Name: "supports policy-governed artifact sources"}
	for _, v := range c.versions {
		for _, name := range slices.Sorted(maps.Keys(v.Spec.Manifest.Artifacts)) {
			source := v.Spec.Manifest.Artifacts[name].Source
			here := at(v.Head(), "spec.manifest.artifacts."+name+".source")
			if c.Platform.ArtifactSources[source] == nil &&
				(c.app.Key.Tenant == "" || c.Tenants[c.app.Key.Tenant].ArtifactSources[source] == nil) {
				p.Missing = fmt.Sprintf("%s: the source %s is not declared in artifact-sources/", here, source)
				return p
			}
			p.Evidence = append(p.Evidence, here+": from "+source)
		}
	}
	if p.Evidence == nil {
		p.Evidence = []string{"no version has artifacts; policy decides on a source before one is used"}
	}
	return p
}

func (c *check) lifecycle() Point {
	p := Point{Name: "defines upgrade, rollback and deletion"}
	names := map[string]*schema.AppVersion{}
	for _, v := range c.versions {
		names[v.Key.Name] = v
	}
	for _, v := range c.versions {
		if v.Spec.Manifest.UpgradeFrom == nil && len(c.versions) > 1 {
			p.Missing = at(v.Head(), "spec.manifest") +
				": upgrade_from is missing: list the versions from which an instance may change to this one"
			return p
		}
		for _, from := range v.Spec.Manifest.UpgradeFrom {
			p.Evidence = append(p.Evidence, fmt.Sprintf("%s: from %s to %s", at(v.Head(), "spec.manifest.upgrade_from"), from, v.Key.Name))
			if back := names[from]; back != nil && !slices.Contains(back.Spec.Manifest.UpgradeFrom, v.Key.Name) {
				p.Missing = fmt.Sprintf("%s: no way back from %s to %s: add %s to upgrade_from of %s", at(back.Head(), "spec.manifest"),
					v.Key.Name, from, v.Key.Name, from)
				return p
			}
		}
	}
	switch {
	case len(c.versions) == 0:
		p.Missing = "no version is active"
	case len(c.versions) == 1:
		p.Evidence = append(p.Evidence,
			at(c.versions[0].Head(), "spec.version")+
				": the only version; a change of its values is upgraded and rolled back by a pull request")
	}
	p.Evidence = append(p.Evidence, "removing the document deletes the instance, unless deletion_protection is set")
	return p
}

func (c *check) runbook() Point {
	p := Point{Name: "has a support runbook"}
	if c.app.Spec.Runbook == "" {
		p.Missing = at(c.app.Head(), "spec") +
			": spec.runbook is missing: name the page with the steps from an error by its correlation id to the log, the ledger, the " +
			"trace and the events"
		return p
	}
	notes, below := c.Platform.Notes, "platform/"
	if tenant := c.app.Key.Tenant; tenant != "" {
		notes, below = c.Tenants[tenant].Notes, "tenants/"+tenant+"/"
	}
	if !schema.IsPublished(c.app.Spec.Runbook, notes) {
		p.Missing = fmt.Sprintf("%s: %s is not a README.md below %s: name one there, or an https link", at(c.app.Head(),
			"spec.runbook"), c.app.Spec.Runbook, below)
		return p
	}
	p.Evidence = []string{at(c.app.Head(), "spec.runbook") + ": " + c.app.Spec.Runbook}
	return p
}
