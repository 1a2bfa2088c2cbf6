package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/nodes"
	"berth/reconciler/plan"
	"berth/schema"
)

// Requirement E5: platform users see all nodes; a project sees those with a member of its own units and those that it lends, and no
// other is found. No answer has an address.
func TestNodesOfTheCaller(t *testing.T) {
	v := viewOf(t, campusFiles(t))
	gpu1 := schema.Key{Kind: schema.KindNode, Name: "gpu-1"}
	v.Things[gpu1] = &plan.ThingStatus{Key: gpu1, Phase: "lost",
		Conditions: []plan.Condition{{Type: plan.ConditionReady, Status: plan.ConditionFalse, Reason: plan.ReasonHostAndSchedulerSilent,
			Message: "dial tcp 10.0.0.7:22: no route"}},
		Detail: []byte(`{"since":"2026-08-01T10:00:00Z","answered_at":"2026-08-01T09:50:00Z","measured":{"load":3.5,"clock_offset_ms":-20,
			"disks":[{"path":"/","size_gib":100,"free_gib":7}]}}`)}
	w := worldOf(t, v, []string{petra, anna, carl, boris, otto}, nil)
	for who, want := range map[string][]string{
		otto: {"gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5", "gpu-6", "gpu-7", "gpu-8", "head-1", "head-2"},
		anna: {"gpu-1", "head-1"}, // physics.lattice
		carl: {"gpu-3"},           // physics.collider lends it
	} {
		require.Equal(t, want, w.ids("/api/v1/nodes", who), who)
	}
	require.Contains(t, w.ids("/api/v1/nodes", petra), "gpu-3", "the tenant owns the shared runtime")
	for who, status := range map[string]int{otto: http.StatusOK, anna: http.StatusOK, carl: http.StatusNotFound, boris: http.StatusNotFound} {
		res := w.get("/api/v1/nodes/gpu-1", personToken(who))
		require.Equal(t, status, res.StatusCode, who)
		require.NotContains(t, string(body(t, res)), "10.0.0.7")
	}
	var one clusterNode
	w.read("/api/v1/nodes/gpu-1", anna, &one)
	require.Equal(t, []string{"gpu-1", "lost", "HostAndSchedulerSilent"}, []string{one.ID, one.Status, one.Reason})
	require.Equal(t, 2026, one.Answered.Year())

	var all, own clusterSummary
	w.read("/api/v1/nodes/summary", otto, &all)
	require.Equal(t, map[string]int{"ready": 0, "not_ready": 0, "unknown": 9, "lost": 1}, all.Nodes)
	require.Equal(t, 3, all.Units["running"])
	w.read("/api/v1/nodes/summary", anna, &own)
	require.Equal(t, map[string]int{"ready": 0, "not_ready": 0, "unknown": 1, "lost": 1}, own.Nodes)
	require.Equal(t, 1, own.Units["running"])
	require.Len(t, own.GPUs, 1)
	require.Less(t, own.GPUs[0].Total, all.GPUs[0].Total+1)

	require.Nil(t, own.GPUs[0].Free, "it would tell what others use")
	require.Nil(t, one.GPUs[0].Free)
	require.Nil(t, one.Measured)
	require.NotNil(t, all.GPUs[0].Free)
	w.read("/api/v1/nodes/gpu-1", otto, &one)
	require.NotNil(t, one.GPUs[0].Free)
	require.Equal(t, &nodes.Measured{Load: new(3.5), ClockOffset: -20, Disks: []nodes.Disk{{Path: "/", SizeGiB: 100, FreeGiB: 7}}},
		one.Measured)
}
