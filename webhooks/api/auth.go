package api

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"berth/schema"
	"berth/schema/audit"
	"berth/schema/authority"
)

// principal is who asks.
type principal struct {
	name    string // login, or a service account as its tokens name it
	actor   authority.Actor
	account *schema.ServiceAccount // nil for a person
	within  authority.Scope        // of X-Project-ID; zero: none
}

// errQuiet marks a failure that is not logged.
var errQuiet = errors.New("not logged")

// authenticate finds out who asks, from the one header where that may stand.
// What is in force is asked for only where the header may hold an account's
// token: whoever has none costs next to nothing.
//
// What an address may do in vain is bounded for the log's sake: a token that is
// right is taken however many wrong ones come from the same place, or whoever
// sits behind the same proxy could lock everybody out. Guessing is not bounded
// by this but by the length of tokens.
func (a *API) authenticate(c *call) *failure {
	headers := c.Header.Values("Authorization")
	fail := &failure{status: http.StatusUnauthorized, code: codeAuthRequired,
		message: "say who you are: Authorization: Bearer TOKEN, one that berth token makes for a service account, or a person's of berth.yaml"}
	if len(headers) > 0 {
		fail = &failure{status: http.StatusUnauthorized, code: codeAuthInvalid, message: errToken.Error() + ": make a new one for this estate, and see that its account and key are in force"}
		scheme, token, _ := strings.Cut(headers[0], " ")
		switch {
		case len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken:
			fail.cause = errors.New("no single bearer token")
		case a.person(c, token):
			return nil
		case strings.Count(token, ".") != 2:
			fail.cause = errors.New("neither a person's token nor of an account's form")
		default:
			if notReady := a.look(c); notReady != nil {
				return notReady
			}
			account, err := verify(token, a.o.Estate, c.view.Desired, a.o.Now())
			if err == nil {
				c.who = principal{name: Issuer(account.Key), account: account, actor: authority.Actor{ServiceAccount: account.Key, Proof: authority.ProofToken}}
				return nil
			}
			fail.cause = err
		}
	}
	if !a.failures.allow(remote(c.RemoteAddr), a.o.Now()) {
		return &failure{status: http.StatusTooManyRequests, code: codeRate, after: time.Second, cause: errQuiet, message: "too many failed authentications: wait, and see that the token is right"}
	}
	return fail
}

// person takes a token of berth.yaml. Every one is compared, by its hash and in
// constant time, so that the time tells nothing of any.
func (a *API) person(c *call, token string) bool {
	hash, login := sha256.Sum256([]byte(token)), ""
	for _, p := range a.o.People() {
		if subtle.ConstantTimeCompare(hash[:], p.Hash[:]) == 1 {
			login = p.Login
		}
	}
	if login == "" {
		return false
	}
	c.who = principal{name: login, actor: authority.Actor{Login: login, Proof: authority.ProofToken}}
	return true
}

// admit bounds how often anybody uses the admin paths, as each use is audited,
// and refuses them to service accounts. That one tried is audited, with a reason
// in X-Break-Glass or without.
func (a *API) admit(c *call) *failure {
	if c.route == nil || !c.route.admin {
		return nil
	}
	if !a.admins.allow(c.who.name, a.o.Now()) {
		return &failure{status: http.StatusTooManyRequests, code: codeRate, after: time.Second, message: "admin paths are audited, and so for few requests: about one a second"}
	}
	if c.who.account == nil {
		return nil
	}
	if fail := a.audit(c, authority.Decision{Role: codeEndpoint, Reason: "no service account breaks the glass"}); fail != nil {
		return fail
	}
	return &failure{status: http.StatusForbidden, code: codeEndpoint, message: "admin paths are for people: no service account breaks the glass"}
}

// endpoint refuses a service account what it does not list.
func (p *principal) endpoint(template string) *failure {
	switch {
	case p.account == nil:
		return nil
	case slices.Contains(p.account.Spec.AllowedEndpoints, "GET "+template):
		return nil
	}
	return &failure{status: http.StatusForbidden, code: codeEndpoint, details: map[string]any{"endpoint": "GET " + template},
		message: fmt.Sprintf("service account %s does not list this in allowed_endpoints: add GET %s there", p.name, template)}
}

// sight is what of the things on a path its caller may see.
type sight struct {
	whole    bool              // all of it
	granted  []authority.Scope // else what belongs to these
	platform bool              // who asks is of the platform, and may be told whatever is said of it
}

// tenant says whether something of a tenant's own is in sight.
func (s sight) tenant(name string) bool {
	return s.whole || slices.ContainsFunc(s.granted, func(g authority.Scope) bool { return g.Tenant == name })
}

// attached says whether a project's attachment is in sight.
func (s sight) attached(projectID string) bool {
	return s.whole || slices.ContainsFunc(s.granted, func(g authority.Scope) bool { return g.Project != "" && g.Tenant+"."+g.Project == projectID })
}

