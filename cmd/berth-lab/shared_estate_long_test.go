//go:build long

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/schema"
)

// The shared runtimes of the tests: one of the tenant physics, and one of the platform.
var (
	department = schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "department"}
	commons    = schema.Key{Kind: schema.KindSharedRuntime, Name: "commons"}
)

// The views with which the projects accept the terms.
var (
	latticeShare  = schema.InstanceKey("physics", "lattice", "share")
	colliderShare = schema.InstanceKey("physics", "collider", "share")
	colliderGuest = schema.InstanceKey("physics", "collider", "guest")
	genomesShare  = schema.InstanceKey("biology", "genomes", "share")
)

const (
	departmentFile    = "tenants/physics/shared-runtimes/department/runtime.yaml"
	campusRuntimeFile = "platform/shared-runtimes/commons/runtime.yaml"
	latticeTerms      = "tenants/physics/shared-runtimes/department/attachments/lattice.yaml"
	colliderTerms     = "tenants/physics/shared-runtimes/department/attachments/collider.yaml"
	genomesTerms      = "platform/shared-runtimes/commons/attachments/genomes.yaml"
	guestTerms        = "platform/shared-runtimes/commons/attachments/collider.yaml"
	contributionFile  = "tenants/physics/projects/collider/contributions/own.yaml"

	colliderOwner = "carl-collider"
	lentNode      = "dev-gpu-2" // reserved for physics.collider
)

// The users of the projects that submit jobs.
var (
	anna = schema.UnixUser{Name: "anna", UID: 20001} // physics.lattice
	carl = schema.UnixUser{Name: "carl", UID: 20021} // physics.collider
	dora = schema.UnixUser{Name: "dora", UID: 20011} // biology.genomes
)

// sharingFiles returns the documents that the estate of examples/lab needs for shared runtimes: an App that supports
// them, a policy that allows them, a third project with a node of its own, the operator of physics and
// a project-scoped instance beside them.
func sharingFiles(t testing.TB, nodes map[string]string) map[string]string {
	t.Helper()
	node := "platform/nodes/" + lentNode + ".yaml"
	require.Contains(t, nodes[node], "\nspec:\n")
	return map[string]string{
		node: strings.Replace(nodes[node], "\nspec:\n", "\nspec:\n  reserved_for: physics.collider\n", 1),
		"platform/catalog/slurm/app.yaml": `apiVersion: berth/v1
kind: App
metadata: {name: slurm}
spec:
  display_name: Slurm workload manager
  category: scheduler
  publisher: SchedMD
  supports:
    operating_modes: [tenant_dedicated, platform_managed]
    control_plane_scopes: [project, tenant, platform]
`,
		"platform/policy/lab.yaml": `apiVersion: berth/v1
kind: Policy
metadata: {name: lab}
spec:
  allowed_regions: [lab]
  allowed_skus: [cpu-small, gpu-a100-2, gpu-a100-4]
  max_gpus_per_instance: 8
  allowed_operating_modes: [tenant_dedicated, platform_managed]
  allowed_control_plane_scopes: [project, tenant, platform]
`,
		"tenants/physics/service-accounts/department.yaml": `apiVersion: berth/v1
kind: ServiceAccount
metadata: {name: department}
spec:
  display_name: Operator of the department's cluster
  public_keys: []
  scopes: [shared_runtimes.member.operate]
  allowed_endpoints: []
`,
		"tenants/physics/projects/collider/project.yaml": `apiVersion: berth/v1
kind: Project
metadata: {name: collider}
spec: {display_name: Collider analysis}
`,
		"tenants/physics/projects/collider/roles.yaml": `apiVersion: berth/v1
kind: RoleBinding
metadata: {name: roles}
spec:
  members:
    - login: carl-collider
      role: project_owner
      unix_user: {name: carl, uid: 20021}
`,
		"tenants/physics/projects/collider/entitlements/slurm.yaml": `apiVersion: berth/v1
kind: Entitlement
metadata: {name: slurm}
spec: {enabled: true}
`,
		labtest.TrainFile: labtest.InstanceYAML(labtest.Train.Name, 1),
	}
}

// runtimeFiles returns the documents of the owners of the shared runtimes: the runtimes, and the terms
// for each project.
func runtimeFiles() map[string]string {
	return map[string]string{
		departmentFile: `apiVersion: berth/v1
kind: SharedRuntime
metadata: {name: department, uid: sr-physics}
spec:
  app: slurm
  version: 22-05
  display_name: The department's cluster
  operator_identity_ref: department
  roles: {worker: {count: 1, sku: gpu-a100-2, gpus: {type: a100, count: 2}}}
`,
		campusRuntimeFile: `apiVersion: berth/v1
kind: SharedRuntime
metadata: {name: commons}
spec:
  app: slurm
  version: 22-05
  display_name: The campus cluster
  roles: {worker: {count: 1, sku: gpu-a100-4, gpus: {type: a100, count: 4}}}
`,
		latticeTerms: attachmentYAML("lattice", "physics.lattice", `  submission_policy:
    share: 2
    max_gpus: 2
    max_walltime_minutes: 600
  on_jobs: {cancel_after_seconds: 1}
`),
		colliderTerms: attachmentYAML("collider", "physics.collider", `  submission_policy: {max_walltime_minutes: 1440}
  contribution_policy:
    allow: true
    on_jobs: {cancel_after_seconds: 2}
`),
		genomesTerms: attachmentYAML("genomes", "biology.genomes", "  on_jobs: {wait: true}\n"),
		guestTerms:   attachmentYAML("collider", "physics.collider", "  submission_policy: {max_gpus_per_job: 1}\n"),
	}
}

func attachmentYAML(name, project, terms string) string {
	return "apiVersion: berth/v1\nkind: Attachment\nmetadata: {name: " + name + ", uid: at-" + name + "}\nspec:\n  project_id: " + project +
		"\n" + terms
}

// viewYAML returns the Instance with which a project accepts the terms of a shared runtime.
func viewYAML(view, runtime schema.Key, limits string) string {
	text := "apiVersion: berth/v1\nkind: Instance\nmetadata: {name: " + view.Name + "}\nspec:\n  app: slurm\n  version: 22-05\n" +
		"  display_name: Share of " + runtime.Name + "\n  shared_runtime: " + runtime.Name + "\n"
	if runtime.Tenant == "" {
		text += "  operating_mode: platform_managed\n  control_plane_scope: platform\n  tenant_boundary_mode: shared_service\n"
	} else {
		text += "  control_plane_scope: tenant\n"
	}
	return text + limits
}

const contributionYAML = `apiVersion: berth/v1
kind: Contribution
metadata: {name: own}
spec: {shared_runtime: department, nodes: [` + lentNode + `]}
`
