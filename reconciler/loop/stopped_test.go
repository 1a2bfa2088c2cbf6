package loop_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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

// A unit that is declared stopped and was never made is stopped, and made when it is to run.
func TestUnitThatWasNeverMadeIsStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: strings.Replace(text, "  app: batch", "  desired_state: stopped\n  app: batch", 1)})
	w.start()
	w.eventually("stopped", w.phase("train", plan.PhaseStopped))
	w.put(map[string]string{path: text})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
}

// A unit that is declared again while its deletion is not known to be done is not missed.
func TestUnitDeclaredAgainIsNotLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.start(w.observed)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	control := w.status("train").Members[0].Node
	w.world.SetReachable(control, false)
	w.put(nil, path)
	w.eventually("deleting", w.phase("train", plan.PhaseDeleting))
	require.NoError(t, w.world.Lose(trainKey)) // the deletion was done, and its answer was lost
	commit := w.put(map[string]string{path: text})
	w.eventually("declared again", func() bool { return w.status("train").Revision == commit })
	w.world.SetReachable(control, true)
	w.eventually("running again", w.phase("train", plan.PhaseRunning))
}
