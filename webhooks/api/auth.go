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
	"slices"
	"strings"
	"time"

	"berth/schema"
	"berth/schema/audit"
	"berth/schema/authority"
)

// principal is the caller.
type principal struct {
	name    string // login, or a service account as its tokens name it
	actor   authority.Actor
	account *schema.ServiceAccount // nil for a person
	within  authority.Scope        // of X-Project-ID; zero: none
}

// place is the scope of a call whose path names none: that of X-Project-ID, else the
// account's own; zero for a person without that header.
func (p principal) place() authority.Scope {
	if p.within == (authority.Scope{}) && p.account != nil {
		return authority.Scope{Tenant: p.account.Key.Tenant, Project: p.account.Key.Project}
	}
	return p.within
}

// ErrProvider means that the identity provider does not answer. Test with errors.Is.
var ErrProvider = errors.New("identity provider unavailable")

// errQuiet marks a failure that is not logged.
var errQuiet = errors.New("not logged")

// authenticate identifies the caller by the Authorization header. It loads the view
// only if the header may hold a service account's token: a request without one costs
// almost nothing.
//
// The failures of one address are bounded only to protect the log: a valid token is
// accepted however many invalid ones came from the same address, or a caller behind
// the same proxy could lock everybody out. Against guessing, tokens are long.
func (a *API) authenticate(c *call) *failure {
	headers := c.Header.Values("Authorization")
	fail := &failure{code: codeAuthRequired,
		message: "no credentials: send Authorization: Bearer TOKEN, with a token of `berth token` for a service account, or for a person " +
			"one of the identity provider or of berth.yaml"}
	if len(headers) > 0 {
		fail = &failure{code: codeAuthInvalid,
			message: errToken.Error() + ": make a new one for this estate, and check that its account and key are in force"}
		scheme, token, _ := strings.Cut(headers[0], " ")
		switch {
		case len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken:
			fail.cause = errors.New("no single bearer token")
		case a.person(c, token):
			return nil
		case strings.Count(token, ".") != 2:
			fail.cause = errors.New("neither the token of a person nor in the form of a service account's")
		default:
			login, err := a.o.Identify(c.Context(), token)
			switch {
			case errors.Is(err, ErrProvider):
				fail = &failure{code: codeNotReady, after: retryAfter,
					message: "the identity provider does not answer: try again in a few seconds"}
			case err == nil && login != "":
				c.who = principal{name: login, actor: authority.Actor{Login: login, Proof: authority.ProofToken}}
				return nil
			case err == nil:
				if notReady := a.loadView(c); notReady != nil {
					return notReady
				}
				if err = a.account(c, token); err == nil {
					return nil
				}
			}
			fail.cause = err
		}
	}
	if !a.failures.allow(remote(c.RemoteAddr), a.o.Now()) {
		return &failure{code: codeRate, after: time.Second, cause: errQuiet,
			message: "too many failed authentications: check the token, then wait a second"}
	}
	return fail
}

// account accepts a token of a service account.
func (a *API) account(c *call, token string) error {
	account, err := Verify(token, a.o.Estate, c.view.Desired, a.o.Now())
	if err == nil {
		c.who = principal{name: Issuer(account.Key), account: account,
			actor: authority.Actor{ServiceAccount: account.Key, Proof: authority.ProofToken}}
	}
	return err
}

// person accepts a token of berth.yaml. It compares all of them, by hash and in
// constant time, so that the time taken reveals nothing.
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

