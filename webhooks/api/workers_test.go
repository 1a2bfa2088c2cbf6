package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// carl owns physics.collider, which lends a node to the department's runtime.
const carl = "carl-collider"

const commonsOfBiology = "/api/v1/orgs/biology/shared-app-runtimes/commons"

// ids returns the ids of the items at a path.
func (w *world) ids(path, login string) []string {
	var page struct{ Items []struct{ ID string } }
	w.read(path, login, &page)
	ids := []string{}
	for _, i := range page.Items {
		ids = append(ids, i.ID)
	}
	return ids
}

// Requirement D5: each worker has its node, state, source project and integration metadata; each
// operation has its request and status.
func TestWorkersOfASharedRuntimeAndTheirOperations(t *testing.T) {
	const file = "tenants/physics/shared-runtimes/department/operations/drain.yaml"
	w := newWorld(t, with(campusFiles(t), map[string]string{
		file: "apiVersion: berth/v1\nkind: MemberOperation\nmetadata: {name: drain, uid: op-9}\nspec: {operation: drain, member: " +
			"worker-0, reason: a fan is loud}\n",
	}), []string{petra, boris}, nil)

	var workers struct{ Items []member }
	w.read(department+"/workers", petra, &workers)
	require.Len(t, workers.Items, 2)
	own, worker := workers.Items[0], workers.Items[1]
	require.Equal(t, []string{"worker-0", "worker", "running", "gpu-3", "campus-north", "a100x4", "physics.collider", "2027-03-01",
		"department"},
		[]string{worker.ID, worker.Role, worker.Status, worker.Node, worker.Region, worker.SKU, worker.SourceProjectID, worker.SourceUntil,
			worker.SharedRuntimeID})
	require.False(t, worker.ControlPlane)
	require.Equal(t, []string{"controller-0", "head-1", "", ""}, []string{own.ID, own.Node, own.SourceProjectID, own.SourceUntil})
	var one member
	w.read(department+"/workers/worker-0", petra, &one)
	require.Equal(t, worker, one)

	var operations struct{ Items []operation }
	w.read(department+"/worker-operations", petra, &operations)
	require.Len(t, operations.Items, 1)
	op := operations.Items[0]
	require.Equal(t, []string{"op-9", "drain", "worker-0", "a fan is loud", "requested", "department", file},
		[]string{op.ID, op.Operation, op.MemberID, op.Reason, op.Status, op.SharedRuntimeID, op.DeclaredIn})
	for _, id := range []string{"drain", "op-9"} {
		var alone operation
		w.read(department+"/worker-operations/"+id, petra, &alone)
		require.Equal(t, op, alone)
	}

	for _, path := range []string{"/workers", "/workers/worker-0", "/worker-operations", "/worker-operations/drain"} {
		require.Equal(t, http.StatusNotFound, w.get(department+path, personToken(boris)).StatusCode, "another tenant's owner reads %s",
			path)
	}
	for _, path := range []string{"/workers/worker-7", "/worker-operations/none"} {
		require.Equal(t, http.StatusNotFound, w.get(department+path, personToken(petra)).StatusCode, path)
	}
}

// Requirements A7, D5: an operation has its phase, its result and its times, and who asked for it. A
// request without a document is read in the same place, by its id.
func TestOperationsHaveTheirResults(t *testing.T) {
	const file = "tenants/physics/projects/lattice/operations/"
	key := func(name string) schema.Key {
		return schema.Key{Kind: schema.KindMemberOperation, Tenant: "physics", Project: "lattice", Name: name}
	}
	v := viewOf(t, campusFiles(t))
	unit := schema.InstanceKey("physics", "lattice", "train")
	s := *v.Units.Get(unit)
	s.Operations = append(s.Operations, plan.Operation{Name: "request-1", ID: "4f1c", IsRequest: true, Phase: plan.OperationRunning,
		Spec: schema.MemberOperationSpec{Operation: schema.OpRestart, Member: "worker-0", Reason: "it hangs"}})
	v.Units = v.Units.With(&s)
	v.Things[key("drain-worker")] = &plan.ThingStatus{Key: key("drain-worker"), Phase: "failed", CorrelationID: "c-1",
		Detail: []byte(`{"requested_by":"anna","result":"host gpu-1 refused","requested_at":"2026-08-01T10:00:00Z","started_at":"2026-08-01T10:00:01Z","finished_at":"2026-08-01T10:00:02Z"}`)}
	v.Things[key("request-1")] = &plan.ThingStatus{Key: key("request-1"), UID: "4f1c", Phase: "running",
		Detail: []byte(`{"requested_by":"ada"}`)}
	w := worldOf(t, v, []string{petra, anna}, nil)
	const operations = "/api/v1/projects/physics.lattice/app-instances/train/member-operations"
	var all struct{ Items []operation }
	w.read(operations, anna, &all)
	require.Len(t, all.Items, 2)
	var drain, request operation
	w.read(operations+"/drain-worker", anna, &drain)
	require.Equal(t, []string{"failed", "anna", "host gpu-1 refused", "c-1", file + "drain-worker.yaml"},
		[]string{drain.Status, drain.RequestedBy, drain.Result, drain.CorrelationID, drain.DeclaredIn})
	require.Equal(t, time.Second, drain.FinishedAt.Sub(drain.StartedAt))
	w.read(operations+"/4f1c", anna, &request)
	require.Equal(t, []string{"4f1c", "running", "ada", "restart", "worker-0", ""},
		[]string{request.ID, request.Status, request.RequestedBy, request.Operation, request.MemberID, request.DeclaredIn})
}

