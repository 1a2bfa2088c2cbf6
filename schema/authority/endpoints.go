package authority

// Endpoint is a call of the API, with the permission that it takes; "": any account may make it.
type Endpoint struct {
	Call       string // method and path, as in allowed_endpoints
	Permission Permission
}

// Endpoints are the calls of the API that a service account may list in its allowed_endpoints. Only a person uses
// break-glass access, so nothing below /admin is here.
func Endpoints() []Endpoint {
	const (
		project  = "/api/v1/projects/{project_id}"
		instance = project + "/app-instances/{app_instance_id}"
		runtimes = "/api/v1/orgs/{org_id}/shared-app-runtimes"
		runtime  = runtimes + "/{shared_runtime_id}"
	)
	return []Endpoint{
		{"GET /api/v1/openapi.yaml", ""},
		{"GET /api/v1/apps/catalog", CatalogRead},
		{"GET /api/v1/apps/catalog/{app_slug}/versions", VersionsRead},
		{"GET /api/v1/apps/registry", ArtifactRead},
		{"GET " + project + "/apps/entitlements", EntitlementRead},
		{"GET " + project + "/apps/entitlements/{app_slug}", EntitlementRead},
		{"GET " + project + "/app-instances", InstanceRead},
		{"GET /api/v1/orgs/{org_id}/app-instances", InstanceRead},
		{"GET " + instance, InstanceRead},
		{"GET " + instance + "/members", MemberRead},
		{"GET " + instance + "/members/{member_id}", MemberRead},
		{"GET " + instance + "/member-operations", MemberRead},
		{"GET " + instance + "/member-operations/{operation_id}", MemberRead},
		{"GET " + project + "/app-artifacts", ArtifactRead},
		{"GET " + project + "/app-artifacts/{artifact_id}", ArtifactRead},
		{"GET " + runtimes, SharedRuntimeRead},
		{"GET " + runtime, SharedRuntimeRead},
		{"GET " + runtime + "/attachments", SharedRuntimeRead},
		{"GET " + runtime + "/attachments/{attachment_id}", SharedRuntimeRead},
		{"GET " + runtime + "/workers", SharedRuntimeRead},
		{"GET " + runtime + "/workers/{worker_id}", SharedRuntimeRead},
		{"GET " + runtime + "/worker-operations", SharedRuntimeRead},
		{"GET " + runtime + "/worker-operations/{operation_id}", SharedRuntimeRead},

		{"GET " + instance + "/queue/jobs", QueueRead},
		{"POST " + instance + "/queue/jobs", QueueSubmit},
		{"GET " + instance + "/queue/jobs/{job_id}", QueueRead},
		{"DELETE " + instance + "/queue/jobs/{job_id}", QueueCancel},
		{"GET " + instance + "/queue/jobs/{job_id}/output", QueueRead},
		{"GET " + instance + "/queue/readiness", QueueRead},
		{"GET " + instance + "/nodes", NodeRead},
		{"POST " + instance + "/nodes/{node}/operations", NodeOperate},
		{"GET " + project + "/usage", QueueRead},
		{"GET /api/v1/events/stream", InstanceRead},
		{"GET /api/v1/nodes", NodeRead},
		{"GET /api/v1/nodes/summary", NodeRead},
		{"GET /api/v1/nodes/{node_id}", NodeRead},
	}
}
