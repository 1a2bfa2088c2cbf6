package schema

// Endpoints are the calls of the API that a service account may list in its
// allowed_endpoints to some effect: those that are served, and those of operations
// on nodes, for which accounts may be prepared. Who
// breaks the glass is a person, so nothing below /admin is here.
func Endpoints() []string {
	const (
		project  = "/api/v1/projects/{project_id}"
		instance = project + "/app-instances/{app_instance_id}"
		runtimes = "/api/v1/orgs/{org_id}/shared-app-runtimes"
		runtime  = runtimes + "/{shared_runtime_id}"
	)
	return []string{
		"GET /api/v1/openapi.yaml",
		"GET /api/v1/apps/catalog",
		"GET /api/v1/apps/catalog/{app_slug}/versions",
		"GET /api/v1/apps/registry",
		"GET " + project + "/apps/entitlements",
		"GET " + project + "/apps/entitlements/{app_slug}",
		"GET " + project + "/app-instances",
		"GET /api/v1/orgs/{org_id}/app-instances",
		"GET " + instance,
		"GET " + instance + "/members",
		"GET " + instance + "/members/{member_id}",
		"GET " + instance + "/member-operations",
		"GET " + instance + "/member-operations/{operation_id}",
		"GET " + project + "/app-artifacts",
		"GET " + project + "/app-artifacts/{artifact_id}",
		"GET " + runtimes,
		"GET " + runtime,
		"GET " + runtime + "/attachments",
		"GET " + runtime + "/attachments/{attachment_id}",
		"GET " + runtime + "/workers",
		"GET " + runtime + "/workers/{worker_id}",
		"GET " + runtime + "/worker-operations",
		"GET " + runtime + "/worker-operations/{operation_id}",

		"GET " + instance + "/queue/jobs",
		"POST " + instance + "/queue/jobs",
		"GET " + instance + "/queue/jobs/{job_id}",
		"DELETE " + instance + "/queue/jobs/{job_id}",
		"GET " + instance + "/queue/jobs/{job_id}/output",
		"GET " + instance + "/queue/readiness",
		"GET " + instance + "/nodes",
		"POST " + instance + "/nodes/{node}/operations",
	}
}