// A consumer reads the workers that its own projects lend, and the operations on those; the owner
// reads all (requirement D5).
func TestConsumersReadTheWorkersTheyLend(t *testing.T) {
	operation := func(name, member string) string {
		return "apiVersion: berth/v1\nkind: MemberOperation\nmetadata: {name: " + name + "}\nspec: {operation: restart, member: " + member +
			", reason: it hangs}\n"
	}
	const dir = "tenants/physics/shared-runtimes/department/operations/"
	w := newWorld(t, with(campusFiles(t),
		map[string]string{dir + "lent.yaml": operation("lent", "worker-0"), dir + "own.yaml": operation("own", "controller-0")}),
		[]string{petra, carl, anna, boris, otto}, nil)
	for who, want := range map[string][2][]string{
		petra: {{"controller-0", "worker-0"}, {"lent", "own"}},
		carl:  {{"worker-0"}, {"lent"}},
		anna:  {{}, {}},
	} {
		require.Equal(t, want[0], w.ids(department+"/workers", who), who)
		require.Equal(t, want[1], w.ids(department+"/worker-operations", who), who)
	}
	var lent member
	w.read(department+"/workers/worker-0", carl, &lent)
	require.Equal(t, []string{"gpu-3", "physics.collider"}, []string{lent.Node, lent.SourceProjectID})
	require.Equal(t, http.StatusNotFound, w.get(department+"/workers/controller-0", personToken(carl)).StatusCode)

	// Of a runtime of the platform, a tenant is a consumer.
	require.Equal(t, []string{"worker-1"}, w.ids(commonsOfBiology+"/workers", boris))
	var ofPlatform member
	w.read(commonsOfBiology+"/workers/worker-1", boris, &ofPlatform)
	require.Equal(t, []string{"gpu-4", "biology.proteins", ""},
		[]string{ofPlatform.Node, ofPlatform.SourceProjectID, ofPlatform.PlacementReason})
	require.Equal(t, []string{}, w.ids(commonsOfBiology+"/worker-operations", boris))
	said := string(body(t, w.get(strings.Replace(commonsOfBiology, root, admin, 1)+"/workers", personToken(otto), "X-Break-Glass",
		"incident 7")))
	require.Contains(t, said, `"worker-0"`)
	require.Contains(t, said, "gpu-5")
	said = string(body(t, w.get(strings.Replace(commonsOfBiology, root, admin, 1)+"/worker-operations", personToken(otto), "X-Break-Glass",
		"incident 7")))
	require.Contains(t, said, `"label-worker"`)
}

// Requirement A17, for members of an instance and workers of a shared runtime.
func TestMembersHaveIntegrationMetadata(t *testing.T) {
	w := campusWorld(t, nil)
	for path, node := range map[string]string{lattice + "/app-instances/train/members/worker-0": "gpu-1",
		department + "/workers/worker-0": "gpu-3"} {
		var m map[string]any
		w.read(path, petra, &m)
		require.Equal(t, []any{"slurm", "runtimes/slurm", map[string]any{"node": node}},
			[]any{m["scheduler_type"], m["adapter"], m["references"]}, path)
	}
}

