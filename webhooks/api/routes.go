package api

import (
	"cmp"
	"net/http"
	"regexp"
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
)

// Families lists all families, in the order of an introduction.
func Families() []Family {
	return []Family{Catalog, Entitlements, Instances, Artifacts, SharedRuntimes, Queue}
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
// answers; any other write is answered with the file that a pull request edits instead.
type route struct {
	template   string // as in openapi.yaml and in a service account's allowed_endpoints
	family     Family
	permission authority.Permission
	list       func(*reading) *listing // nil result: not found
	item       func(*reading) any      // nil result: not found
	live       live
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
	case r.reads() || r.method == http.MethodGet:
		return []string{http.MethodGet, http.MethodHead}
	case r.live != nil:
		return []string{r.method}
	}
	return nil
}

// endpoint is the method and template, as in allowed_endpoints.
func (r *route) endpoint() string { return cmp.Or(r.method, http.MethodGet) + " " + r.template }

// routes lists all paths. A path below a project or tenant has a mirror below /admin.
func routes() []*route {
	var all []*route
	add := func(template string, r route) {
		r.template = root + template
		r.segments = strings.Split(r.template, "/")
		all = append(all, &r)
		// Roles of the platform have no account to submit as.
		if len(r.methods()) > 0 && r.permission != authority.QueueSubmit &&
			(strings.HasPrefix(template, inProject) || strings.HasPrefix(template, inOrg)) {
			mirror := r
			mirror.admin, mirror.template, mirror.writes = true, admin+template, ""
			mirror.segments = strings.Split(mirror.template, "/")
			all = append(all, &mirror)
		}
	}
	instanceMembers := members("member_id", (*reading).instanceMembers)
	operations := documents("operation_id", (*reading).instanceOperations, (*reading).operation)
	artifacts := documents("artifact_id", artifactsOf, (*reading).artifact)

	add("/apps/catalog", route{family: Catalog, permission: authority.CatalogRead, list: listApps,
		writes: "platform/catalog/<app>/app.yaml"})
	add("/apps/catalog/{app_slug}/versions",
		route{family: Catalog, permission: authority.VersionsRead, list: listVersions,
			writes: "platform/catalog/{app_slug}/<version>.yaml"})
	add("/admin/apps/catalog/{app_slug}/versions/{version}/publish", route{writes: "platform/catalog/{app_slug}/{version}.yaml"})
	add("/admin/apps/catalog/{app_slug}/versions/{version}/deprecate", route{writes: "platform/catalog/{app_slug}/{version}.yaml"})
	add("/apps/registry", route{family: Artifacts, permission: authority.ArtifactRead, list: listSources,
		writes: "platform/artifact-sources/<name>.yaml"})

	add(inProject+"/apps/entitlements",
		route{family: Entitlements, permission: authority.EntitlementRead, list: listEntitlements,
			writes: projectDir + "entitlements/<app>.yaml"})
	add(inProject+"/apps/entitlements/{app_slug}",
		route{family: Entitlements, permission: authority.EntitlementRead, item: readEntitlement,
			writes: projectDir + "entitlements/{app_slug}.yaml"})

	add(inProject+"/app-instances",
		route{family: Instances, permission: authority.InstanceRead, list: listInstances, writes: projectDir + "instances/<name>.yaml"})
	add(inOrg+"/app-instances", route{family: Instances, permission: authority.InstanceRead, list: listOrgInstances,
		writes: "tenants/{tenant}/projects/<project>/instances/<name>.yaml"})
	add(oneInst, route{family: Instances, permission: authority.InstanceRead, item: readInstance,
		writes: projectDir + "instances/<name>.yaml"})
	add(oneInst+"/members", route{family: Instances, permission: authority.MemberRead, list: instanceMembers.list,
		writes: projectDir + "instances/<name>.yaml"})
	add(oneInst+"/members/{member_id}",
		route{family: Instances, permission: authority.MemberRead, item: instanceMembers.item,
			writes: projectDir + "operations/<name>.yaml"})
	add(oneInst+"/member-operations",
		route{family: Instances, permission: authority.MemberRead, list: operations.list, writes: projectDir + "operations/<name>.yaml"})
	add(oneInst+"/member-operations/{operation_id}",
		route{family: Instances, permission: authority.MemberRead, item: operations.item, writes: projectDir + "operations/<name>.yaml"})

	add(inProject+"/app-artifacts",
		route{family: Artifacts, permission: authority.ArtifactRead, list: artifacts.list, writes: projectDir + "artifacts/<name>.yaml"})
	add(inProject+"/app-artifacts/{artifact_id}",
		route{family: Artifacts, permission: authority.ArtifactRead, item: artifacts.item, writes: projectDir + "artifacts/<name>.yaml"})
	add(inProject+"/app-artifacts/{artifact_id}/promote", route{writes: projectDir + "artifacts/<name>.yaml"})
	add(inProject+"/app-artifacts/{artifact_id}/deprecate", route{writes: projectDir + "artifacts/<name>.yaml"})
	add(inProject+"/app-artifacts/{artifact_id}/retire", route{writes: projectDir + "artifacts/<name>.yaml"})

	sharedRoutes(add)
	queueRoutes(add)
	add(inProject+"/usage", route{family: Queue, permission: authority.QueueRead, method: http.MethodGet, live: queued(readUsage),
		query: []string{"live"}})
	return all
}

