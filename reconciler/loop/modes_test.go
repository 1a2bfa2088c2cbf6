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
