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

var unsigned = map[string]func() error{
	"an error": func() error { return errors.New("502 Bad Gateway") },
	"not yet":  func() error { return &reconciler.RetryAfterError{At: time.Now()} },
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
	w.forge.remarks[1] = append(w.forge.remarks[1],
		reconciler.CommandComment{ID: 99, Pull: 1, Author: "ada", Line: "/berth apply " + commit, When: time.Now(), Edited: true})
	w.forge.mu.Unlock()
	w.comes(99, reconciler.Confused)
	require.Contains(t, w.answer(1), "edited commands are not read; write a new comment")
	require.Equal(t, before, w.effects())
	require.NotNil(t, w.stale("train"))
}
