package api

import (
	"net/http"
	"strings"

	"berth/schema/authority"
)

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
	add("/nodes", route{family: Queue, permission: authority.NodeRead, list: listClusterNodes, writes: "platform/nodes/<node>.yaml"})
	add("/nodes/summary", route{family: Queue, permission: authority.NodeRead, item: readClusterSummary})
	add("/nodes/{node_id}", route{family: Queue, permission: authority.NodeRead, item: readClusterNode,
		writes: "platform/nodes/{node_id}.yaml"})
	add(inProject+"/usage", route{family: Queue, permission: authority.QueueRead, method: http.MethodGet, live: queued(readUsage),
		query: []string{"live"}})
	add("/events/stream", route{family: Events, permission: authority.InstanceRead, streams: true})
	add("/admin/events/stream", route{family: Events, permission: authority.InstanceRead, streams: true, admin: true})
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

const jobs = "/queue/jobs"

// queueRoutes adds the paths of queues and nodes (requirement B1).
func queueRoutes(add func(string, route)) {
	one := oneInst + jobs + "/{job_id}"
	add(oneInst+jobs, route{family: Queue, permission: authority.QueueRead, method: http.MethodGet, live: queued(listJobs),
		query: []string{"state", "user", "live"}})
	add(oneInst+jobs, route{family: Queue, permission: authority.QueueSubmit, method: http.MethodPost, live: queued(submitJob),
		effect: "queue.submit"})
	add(one, route{family: Queue, permission: authority.QueueRead, method: http.MethodGet, live: queued(readJob),
		query: []string{"submitted_at", "live"}})
	add(one, route{family: Queue, permission: authority.QueueCancel, method: http.MethodDelete, live: queued(cancelJob),
		effect: "queue.cancel", query: []string{"submitted_at"}})
	// The output of a job is read as its owner, so the ledger of the host and the audit have it.
	add(one+"/output", route{family: Queue, permission: authority.QueueRead, method: http.MethodGet, live: queued(readOutput),
		effect: "queue.output", query: []string{"submitted_at", "bytes"}})
	add(oneInst+"/queue/readiness",
		route{family: Queue, permission: authority.QueueRead, method: http.MethodGet, live: queued(readReadiness)})
	add(oneInst+"/nodes", route{family: Queue, permission: authority.NodeRead, method: http.MethodGet, live: queued(listNodes),
		query: []string{"live"}})
	add(oneInst+"/nodes/{node}/operations",
		route{family: Queue, permission: authority.NodeOperate, method: http.MethodPost, live: operateNode, effect: "node.operate"})
}
