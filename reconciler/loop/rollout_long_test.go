//go:build long

package loop_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
)

// A new daemon reports the outcome of a merge that its predecessor did not report. The
// cases are a merge without changes, a deleted unit, a unit changed by a later commit,
// and a held document.
func TestLongRolloutIsReportedAfterRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone, text := instance("gone", 0)
	moved, first := instance("moved", 0)
	_, second := instance("moved", 1)
	broken, wrong := instance("broken", 0)
	wrong = strings.Replace(wrong, "display_name", "dislpay_name", 1)
	w.put(map[string]string{gone: text})
	d := w.start()
	w.eventually("runs", w.phase("gone", plan.PhaseRunning))

	nothing := w.pull(1, map[string]string{"docs/README.md": "hello\n"})
	moves := w.pull(2, map[string]string{moved: first})
	delete := w.pull(3, nil, gone)
	held := w.pull(4, map[string]string{broken: wrong})
	d.Enqueue(reconciler.Item{Task: reconciler.TaskPulls})
	for _, pr := range []reconciler.PullRequest{nothing, moves, delete, held} {
		w.eventually("shown", w.shownFully(pr.Number, pr.Head))
	}
	w.eventually("recorded", func() bool { return len(w.reviews()) == 4 })
	w.forge.mu.Lock()
	w.forge.fails = func(string) error { return errors.New("the forge rejects every write") }
	w.forge.mu.Unlock()
	commits := w.merge(nothing, moves, delete, held)
	w.eventually("moved", w.phase("moved", plan.PhaseRunning))
	w.eventually("gone", func() bool { return w.status("gone") == nil })
	last := w.put(map[string]string{moved: second})
	w.eventually("moved again", func() bool {
		s := w.status("moved")
		return s != nil && s.Revision == last && s.Phase == plan.PhaseRunning
	})
	require.NoError(t, d.stop())
	w.forge.mu.Lock()
	w.forge.fails = nil
	w.forge.mu.Unlock()
	for n := range 4 {
		require.Nil(t, w.rolloutOf(n+1))
	}

	d = w.start()
	for n, commit := range commits {
		w.eventually(fmt.Sprint("reported ", n+1, w.rolloutOf(n+1)),
			func() bool { return w.rolloutOf(n+1) != nil && w.rolloutOf(n+1).Settled() })
		require.Equal(t, commit, w.rolloutOf(n+1).Commit)
	}
	require.Empty(t, w.rolloutOf(1).Units)
	require.Len(t, w.rolloutOf(2).Units, 1)
	require.Equal(t, last, w.rolloutOf(2).Units[0].TakenOver)
	require.Len(t, w.rolloutOf(3).Units, 1)
	require.Equal(t, plan.PhaseDeleted, w.rolloutOf(3).Units[0].Phase)
	require.Len(t, w.rolloutOf(4).Held, 1)
	require.Equal(t, broken, w.rolloutOf(4).Held[0].File)
	w.eventually("forgotten", func() bool { return len(w.reviews()) == 0 })

	// All rollouts are complete.
	wrote := w.forge.written("")
	require.NoError(t, d.stop())
	d = w.start()
	d.ready()
	d.passes(3, theEstate, thePulls, theCommands)
	d.does(theShow)
	require.Equal(t, wrote, w.forge.written(""))
}

// A daemon that starts during a rollout continues to report its held part.
func TestLongRolloutContinuesAfterRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := held{memory.New(w.world), make(chan struct{})}
	slow := func(o *loop.Options) { o.Runtimes = map[string]runtimes.Runtime{"bare_metal": h} }
	d := w.start(slow)
	train, text := instance("train", 1)
	broken, wrong := instance("broken", 0)
	pr := w.pull(1, map[string]string{train: text, broken: strings.Replace(wrong, "display_name", "dislpay_name", 1)})
	d.Enqueue(reconciler.Item{Task: reconciler.TaskPulls})
	w.eventually("shown", w.shownFully(1, pr.Head))
	w.merge(pr)
	w.eventually("reported", func() bool { r := w.rolloutOf(1); return r != nil && len(r.Held) == 1 && len(r.Units) == 1 })
	require.NoError(t, d.stop())
	w.start(slow)
	close(h.until)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	w.eventually("settled", func() bool { return w.rolloutOf(1).Settled() })
	w.eventually("forgotten", func() bool { return len(w.reviews()) == 0 })
	w.forge.mu.Lock()
	defer w.forge.mu.Unlock()
	for _, r := range w.forge.follow {
		require.Len(t, r.Held, 1)
	}
}
