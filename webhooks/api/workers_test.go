package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Requirement D5: each worker has its node, state and source project; each
// operation has its request and status.
func TestWorkersOfASharedRuntimeAndTheirOperations(t *testing.T) {
	const file = "tenants/physics/shared-runtimes/department/operations/drain.yaml"
	w := newWorld(t, with(campusFiles(t), map[string]string{
		file: "apiVersion: berth/v1\nkind: MemberOperation\nmetadata: {name: drain, uid: op-9}\nspec: {operation: drain, member: worker-0, reason: a fan is loud}\n",
	}), []string{petra, boris}, nil)

	var workers struct{ Items []member }
	w.read(department+"/workers", petra, &workers)
	require.Len(t, workers.Items, 1)
	worker := workers.Items[0]
	require.Equal(t, []string{"worker-0", "worker", "running", "gpu-3", "campus-north", "a100x4", "physics.collider", "department"},
		[]string{worker.ID, worker.Role, worker.Status, worker.Node, worker.Region, worker.SKU, worker.SourceProjectID, worker.SharedRuntimeID})
	require.False(t, worker.ControlPlane)
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
		require.Equal(t, http.StatusNotFound, w.get(department+path, personToken(boris)).StatusCode, "another tenant's owner reads %s", path)
	}
	for _, path := range []string{"/workers/worker-7", "/worker-operations/none"} {
		require.Equal(t, http.StatusNotFound, w.get(department+path, personToken(petra)).StatusCode, path)
	}
}
