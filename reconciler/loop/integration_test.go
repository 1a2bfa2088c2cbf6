package loop_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
)

// The status file of a unit has the integration metadata of each member (requirement A17). An
// unreachable host does not remove it, and an observation of the same state writes nothing.
func TestStatusHasIntegrationMetadata(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	w.run(1)
	want := &plan.Integration{SchedulerType: "bare_metal", Adapter: "runtimes/bare_metal",
		References: map[string]string{"unit": trainKey.String()}}
	complete := func() bool {
		s := w.status("train")
		for _, m := range s.Members {
			if m.Integration == nil || m.Integration.References == nil {
				return false
			}
		}
		return len(s.Members) == 2
	}
	w.eventually("references of both members", complete)
	for _, m := range w.status("train").Members {
		require.Equal(t, want, m.Integration, m.Name)
	}
	files := w.files()
	path, err := trainKey.StatusPath()
	require.NoError(t, err)
	require.Contains(t, files[path], "scheduler_type: bare_metal")

	commits, observations := w.commits(), w.world.Calls("observe")
	w.eventually("more observations", func() bool { return w.world.Calls("observe") >= observations+5 })
	require.Equal(t, commits, w.commits())

	w.world.SetReachable(w.status("train").Members[0].Node, false)
	ready := func() bool { return w.status("train").Condition("Ready").Status == "Unknown" }
	w.eventually("unknown", ready)
	require.Equal(t, want, w.status("train").Members[0].Integration)
}
