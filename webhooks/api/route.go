package api

import (
	"cmp"
	"net/http"
	"strings"

	"berth/schema"
	"berth/schema/authority"
)

// Family is a group of paths that is enabled together, so that an introduction of
// Berth may begin with the catalog (requirement A16).
type Family string

// The families.
const (
	Catalog        Family = "catalog"
	Entitlements   Family = "entitlements"
	Instances      Family = "instances"
	Artifacts      Family = "artifacts"
	SharedRuntimes Family = "shared_runtimes"
	Queue          Family = "queue"
	Events         Family = "events"
)

// Families lists all families, in the order of an introduction.
func Families() []Family {
	return []Family{Catalog, Entitlements, Instances, Artifacts, SharedRuntimes, Queue, Events}
}

const (
	root        = "/api/v1"
	admin       = root + "/admin"
	openAPIPath = root + "/openapi.yaml"

	inProject = "/projects/{project_id}"
	inOrg     = "/orgs/{org_id}"
	oneInst   = inProject + "/app-instances/{app_instance_id}"
	oneShared = inOrg + "/shared-app-runtimes/{shared_runtime_id}"

	projectDir = "tenants/{tenant}/projects/{project}/"
	sharedDir  = "tenants/{tenant}/shared-runtimes/"
)

// route is one path. list or item answers a read from the view, and live a request that a running unit
// answers. A write that no live handler takes is answered with the file that a pull request edits instead.
type route struct {
	template   string // as in openapi.yaml and in a service account's allowed_endpoints
	family     Family
	permission authority.Permission
	list       func(*reading) *listing // nil result: not found
	item       func(*reading) any      // nil result: not found
	live       live
	streams    bool     // the events, as long as the caller reads
	method     string   // of live
	effect     string   // action of live in the audit; "": it changes and reveals nothing
	query      []string // parameters of live
	writes     string   // file that a write changes; "": read-only
	admin      bool     // needs break-glass access (requirement B2)

	segments []string
}

func (r *route) reads() bool { return r.list != nil || r.item != nil }

// methods are those that r answers.
func (r *route) methods() []string {
	switch {
	case r.reads() || r.streams || r.method == http.MethodGet:
		return []string{http.MethodGet, http.MethodHead}
	case r.live != nil:
		return []string{r.method}
	}
	return nil
}

// endpoint is the method and template, as in allowed_endpoints.
func (r *route) endpoint() string { return cmp.Or(r.method, http.MethodGet) + " " + r.template }

// match says whether a path matches r, and returns its parameters.
func (r *route) match(segments []string) (map[string]string, bool) {
	if len(segments) != len(r.segments) {
		return nil, false
	}
	params := map[string]string{}
	for i, want := range r.segments {
		name, isParam := strings.CutPrefix(want, "{")
		switch {
		case !isParam && want != segments[i]:
			return nil, false
		case isParam && !parameter.MatchString(segments[i]):
			return nil, false
		case isParam:
			params[strings.TrimSuffix(name, "}")] = segments[i]
		}
	}
	return params, true
}

// file is the path in the estate that a write to the route changes.
func (r *route) file(tenant, project string, params map[string]string) string {
	f := strings.NewReplacer("{tenant}", tenant, "{project}", project).Replace(r.writes)
	for name, value := range params {
		f = strings.ReplaceAll(f, "{"+name+"}", value)
	}
	return f
}

// ownerOf returns the tenant and project of a path; ok is false for a malformed id.
func ownerOf(params map[string]string) (tenant, project string, ok bool) {
	if id, in := params["project_id"]; in {
		return splitProject(id)
	}
	if id, in := params["org_id"]; in {
		return id, "", schema.ValidName(id)
	}
	return "", "", true
}

func splitProject(id string) (tenant, project string, ok bool) {
	tenant, project, _ = strings.Cut(id, ".")
	return tenant, project, schema.ValidName(tenant) && schema.ValidName(project)
}
