package api

import (
	"cmp"
	"net/http"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
)

// call is one request.
type call struct {
	*http.Request
	correlation string
	route       *route
	params      map[string]string
	tenant      string
	project     string
	who         principal
	decision    authority.Decision // on the permission of the route; zero until it is made
	view        plan.View          // zero until it is needed
	deadline    func(time.Time)    // until which the body must arrive
}

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

// owner is who takes turns with others for an answer: the tenant that a permitted call is about, else the caller.
func (c *call) owner() string {
	if tenant := cmp.Or(c.tenant, c.who.place().Tenant); tenant != "" {
		return "tenant " + tenant
	}
	return "caller " + c.who.name
}

// Source returns the current view of the estate; false before the first commit is decided.
type Source func() (plan.View, bool)

// load takes the current view for a call, once.
func (s Source) load(c *call) *failure {
	if c.view.Desired != nil {
		return nil
	}
	view, ready := s()
	if !ready {
		return &failure{code: codeNotReady, after: retryAfter,
			message: "no commit is decided yet: try again in a few seconds"}
	}
	c.view = view
	return nil
}

// endpoint is the method and the path's template, as in a service account's allowed_endpoints.
func (c *call) endpoint() string {
	if c.route == nil {
		return "GET " + openAPIPath
	}
	return c.route.endpoint()
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

// ownerExists reports whether the project that the path names is in force, else its tenant.
func (c *call) ownerExists() bool {
	t := c.view.Desired.Tenants[c.tenant]
	if t == nil || t.Tenant == nil || c.project == "" {
		return t != nil && t.Tenant != nil
	}
	p := t.Projects[c.project]
	return p != nil && p.Project != nil
}

// ids returns the names and values of the ids in the path, for logs and errors
// (requirement A11). They do not show whether the resource exists.
func (c *call) ids() (out [][2]string) {
	if c.tenant != "" {
		out = append(out, [2]string{"org_id", c.tenant})
	}
	if c.project != "" {
		out = append(out, [2]string{"project_id", c.tenant + "." + c.project})
	}
	for _, name := range []string{"app_slug", "app_instance_id", "shared_runtime_id"} {
		if value := c.params[name]; value != "" {
			out = append(out, [2]string{name, value})
		}
	}
	return out
}
