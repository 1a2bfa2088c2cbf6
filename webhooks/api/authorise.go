package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/schema"
	"berth/schema/authority"
)

// authoriser decides what a caller may do, by the rules in force.
type authoriser struct {
	*auditor
	administrators []string // as Options.Administrators
	admins         *limiter // of the admin paths
}

// admit bounds how often a caller uses the admin paths, since each use is audited, and
// refuses them to service accounts. Each attempt of a service account is audited.
func (a *authoriser) admit(c *call) *failure {
	if c.route == nil || !c.route.admin {
		return nil
	}
	if !a.admins.allow(c.who.name, a.now()) {
		return &failure{code: codeRate, after: time.Second, message: "admin paths allow about one request a second, as each one is audited"}
	}
	if c.who.account == nil {
		return nil
	}
	if fail := a.audit(c, authority.Decision{Role: string(codeEndpoint),
		Reason: "a service account has no break-glass rights"}); fail != nil {
		return fail
	}
	return &failure{code: codeEndpoint, message: "admin paths are for people: a service account has no break-glass rights"}
}

// checkEndpoint refuses a service account an endpoint that it does not list, or that an
// App whose units it operates does not require. The refusal is audited.
func (a *authoriser) checkEndpoint(c *call) *failure {
	if c.who.account == nil {
		return nil
	}
	endpoint := c.endpoint()
	d, beyond := authority.BeyondApps(a.rules(c), c.who.account.Key, endpoint)
	message := d.Message()
	if !slices.Contains(c.who.account.Spec.AllowedEndpoints, endpoint) {
		d = authority.Decision{Rule: string(codeEndpoint), Reason: endpoint + " is not in allowed_endpoints"}
		message = fmt.Sprintf("service account %s does not list this endpoint: add %s to its allowed_endpoints", c.who.name, endpoint)
	} else if !beyond {
		return nil
	}
	a.refused(c, d)
	return &failure{code: codeEndpoint, details: map[string]any{"endpoint": endpoint}, message: message}
}

// rules are the rules in force for a call.
func (a *authoriser) rules(c *call) authority.Rules {
	return authority.Rules{Base: c.view.Desired, Administrators: a.administrators}
}

// beyondApps is the failure of an account whose own scopes name the permission; nil if d
// has another rule. The account knows its own project, so nothing is hidden from it.
func (c *call) beyondApps(d authority.Decision) *failure {
	if d.Rule != authority.RuleAppRequires {
		return nil
	}
	return &failure{code: codePermission, details: map[string]any{"permission": string(c.route.permission)}, message: d.Message()}
}

// authorise returns the resources on the path that the caller may read. A tenant's or project's
// resources that the caller may not read do not exist for it.
func (a *authoriser) authorise(c *call) (sight, *failure) {
	c.who.actor.Endpoint = c.endpoint()
	rules := a.rules(c)
	may := func(s authority.Scope) authority.Decision {
		return authority.May(rules, c.who.actor, c.route.permission, s)
	}
	sees := sight{platform: may(authority.Scope{}).Allowed}
	sees.sharedOnly = c.who.account != nil && c.who.account.Key.Project == ""
	if c.tenant == "" {
		granted, fail := a.grantedSomewhere(c, may)
		if fail != nil {
			return sight{}, fail
		}
		sees.granted, sees.schedulers = granted, a.seesSchedulers(c, granted...)
		return sees, nil
	}
	d := may(authority.Scope{Tenant: c.tenant, Project: c.project})
	c.decision = d
	if c.route.admin {
		if fail := a.audit(c, d); fail != nil {
			return sight{}, fail
		}
	}
	a.refused(c, d)
	if fail := c.beyondApps(d); fail != nil {
		return sight{}, fail
	}
	switch {
	case !c.ownerExists():
		return sight{}, notFound()
	case d.Allowed:
		sees.whole, sees.schedulers = true, a.seesSchedulers(c, authority.Scope{Tenant: c.tenant, Project: c.project})
		return sees, nil
	case c.project != "" || c.route.admin || c.who.account != nil:
		return sight{}, notFound()
	}
	// A tenant's shared runtime is also for the projects attached to it, each
	// of which sees itself (TSR, consumer project actions).
	own := slices.DeleteFunc(a.granted(c, may), func(s authority.Scope) bool { return s.Tenant != c.tenant || s.Project == "" })
	if len(own) == 0 {
		return sight{}, notFound()
	}
	sees.granted, sees.schedulers = own, a.seesSchedulers(c, own...)
	return sees, nil
}

// grantedSomewhere returns the scopes in which the caller has the permission, of which there is one at least.
func (a *authoriser) grantedSomewhere(c *call, may func(authority.Scope) authority.Decision) ([]authority.Scope, *failure) {
	if granted := a.granted(c, may); len(granted) > 0 {
		return granted, nil
	}
	d := may(c.who.place())
	a.refused(c, d)
	if fail := c.beyondApps(d); fail != nil {
		return nil, fail
	}
	return nil, &failure{code: codePermission, details: map[string]any{"permission": string(c.route.permission)},
		message: fmt.Sprintf("%s lacks %s: ask a user with permission to change roles.yaml of your project", c.who.name,
			c.route.permission)}
}

// seesSchedulers reports whether the caller may read schedulers and their instances, which needs a
// permission scheduler.* beside that of the route (document SPA).
func (a *authoriser) seesSchedulers(c *call, scopes ...authority.Scope) bool {
	beside := map[authority.Permission]authority.Permission{
		authority.CatalogRead: authority.SchedulerCatalogRead, authority.VersionsRead: authority.SchedulerCatalogRead,
		authority.InstanceRead: authority.SchedulerInstanceRead, authority.MemberRead: authority.SchedulerInstanceRead,
	}
	also, ok := beside[c.route.permission]
	return !ok || slices.ContainsFunc(scopes, func(s authority.Scope) bool {
		return authority.May(a.rules(c), c.who.actor, also, s).Allowed
	})
}

// granted lists the scopes in which the caller has the permission by its own role
// bindings, in order; only the scope of X-Project-ID if that header is set.
func (a *authoriser) granted(c *call, may func(authority.Scope) authority.Decision) []authority.Scope {
	var tries []authority.Scope
	switch {
	case c.who.place() != authority.Scope{}:
		tries = []authority.Scope{c.who.place()}
	default:
		tries = append(tries, authority.Scope{})
		for _, tenant := range slices.Sorted(maps.Keys(c.view.Desired.Tenants)) {
			t := c.view.Desired.Tenants[tenant]
			if bound(t.Roles, c.who.name) {
				tries = append(tries, authority.Scope{Tenant: tenant})
			}
			for _, name := range slices.Sorted(maps.Keys(t.Projects)) {
				if bound(t.Projects[name].Roles, c.who.name) {
					tries = append(tries, authority.Scope{Tenant: tenant, Project: name})
				}
			}
		}
	}
	return slices.DeleteFunc(tries, func(s authority.Scope) bool { return !may(s).Allowed })
}

func bound(b *schema.RoleBinding, login string) bool {
	return b != nil && slices.ContainsFunc(b.Spec.Members, func(m schema.RoleMember) bool { return strings.EqualFold(m.Login, login) })
}
