package loop_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
)

// signless is a forge that rejects reactions to commands until released, with the
// given error.
type signless struct {
	*forge
	may   atomic.Bool
	tries atomic.Int64
	why   func() error
}

func (f *signless) Comment(ctx context.Context, n int, c reconciler.Comment) error {
	if len(c.Answers) > 0 && !f.may.Load() {
		f.tries.Add(1)
		return f.why()
	}
	return f.forge.Comment(ctx, n, c)
}

// signs waits until the answer is retried, then lets it through.
func (w *world) signs(f *signless) {
	w.t.Helper()
	before := f.tries.Load()
	w.eventually("answer retried", func() bool { return f.tries.Load() > before+1 })
	f.may.Store(true)
}

var unsigned = map[string]func() error{
	"an error": func() error { return errors.New("502 Bad Gateway") },
	"not yet":  func() error { return &reconciler.RetryAfterError{At: time.Now()} },
}

// A command that was carried out is answered with its outcome, also when the reaction
// succeeds long afterwards. It is carried out once.
func TestLateAnswerReportsTheOutcome(t *testing.T) {
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
func TestNextDaemonAcceptsRecordedCommand(t *testing.T) {
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
func TestNextDaemonAnswersNothingToDo(t *testing.T) {
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

// Each command is answered once, by its own id, also without reactions in the forge
// and after a restart. The plan comment stays unchanged.
func TestEachCommandIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, who := range []string{"ada", "bob"} {
		w.forge.let(who, reconciler.CanWrite)
	}
	f := &reactionless{forge: w.forge}
	tuned := func(o *loop.Options) { o.Forge = f }
	d := w.start(tuned)
	pr := w.pull(1, instanceNamed("train", 2))
	w.reviewed(pr)
	w.forge.mu.Lock()
	shown := w.forge.comments[1]["plan"]
	w.forge.mu.Unlock()
	ids := []int64{w.forge.say(1, "ada", "/berth help"), w.forge.say(1, "bob", "/berth dance"), w.forge.say(1, "ada", "/berth help")}
	answered := func() bool {
		w.forge.mu.Lock()
		defer w.forge.mu.Unlock()
		for _, id := range ids {
			if !w.forge.answered[id] {
				return false
			}
		}
		return true
	}
	w.eventually("every command answered", answered)
	require.NoError(t, d.stop())
	d = w.start(tuned)
	d.ready()
	d.passes(2, theCommands, thePulls)
	d.publishes(1)
	w.forge.mu.Lock()
	defer w.forge.mu.Unlock()
	require.Equal(t, 3, strings.Count(w.forge.comments[1]["answers"], "\n"), "one line for each command")
	require.Equal(t, 1, strings.Count(w.forge.comments[1]["answers"], "unknown command"))
	require.Equal(t, shown, w.forge.comments[1]["plan"])
}

// reactionless is a forge without reactions.
type reactionless struct{ *forge }

func (f *reactionless) React(context.Context, reconciler.CommandComment, reconciler.Reaction) error {
	return errors.New("404: no reactions here")
}

// An edited command is not carried out; the answer asks for a new comment.
func TestEditedCommandGetsAHint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	f := &signless{forge: w.forge, why: unsigned["an error"]}
	f.may.Store(true)
	_, commit := w.staled(func(o *loop.Options) { o.Forge = f })
	before := w.effects()
	w.forge.mu.Lock()
	w.forge.remarks[1] = append(w.forge.remarks[1], reconciler.CommandComment{ID: 99, Pull: 1, Author: "ada", Line: "/berth apply " + commit, When: time.Now(), Edited: true})
	w.forge.mu.Unlock()
	w.comes(99, reconciler.Confused)
	require.Contains(t, w.answer(1), "edited commands are not read; write a new comment")
	require.Equal(t, before, w.effects())
	require.NotNil(t, w.stale("train"))
}