// authorise decides whether who asks may have what the path names. What of a
// tenant or project he may not have is, to him, not there.
func (a *API) authorise(c *call) (sight, *failure) {
	c.who.actor.Endpoint = "GET " + c.template()
	rules := authority.Rules{Base: c.view.Desired, Administrators: a.o.Administrators}
	may := func(s authority.Scope) authority.Decision {
		return authority.May(rules, c.who.actor, c.route.permission, s)
	}
	sees := sight{platform: may(authority.Scope{}).Allowed}
	if c.tenant == "" {
		granted := a.granted(c, may)
		if len(granted) == 0 {
			return sight{}, &failure{status: http.StatusForbidden, code: codePermission, details: map[string]any{"permission": string(c.route.permission)},
				message: fmt.Sprintf("%s has no role that gives %s: ask who writes roles.yaml of your project", c.who.name, c.route.permission)}
		}
		sees.granted = granted
		return sees, nil
	}
	d := may(authority.Scope{Tenant: c.tenant, Project: c.project})
	there := c.view.Desired.Tenants[c.tenant] != nil && c.view.Desired.Tenants[c.tenant].Tenant != nil
	if c.project != "" {
		there = project(c.view.Desired, c.tenant, c.project) != nil
	}
	if c.route.admin {
		if fail := a.audit(c, d); fail != nil {
			return sight{}, fail
		}
	}
	switch {
	case !there:
		return sight{}, notFound()
	case d.Allowed:
		sees.whole = true
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
	sees.granted = own
	return sees, nil
}

// granted are the scopes in which who asks has the permission by a binding of
// his own, in order: where X-Project-ID says, if it does.
func (a *API) granted(c *call, may func(authority.Scope) authority.Decision) []authority.Scope {
	var tries []authority.Scope
	switch {
	case c.who.within != (authority.Scope{}):
		tries = []authority.Scope{c.who.within}
	case c.who.account != nil:
		tries = []authority.Scope{{Tenant: c.who.account.Key.Tenant, Project: c.who.account.Key.Project}}
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

// audit tells of the use of an admin path, whatever came of it. The record has
// the method and the path's template for its file: it is what was read. Reading
// again is another read, also under the same correlation id, so what is allowed
// has an id that nothing else has. Nobody reads what cannot be recorded.
func (a *API) audit(c *call, d authority.Decision) *failure {
	r := audit.Record{
		OccurredAt: a.o.Now().UTC().Truncate(time.Second), CorrelationID: c.correlation, Actor: c.who.name, Proof: string(c.who.actor.Proof),
		Permission: string(c.route.permission), Action: "api.read", Key: c.key(), File: c.Method + " " + c.template(), OrgID: c.tenant, AppSlug: cmp.Or(c.params["app_slug"], c.view.Desired.AppOf(c.key())), Verdict: audit.Denied, Rule: d.Role,
		Reason: cmp.Or(c.who.actor.BreakGlass, d.Reason), BreakGlass: d.BreakGlass, Commit: c.view.Main, Base: c.view.InForce,
	}
	if c.project != "" {
		r.ProjectID = c.tenant + "." + c.project
	}
	if d.Allowed {
		r.Verdict = audit.Allowed
	}
	if d.Source.File != "" {
		r.Source = fmt.Sprintf("%s:%d", d.Source.File, d.Source.Line)
	}
	if !d.Allowed {
		r.RecordID = r.ID()
		a.denials.add(r)
		return nil
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	r.RecordID = hex.EncodeToString(id[:])
	if err := a.o.Audit(r); err != nil {
		return &failure{status: http.StatusServiceUnavailable, code: codeUnaudited, after: retryAfter, cause: err,
			message: "the audit record of this cannot be kept, so nothing is shown: tell Berth's operators, whose log says why, and try again"}
	}
	return nil
}

// key is the document that the path is about: the instance, the shared runtime,
// else the project or tenant.
func (c *call) key() schema.Key {
	switch {
	case c.params["app_instance_id"] != "":
		return schema.InstanceKey(c.tenant, c.project, c.params["app_instance_id"])
	case c.params["artifact_id"] != "":
		return schema.Key{Kind: schema.KindArtifact, Tenant: c.tenant, Project: c.project, Name: c.params["artifact_id"]}
	case c.params["app_slug"] != "":
		return schema.Key{Kind: schema.KindEntitlement, Tenant: c.tenant, Project: c.project, Name: c.params["app_slug"]}
	case c.params["shared_runtime_id"] != "":
		return schema.Key{Kind: schema.KindSharedRuntime, Tenant: c.tenant, Name: c.params["shared_runtime_id"]}
	case c.project != "":
		return schema.Key{Kind: schema.KindProject, Tenant: c.tenant, Name: c.project}
	}
	return schema.Key{Kind: schema.KindTenant, Name: c.tenant}
}
