//go:build long

package loop_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
)

// signs waits until the answer is retried, then lets it through.
func (w *world) signs(f *signless) {
	w.t.Helper()
	before := f.tries.Load()
	w.eventually("answer retried", func() bool { return f.tries.Load() > before+1 })
	f.may.Store(true)
}

// A command that was carried out is answered with its outcome, also when the reaction
// succeeds long afterwards. It is carried out once.
func TestLongLateAnswerReportsTheOutcome(t *testing.T) {
	t.Parallel()
	for name, why := range unsigned {
		t.Run("apply, "+name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.forge.let("ada", reconciler.CanWrite)
			f := &signless{forge: w.forge, why: why}
			_, commit := w.staled(func(o *loop.Options) { o.Forge = f })
			id := w.forge.say(1, "ada", "/berth apply "+commit)
			w.eventually("applied", func() bool {
				s := w.status("train")
				return converged(s, 4) && s.Review == nil
			})
			w.signs(f)
			w.comes(id, reconciler.Accepted)
			require.Equal(t, 1, strings.Count(w.answer(1), "✓"))
		})
		t.Run("retry, "+name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.forge.let("ada", reconciler.CanWrite)
			f := &signless{forge: w.forge, why: why}
			w.start(func(o *loop.Options) { o.Forge, o.Settings.MaxAttempts = f, 1 })
			pr := w.pull(1, instanceNamed("train", 1))
			w.reviewed(pr)
			w.world.FailStep(1, errors.New("the disk is full"))
			w.merge(pr)
			w.eventually("gave up", func() bool { s := w.status("train"); return s != nil && s.Retry != nil && s.Retry.Terminal })
			id := w.forge.say(1, "ada", "/berth retry")
			w.eventually("running", w.phase("train", plan.PhaseRunning))
			w.signs(f)
			w.comes(id, reconciler.Accepted)
			require.Equal(t, 1, strings.Count(w.answer(1), "✓"))
			n := 0
			for _, r := range w.audited() {
				if r.Action == "unit.retry" {
					n++
				}
			}
			require.Equal(t, 1, n)
		})
		t.Run("ack-delete, "+name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.forge.let("ada", reconciler.CanWrite)
			f := &signless{forge: w.forge, why: why}
			w.start(func(o *loop.Options) { o.Forge = f })
			pr := w.pull(1, nil, w.seven()...)
			digest := w.asked(1)
			w.reviewed(pr)
			commit := w.merge(pr)[0]
			w.eventually("decided", func() bool { return w.revision().Commit == commit })
			id := w.forge.say(1, "ada", "/berth ack-delete "+digest)
			w.eventually("gone", w.gone)
			w.signs(f)
			w.comes(id, reconciler.Accepted)
			require.Equal(t, 1, strings.Count(w.answer(1), "✓"))
		})
	}
}

// A new daemon accepts a command that the previous one recorded but did not start. The
// record names the user.
func TestLongNextDaemonAcceptsRecordedCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	f := &signless{forge: w.forge, why: unsigned["an error"]}
	d, commit := w.staled(func(o *loop.Options) { o.Forge = f })
	for _, n := range []string{"ctl", "gpu-1", "gpu-2", "gpu-3", "gpu-4"} {
		w.world.SetReachable(n, false)
	}
	id := w.forge.say(1, "ada", "/berth apply "+commit)
	w.eventually("recorded", func() bool { v := w.stale("train"); return v != nil && v.Meant == v.Stale.Now && v.By == "ada" })
	require.NoError(t, d.stop())
	require.NotNil(t, w.stale("train"), "the change could not be started")
	w.start()
	w.comes(id, reconciler.Accepted)
	require.Equal(t, 1, strings.Count(w.answer(1), "✓"))
}

// A daemon that does not know the effect of an earlier daemon answers that nothing is
// left to do. It does not answer that nothing was done.
func TestLongNextDaemonAnswersNothingToDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	f := &signless{forge: w.forge, why: unsigned["an error"]}
	d, commit := w.staled(func(o *loop.Options) { o.Forge = f })
	id := w.forge.say(1, "ada", "/berth apply "+commit)
	w.eventually("applied", func() bool { s := w.status("train"); return s.Phase == plan.PhaseRunning && s.Review == nil })
	require.NoError(t, d.stop())
	w.start()
	w.comes(id, reconciler.Understood)
	require.Contains(t, w.answer(1), "nothing to do")
}
