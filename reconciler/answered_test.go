package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema/policy"
)

// signless is a forge that sets no sign beside a remark until it may, whatever its
// reason is.
type signless struct {
	*forge
	may   atomic.Bool
	tries atomic.Int64
	why   func() error
}

func (f *signless) React(ctx context.Context, r reconciler.Remark, with reconciler.Reaction) error {
	if f.tries.Add(1); !f.may.Load() {
		return f.why()
	}
	return f.forge.React(ctx, r, with)
}

// signs waits until a sign was tried for again after this, and lets it through.
func (w *world) signs(f *signless) {
	w.t.Helper()
	before := f.tries.Load()
	w.eventually("tried again", func() bool { return f.tries.Load() > before+1 })
	f.may.Store(true)
}

var unsigned = map[string]func() error{
	"an error": func() error { return errors.New("502 Bad Gateway") },
	"not yet":  func() error { return &reconciler.LaterError{At: time.Now()} },
}

// What was done is answered so, though the sign that says it is set long after
// there is nothing left to do; and it is done once.
func TestWhatWasDoneIsAnsweredSoHoweverLateTheAnswer(t *testing.T) {
	t.Parallel()
	for name, why := range unsigned {
		t.Run("apply, "+name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.forge.let("ada", reconciler.CanWrite)
			f := &signless{forge: w.forge, why: why}
			_, commit := w.staled(func(o *reconciler.Options) { o.Forge = f })
			id := w.forge.say(1, "ada", "/berth apply "+commit)
			w.eventually("applied", func() bool {
				s := w.status("train")
				return len(s.Members) == 4 && s.Phase == plan.PhaseRunning && s.Review == nil
			})
			w.signs(f)
			w.comes(id, reconciler.Accepted)
			require.Empty(t, w.answer(1))
		})
		t.Run("retry, "+name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.forge.let("ada", reconciler.CanWrite)
			f := &signless{forge: w.forge, why: why}
			w.start(func(o *reconciler.Options) { o.Forge, o.MaxAttempts = f, 1 })
			pr := w.pull(1, instanceNamed("train", 1))
			w.reviewed(pr)
			w.world.FailStep(1, errors.New("the disk is full"))
			w.merge(pr)
			w.eventually("gave up", func() bool { s := w.status("train"); return s != nil && s.Retry != nil && s.Retry.Terminal })
			id := w.forge.say(1, "ada", "/berth retry")
			w.eventually("running", w.phase("train", plan.PhaseRunning))
			w.signs(f)
			w.comes(id, reconciler.Accepted)
			require.Empty(t, w.answer(1))
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
			w.start(func(o *reconciler.Options) { o.Forge = f })
			pr := w.pull(1, nil, w.seven()...)
			digest := w.asked(1)
			w.reviewed(pr)
			commit := w.merge(pr)[0]
			w.eventually("decided", func() bool { return w.revision().Commit == commit })
			id := w.forge.say(1, "ada", "/berth ack-delete "+digest)
			w.eventually("gone", w.gone)
			w.signs(f)
			w.comes(id, reconciler.Accepted)
			require.Empty(t, w.answer(1))
		})
	}
}

// A daemon that takes over before what was said could be begun accepts it too: who
// said so is recorded with the unit.
func TestWhatWasMeantIsAcceptedByTheNextDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	f := &signless{forge: w.forge, why: unsigned["an error"]}
	d, commit := w.staled(func(o *reconciler.Options) { o.Forge = f })
	for _, n := range []string{"ctl", "gpu-1", "gpu-2", "gpu-3", "gpu-4"} {
		w.world.SetReachable(n, false)
	}
	id := w.forge.say(1, "ada", "/berth apply "+commit)
	w.eventually("recorded", func() bool { v := w.stale("train"); return v != nil && v.Meant == v.Stale.Now && v.By == "ada" })
	require.NoError(t, d.stop())
	require.NotNil(t, w.stale("train"), "it could not be begun")
	w.start()
	w.comes(id, reconciler.Accepted)
	require.Empty(t, w.answer(1))
}

// A daemon that cannot know any more what an earlier one did says that nothing is
// left to do, not that nothing was done.
func TestWhatAnEarlierDaemonDidIsNotDenied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	f := &signless{forge: w.forge, why: unsigned["an error"]}
	d, commit := w.staled(func(o *reconciler.Options) { o.Forge = f })
	id := w.forge.say(1, "ada", "/berth apply "+commit)
	w.eventually("applied", func() bool { s := w.status("train"); return s.Phase == plan.PhaseRunning && s.Review == nil })
	require.NoError(t, d.stop())
	w.start()
	w.comes(id, reconciler.Understood)
	require.Contains(t, w.answer(1), "Nothing to do")
}

// Whoever is answered in words reads them, also if others ask at the same time.
func TestWordsToManyStandTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, who := range []string{"ada", "bob"} {
		w.forge.let(who, reconciler.CanWrite)
	}
	w.forge.set(reconciler.PullRequest{Number: 1, Author: "ada", BaseBranch: "main", Open: true})
	hers := w.forge.say(1, "ada", "/berth help")
	his := w.forge.say(1, "bob", "/berth apply 0123456")
	w.forge.say(1, "ada", "/berth help")
	w.start()
	w.comes(his, reconciler.Refused)
	w.comes(hers, reconciler.Understood)
	require.Contains(t, w.answer(1), "before the merge")
	require.Equal(t, 1, strings.Count(w.answer(1), "### `/berth help`"), "what is the same is said once")
}

// What has no place beside other words is said after them.
func TestWordsWithoutAPlaceAreSaidLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := &reading{forge: w.forge}
	w.forge.set(reconciler.PullRequest{Number: 1, Author: "ada", BaseBranch: "main", Open: true})
	var ids []int64
	for i := range 3 {
		who := fmt.Sprint("ada", i)
		w.forge.let(who, reconciler.CanWrite)
		ids = append(ids, w.forge.say(1, who, "/berth help"))
	}
	w.start(func(o *reconciler.Options) {
		o.Forge = f
		o.Render.Answer = func(a plan.Answer, _ *policy.Explanation) string { return a.To + strings.Repeat(" word", 1400) }
	})
	for i, id := range ids {
		w.comes(id, reconciler.Understood)
		said, _ := f.said.Load().(string)
		require.Contains(t, said, fmt.Sprint("ada", i, " "))
	}
	require.LessOrEqual(t, len(w.answer(1)), 16_000)
}

// reading is a forge that remembers each answer it was given.
type reading struct {
	*forge
	said atomic.Value
}

func (f *reading) Comment(ctx context.Context, n int, c reconciler.Comment) error {
	if c.Answer != nil {
		was, _ := f.said.Load().(string)
		f.said.Store(was + *c.Answer)
	}
	return f.forge.Comment(ctx, n, c)
}