// sharedRoutes adds the paths of shared runtimes (requirements D1 to D5).
func sharedRoutes(add func(string, route)) {
	attachments := documents("attachment_id", (*reading).attachments, (*reading).attachment)
	workers := members("worker_id", (*reading).workerMembers)
	workerOperations := documents("operation_id", workerOperationsOf, (*reading).operation)

	add(inOrg+"/shared-app-runtimes",
		route{family: SharedRuntimes, permission: authority.SharedRuntimeRead, list: listSharedRuntimes,
			writes: sharedDir + "<name>/runtime.yaml"})
	add(oneShared, route{family: SharedRuntimes, permission: authority.SharedRuntimeRead, item: readSharedRuntime,
		writes: sharedDir + "<name>/runtime.yaml"})
	add(oneShared+"/attachments", route{family: SharedRuntimes, permission: authority.SharedRuntimeRead, list: attachments.list,
		writes: sharedDir + "<name>/attachments/<name>.yaml"})
	add(oneShared+"/attachments/{attachment_id}",
		route{family: SharedRuntimes, permission: authority.SharedRuntimeRead, item: attachments.item,
			writes: sharedDir + "<name>/attachments/<name>.yaml"})
	add(oneShared+"/workers", route{family: SharedRuntimes, permission: authority.SharedRuntimeRead, list: workers.list,
		writes: sharedDir + "<name>/runtime.yaml"})
	add(oneShared+"/workers/{worker_id}",
		route{family: SharedRuntimes, permission: authority.SharedRuntimeRead, item: workers.item,
			writes: sharedDir + "<name>/operations/<name>.yaml"})
	add(oneShared+"/worker-operations",
		route{family: SharedRuntimes, permission: authority.SharedRuntimeRead, list: workerOperations.list,
			writes: sharedDir + "<name>/operations/<name>.yaml"})
	add(oneShared+"/worker-operations/{operation_id}",
		route{family: SharedRuntimes, permission: authority.SharedRuntimeRead, item: workerOperations.item,
			writes: sharedDir + "<name>/operations/<name>.yaml"})
}

// parameter matches the values of a template's parameters: names, uids, project ids.
var parameter = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_.]{0,99}$`)

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

// owner returns the tenant and project of a path; ok is false for a malformed id.
func owner(params map[string]string) (tenant, project string, ok bool) {
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

// file is the path in the estate that a write to the route changes.
func (r *route) file(tenant, project string, params map[string]string) string {
	f := strings.NewReplacer("{tenant}", tenant, "{project}", project).Replace(r.writes)
	for name, value := range params {
		f = strings.ReplaceAll(f, "{"+name+"}", value)
	}
	return f
}