// The owner reads the state of each project at the runtime, a consumer that of its own. A project
// without an Attachment is requested, also before Berth has reconciled the runtime (requirement D2).
func TestSharedRuntimeListsItsAttachments(t *testing.T) {
	const attachment = "tenants/physics/shared-runtimes/department/attachments/lattice.yaml"
	collider := attachedProject{ProjectID: "physics.collider", AttachmentID: "collider", Status: "attached", Reason: "Attached"}
	waiting := attachedProject{ProjectID: "physics.lattice", AttachmentID: "lattice", Status: "requested", Reason: "NotAccepted",
		Message: "no Instance of physics.lattice names the shared runtime department"}
	w := worldOf(t, campusView(t), []string{petra, anna}, nil)
	read := func(who string) []attachedProject {
		var s sharedRuntime
		w.read(department, who, &s)
		return s.Attachments
	}
	require.Equal(t, []attachedProject{collider, waiting}, read(petra))
	require.Equal(t, []attachedProject{waiting}, read(anna))

	files := campusFiles(t)
	require.Contains(t, files, attachment)
	delete(files, attachment)
	v := viewOf(t, files)
	v.Units = v.Units.Without(schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "department"})
	w = worldOf(t, v, []string{petra, anna}, nil)
	require.Equal(t, []attachedProject{{ProjectID: "physics.collider", AttachmentID: "collider", Status: "requested"},
		{ProjectID: "physics.lattice", Status: "requested"}}, read(petra))
}

// All terms are in the answer as their documents have them, policy_metadata unread, and the
// narrower limits of the project in that of its instance.
func TestTermsAreAnswered(t *testing.T) {
	const terms = `{"contribution_policy": {"allow": true, "max_nodes": 2, "max_gpus": 8, "until": "2027-03-01", "on_jobs": {"cancel_after_seconds": 60}, "guaranteed": {"gpus": 4, "cpus": 16}, "preemption": {"mode": "requeue", "grace_seconds": 30}},
		"submission_policy": {"allow": true, "max_gpus": 4, "max_cpus": 64, "max_gpus_per_job": 2, "max_cpus_per_job": 32, "max_running_jobs": 20, "max_submitted_jobs": 40, "max_walltime_minutes": 600, "queues": ["main"], "priority": 100, "share": 3},
		"policy_metadata": {"any": {"thing": [1, "x"]}}, "on_jobs": {"wait": true}}`
	var spec map[string]any
	require.NoError(t, json.Unmarshal([]byte(terms), &spec))
	files := campusFiles(t)
	const instance = "tenants/physics/projects/collider/instances/analysis.yaml"
	w := newWorld(t, with(files, map[string]string{
		"tenants/physics/shared-runtimes/department/attachments/collider.yaml": "apiVersion: berth/v1\nkind: Attachment\nmetadata: " +
			"{name: collider}\nspec: {project_id: physics.collider, " + strings.TrimPrefix(terms, "{") + "\n",
		instance: strings.Replace(files[instance], "  shared_runtime: department\n",
			"  shared_runtime: department\n  submission_limits: {max_gpus: 2, queues: [main]}\n", 1),
	}), []string{petra}, nil)
	var got map[string]any
	w.read(department+"/attachments/collider", petra, &got)
	for field, want := range spec {
		require.Equal(t, want, got[field], field)
	}
	w.read("/api/v1/projects/physics.collider/app-instances/analysis", petra, &got)
	require.Equal(t, map[string]any{"max_gpus": 2.0, "queues": []any{"main"}}, got["submission_limits"])
}

// A shared runtime that failed says why to its owner; one of the platform has the tenant boundary
// of a shared service (requirement B5).
func TestSharedRuntimeIsAUnit(t *testing.T) {
	v := campusView(t)
	failed := *v.Units.Get(schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "department"})
	failed.Phase, failed.FailureReason = plan.PhaseFailed, "create: no such device"
	v.Units = v.Units.With(&failed)
	w := worldOf(t, v, []string{petra, boris}, nil)
	var s sharedRuntime
	w.read(department, petra, &s)
	require.Equal(t, []string{"failed", "create: no such device", "tenant_isolated"},
		[]string{s.Status, s.FailureReason, s.TenantBoundaryMode})
	w.read(commonsOfBiology, boris, &s)
	require.Equal(t, "shared_service", s.TenantBoundaryMode)
}
