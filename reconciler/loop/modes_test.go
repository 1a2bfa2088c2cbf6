package loop_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/reconciler/plan"
)

// modes are the three fields for the effective mode of an instance.
type modes struct {
	OperatingMode     string `json:"operating_mode"`
	ControlPlaneScope string `json:"control_plane_scope"`
	RuntimeBackend    string `json:"runtime_backend"`
}

const statusOfTrain = "tenants/physics/projects/lab/instances/train.yaml"

// statusModes reads the modes from the status file of an instance.
func (w *world) statusModes(path string) (m modes) {
	w.t.Helper()
	text, err := w.git.Read("berth/status", path)
	require.NoError(w.t, err)
	require.NoError(w.t, yaml.Unmarshal([]byte(text), &m))
	return m
}

// eventModes returns the modes in each event of an instance, by event type.
func (w *world) eventModes(name string) map[string]modes {
	w.t.Helper()
	out := map[string]modes{}
	for _, e := range w.events() {
		var payload struct {
			modes
			ID string `json:"app_instance_id"`
		}
		require.NoError(w.t, json.Unmarshal(e.Payload, &payload))
		if payload.ID == name {
			out[e.EventType] = payload.modes
		}
	}
	return out
}

// Requirement B4: the status file and every event of an instance carry operating_mode,
// control_plane_scope and runtime_backend, also when the document names none of them.
func TestStatusAndEventsCarryModes(t *testing.T) {
	t.Parallel()
	want := modes{"tenant_dedicated", "project", "bare_metal"}
	for name, declared := range map[string]string{
		"by default": "",
		"declared":   "  operating_mode: tenant_dedicated\n  control_plane_scope: project\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			rt := newFaulty(w.world)
			rt.broken.Store(true)
			w.start(rt.use)
			path, text := instance("train", 1)
			w.put(map[string]string{path: text + declared})
			w.eventually("failed", w.phase("train", plan.PhaseFailed))
			require.Equal(t, want, w.statusModes(statusOfTrain))
			rt.broken.Store(false)
			w.eventually("running", w.phase("train", plan.PhaseRunning))
			require.Equal(t, want, w.statusModes(statusOfTrain))
			w.put(nil, path)
			w.eventually("gone", func() bool { return w.status("train") == nil })
			require.Equal(t, map[string]modes{
				"apps.instance.requested": want, "apps.instance.failed": want, "apps.instance.running": want,
				"apps.instance.deleting": want, "apps.instance.deleted": want,
			}, w.eventModes("train"))
		})
	}
}

// Instances of the two shared modes are not deployed yet. Their status carries the
// modes of the shared runtime that they name.
func TestSharedInstancesCarryModesOfTheirRuntime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	const runtime = "apiVersion: berth/v1\nkind: SharedRuntime\nmetadata: {name: commons}\nspec: {app: batch, version: v1, display_name: Commons, roles: {controller: {count: 1}, worker: {count: 1}}}\n"
	const attachment = "apiVersion: berth/v1\nkind: Attachment\nmetadata: {name: lab}\nspec: {project_id: physics.lab}\n"
	instances := "tenants/physics/projects/lab/instances/"
	shared := func(name, scope string) string {
		return "apiVersion: berth/v1\nkind: Instance\nmetadata: {name: " + name + "}\nspec: {app: batch, version: v1, display_name: x, control_plane_scope: " + scope + ", shared_runtime: commons}\n"
	}
	w.put(map[string]string{
		"tenants/physics/shared-runtimes/commons/runtime.yaml":         runtime,
		"tenants/physics/shared-runtimes/commons/attachments/lab.yaml": attachment,
		"platform/shared-runtimes/commons/runtime.yaml":                runtime,
		"platform/shared-runtimes/commons/attachments/lab.yaml":        attachment,
		instances + "yard.yaml":                                        shared("yard", "tenant"),
		instances + "dock.yaml":                                        shared("dock", "platform"),
	})
	w.eventually("recorded", func() bool { return w.status("yard") != nil && w.status("dock") != nil })
	for name, want := range map[string]modes{
		"yard": {"tenant_dedicated", "tenant", "bare_metal"},
		"dock": {"platform_managed", "platform", "bare_metal"},
	} {
		require.Equal(t, want, w.statusModes(instances+name+".yaml"))
		require.Equal(t, map[string]modes{"apps.instance.requested": want}, w.eventModes(name))
	}
	require.Zero(t, w.world.Calls("create"))
}