// admit bounds how often a caller uses the admin paths, since each use is audited, and
// refuses them to service accounts. Each attempt of a service account is audited.
func (a *API) admit(c *call) *failure {
	if c.route == nil || !c.route.admin {
		return nil
	}
	if !a.admins.allow(c.who.name, a.o.Now()) {
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
func (a *API) checkEndpoint(c *call) *failure {
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
func (a *API) rules(c *call) authority.Rules {
	return authority.Rules{Base: c.view.Desired, Administrators: a.o.Administrators}
}

// refused audits the refusal of a service account, so that people see which rights a
// program uses and lacks (SPA). A refusal of a person needs no record outside admin paths.
func (a *API) refused(c *call, d authority.Decision) {
	if c.who.account == nil || d.Allowed {
		return
	}
	r := a.record(c, d)
	r.RecordID = r.ID()
	a.refusals.add(r)
}

// beyondApps is the failure of an account whose own scopes name the permission; nil if d
// has another rule. The account knows its own project, so nothing is hidden from it.
func (c *call) beyondApps(d authority.Decision) *failure {
	if d.Rule != authority.RuleAppRequires {
		return nil
	}
	return &failure{code: codePermission, details: map[string]any{"permission": string(c.route.permission)}, message: d.Message()}
}

// sight is the part of the resources on a path that the caller may read.
type sight struct {
	whole      bool              // all of them
	granted    []authority.Scope // otherwise those of these scopes
	schedulers bool              // with schedulers and their instances, which need a permission of their own
	platform   bool              // the caller has the permission at the platform, and may read every message
}

// tenant says whether a tenant's own resources are in sight.
func (s sight) tenant(name string) bool {
	return s.whole || slices.ContainsFunc(s.granted, func(g authority.Scope) bool { return g.Tenant == name })
}

// owns reports whether the caller reads a shared runtime as its owner.
func (s sight) owns(runtime schema.Key) bool {
	if runtime.Tenant == "" {
		return s.platform
	}
	return s.whole
}

// attached says whether a project's attachment is in sight.
func (s sight) attached(projectID string) bool {
	return s.whole || slices.ContainsFunc(s.granted,
		func(g authority.Scope) bool { return g.Project != "" && g.Tenant+"."+g.Project == projectID })
}

// authorise returns the resources on the path that the caller may read. A tenant's or project's
// resources that the caller may not read do not exist for it.
func (a *API) authorise(c *call) (sight, *failure) {
	c.who.actor.Endpoint = c.endpoint()
	rules := a.rules(c)
	may := func(s authority.Scope) authority.Decision {
		return authority.May(rules, c.who.actor, c.route.permission, s)
	}
	sees := sight{platform: may(authority.Scope{}).Allowed}
	if c.tenant == "" {
		granted := a.granted(c, may)
		if len(granted) == 0 {
			d := may(c.who.place())
			a.refused(c, d)
			if fail := c.beyondApps(d); fail != nil {
				return sight{}, fail
			}
			return sight{}, &failure{code: codePermission, details: map[string]any{"permission": string(c.route.permission)},
				message: fmt.Sprintf("%s lacks %s: ask a user with permission to change roles.yaml of your project", c.who.name,
					c.route.permission)}
		}
		sees.granted, sees.schedulers = granted, a.seesSchedulers(c, granted...)
		return sees, nil
	}
	d := may(authority.Scope{Tenant: c.tenant, Project: c.project})
	c.decision = d
	there := c.view.Desired.Tenants[c.tenant] != nil && c.view.Desired.Tenants[c.tenant].Tenant != nil
	if c.project != "" {
		there = project(c.view.Desired, c.tenant, c.project) != nil
	}
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
	case !there:
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

// seesSchedulers reports whether the caller may read schedulers and their instances, which needs a
// permission scheduler.* beside that of the route (document SPA).
func (a *API) seesSchedulers(c *call, scopes ...authority.Scope) bool {
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
func (a *API) granted(c *call, may func(authority.Scope) authority.Decision) []authority.Scope {
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

// audit records the use of an admin path, allowed or denied. Each allowed read gets a
// record of its own, also under the same correlation id, so its record id is random. A
// read that cannot be recorded is refused.
func (a *API) audit(c *call, d authority.Decision) *failure {
	r := a.record(c, d)
	if !d.Allowed {
		r.RecordID = r.ID()
		a.denials.add(r)
		return nil
	}
	r.RecordID = randomID()
	if err := a.o.Audit(r); err != nil {
		return &failure{code: codeUnaudited, after: retryAfter, cause: err,
			message: "the audit record of this request cannot be stored, so it is refused: tell Berth's operators (the log has the " +
				"cause), and try again"}
	}
	return nil
}

func randomID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// record is the audit record of a decision about a call, without its id. Its file is the
// method and the path's template.
func (a *API) record(c *call, d authority.Decision) audit.Record {
	r := audit.Record{
		OccurredAt: a.o.Now().UTC().Truncate(time.Second), CorrelationID: c.correlation,
		Author: audit.Author{Actor: c.who.name, Proof: string(c.who.actor.Proof)}, Action: "api.read",
		Resource: audit.Resource{Key: c.key(), File: c.endpoint(), OrgID: c.tenant,
			AppSlug: cmp.Or(c.params["app_slug"], c.view.Desired.AppOf(c.key()))},
		Outcome: audit.Outcome{Verdict: audit.Denied, Rule: cmp.Or(d.Rule, d.Role), Reason: cmp.Or(c.who.actor.BreakGlass, d.Reason),
			BreakGlass: d.BreakGlass},
		Change: audit.Change{Commit: c.view.Main, Base: c.view.InForce},
	}
	if c.route != nil { // openapi.yaml needs no permission
		r.Action = cmp.Or(c.route.effect, r.Action)
		r.Permission = string(cmp.Or(d.Permission, c.route.permission)) // a route may need a second one
	}
	if c.project != "" {
		r.ProjectID = c.tenant + "." + c.project
	}
	if c.tenant == "" && c.who.account != nil { // a path for everybody: its own tenant reads the record
		r.Key, r.OrgID, r.ProjectID = c.who.account.Key, c.who.account.Key.Tenant, c.who.account.Key.ProjectID()
	}
	if d.Allowed {
		r.Verdict = audit.Allowed
	}
	if d.Source.File != "" {
		r.Source = fmt.Sprintf("%s:%d", d.Source.File, d.Source.Line)
	}
	return r
}

// key is the document that the path names: the instance, the artifact, the
// entitlement, the shared runtime, else the project or tenant.
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
