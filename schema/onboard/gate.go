package onboard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
)

// CodeIncomplete is the code of a finding about an app that is not ready for onboarding.
const CodeIncomplete = "onboard.incomplete"

// Gate returns the rule for changes (requirement B7: other apps only with a passing check). A new active version
// of an app and a newly enabled entitlement get a warning that names what the app lacks. A new instance or shared
// runtime of such an app, also one in place of another by its uid or app, is an error where a policy says
// require_onboarding. Existing units are never affected.
//
// The rule judges the points that documents decide: 1, 2, 5, 6 and 7, with the operator of the new unit alone, so
// that no project decides about another. Berth keeps points 3 and 4 for every app.
func Gate(backends []string) func(before, after *schema.Desired) []schema.Diagnostic {
	return func(before, after *schema.Desired) []schema.Diagnostic {
		if before == nil || before.Platform == nil || len(before.Platform.Apps)+len(before.Tenants) == 0 || after.Platform == nil {
			return nil // an estate that Berth takes over
		}
		g := &gate{before, after, backends}
		out := g.versions(before.Platform.Versions, after.Platform.Versions)
		out = append(out, g.runtimes(before.Platform.SharedRuntimes, after.Platform.SharedRuntimes,
			slices.Collect(maps.Values(after.Platform.Policies)))...)
		for was, is := range schema.Changed(before.Tenants, after.Tenants) {
			out = append(out, g.tenant(was, is)...)
		}
		return out
	}
}

type gate struct {
	before, after *schema.Desired
	backends      []string
}

// versions warns of new active versions of the platform or of a tenant, each by app and name.
func (g *gate) versions(was, is map[string]map[string]*schema.AppVersion) (out []schema.Diagnostic) {
	for _, app := range slices.Sorted(maps.Keys(is)) {
		for old, v := range schema.Changed(was[app], is[app]) {
			if v.Spec.Status == schema.StatusActive && old.Spec.Status != schema.StatusActive {
				out = append(out, g.judge(v.Head(), "spec.status", app, nil, schema.SeverityWarning)...)
			}
		}
	}
	return out
}

// tenant judges the additions of a tenant.
func (g *gate) tenant(was, is *schema.TenantEstate) []schema.Diagnostic {
	policies := append(slices.Collect(maps.Values(g.after.Platform.Policies)), is.Policy)
	out := append(g.versions(was.Versions, is.Versions), g.runtimes(was.SharedRuntimes, is.SharedRuntimes, policies)...)
	for old, p := range schema.Changed(was.Projects, is.Projects) {
		for had, e := range schema.Changed(old.Entitlements, p.Entitlements) {
			if e.Spec.Enabled && !had.Spec.Enabled {
				out = append(out, g.judge(e.Head(), "spec.enabled", e.Key.Name, nil, schema.SeverityWarning)...)
			}
		}
		if required(policies) {
			out = append(out, g.instances(old, p)...)
		}
	}
	return out
}

// instances judges new instances of a project.
func (g *gate) instances(was, is *schema.ProjectEstate) (out []schema.Diagnostic) {
	for had, i := range schema.Changed(was.Instances, is.Instances) {
		if had.UID != i.UID || had.Spec.App != i.Spec.App {
			operated := i.Spec.SharedRuntime != "" || is.ServiceAccounts[i.Spec.OperatorServiceAccount] != nil
			out = append(out, g.judge(i.Head(), "spec.app", i.Spec.App, &operated, schema.SeverityError)...)
		}
	}
	return out
}

// runtimes judges new shared runtimes of the platform or of a tenant.
func (g *gate) runtimes(was, is map[string]*schema.SharedRuntimeEstate, policies []*schema.Policy) (out []schema.Diagnostic) {
	if !required(policies) {
		return nil
	}
	for old, s := range schema.Changed(was, is) {
		r, had := s.Runtime, cmp.Or(old.Runtime, &schema.SharedRuntime{})
		if r == nil || had.UID == r.UID && had.Spec.App == r.Spec.App {
			continue
		}
		operated := r.Key.Tenant == "" || r.Spec.OperatorIdentityRef != "" // the platform operates its own
		out = append(out, g.judge(r.Head(), "spec.app", r.Spec.App, &operated, schema.SeverityError)...)
	}
	return out
}

// required reports whether a policy wants complete apps. A layer can only add it.
func required(policies []*schema.Policy) bool {
	return slices.ContainsFunc(policies, func(p *schema.Policy) bool { return p != nil && p.Spec.RequireOnboarding })
}

// judge returns the finding about a document that names an app, if the app lacks something. operated is whether the new unit
// names its operator; nil: the document declares no unit.
func (g *gate) judge(h *schema.Header, path, slug string, operated *bool, severity schema.Severity) []schema.Diagnostic {
	app := g.after.App(h.Key.Tenant, slug)
	if app == nil {
		return nil // a missing app is another finding
	}
	c, command := newCheck(g.after, app, g.backends), "berth onboard check "+slug
	if app.Key.Tenant != "" {
		command += " --tenant " + app.Key.Tenant
	}
	missing := c.declared()
	if operated != nil && !*operated {
		missing = append(missing, "2: the document names no operator_service_account of its project (operator_identity_ref of a shared "+
			"runtime)")
	}
	if len(missing) == 0 {
		return nil
	}
	return []schema.Diagnostic{h.At(path).Finding(severity, path, CodeIncomplete,
		"the app %s (%s) is not ready for projects: %s; `%s` shows each point", slug, at(app.Head(), "spec"), strings.Join(missing, "; "),
		command)}
}

// declared returns the missing points of the documents of the app itself, each with its number.
func (c *check) declared() (missing []string) {
	add := func(number int, text string) {
		if text != "" {
			missing = append(missing, fmt.Sprintf("%d: %s", number, text))
		}
	}
	add(1, c.published().Missing)
	if c.app.Spec.Requires.Permissions == nil {
		add(2, c.noRequires())
	}
	add(5, c.sources().Missing)
	if len(c.versions) > 0 {
		add(6, c.lifecycle().Missing)
	}
	add(7, c.runbook().Missing)
	return missing
}
