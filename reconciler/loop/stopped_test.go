package loop_test

import (
	"strings"
	"testing"

	"berth/reconciler/plan"
)

// A unit that is stopped by a change that also changes its members is stopped: the members wait until it is started.
func TestStopWithOtherChangesEndsStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.start()
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	_, text = instance("train", 2)
	w.put(map[string]string{path: strings.Replace(text, "  app: batch", "  desired_state: stopped\n  app: batch", 1)})
	w.eventually("stopped", w.phase("train", plan.PhaseStopped))
}
