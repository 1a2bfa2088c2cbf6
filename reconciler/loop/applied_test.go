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
	"berth/reconciler/decide"
	"berth/reconciler/loop"
	"berth/schema"
)

// owned requires a permission for every change; root is administrator.
func owned(o *loop.Options) {
	o.Decide.Authority, o.Settings.AuthorLag = &decide.Authority{Administrators: []string{"root"}}, 50*time.Millisecond
}

// pushed runs train with two workers, then an unknown author pushes a third.
func (w *world) pushed() (d *daemon, commit string) {
	w.t.Helper()
	for _, who := range []string{"ada", "eve", "root"} {
		w.forge.let(who, reconciler.CanWrite)
	}
	path, text := instance("train", 2)
	w.put(map[string]string{path: text})
	d = w.start(owned)
	w.eventually("running", w.running("train", 2))
	_, more := instance("train", 3)
	commit = w.put(map[string]string{path: more})
	w.eventually("held", func() bool { return w.heldReasons()[path] == schema.HeldUnauthorised })
	return d, commit
}

// A direct push by an unknown author comes into force by the command of a user with
// the permission. The command works on any pull request and is repeated after Berth
// posts the plan.
func TestApplyBringsADirectPushIntoForce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, commit := w.pushed()
	w.pull(1, map[string]string{"README.md": "nothing to do with it\n"})
	before := w.effects()

	w.comes(w.forge.say(1, "eve", "/berth apply "+commit), reconciler.Refused)
	require.Contains(t, w.answer(1), "eve lacks ")
	w.comes(w.forge.say(1, "ada", "/berth apply 0123456789"), reconciler.Refused)
	require.Contains(t, w.answer(1), "no commit of main begins with 0123456789")

	w.comes(w.forge.say(1, "ada", "/berth apply "+commit[:8]), reconciler.Refused)
	require.Contains(t, w.answer(1), "then repeat the command")
	require.Contains(t, w.answer(1), "### Plan of")
	require.Contains(t, w.answer(1), "physics.lab/train")
	require.Equal(t, before, w.effects(), "no host action before the plan is confirmed")

	// The next daemon knows that the plan was posted.
	require.NoError(t, d.stop())
	w.start(owned)
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Accepted)
	w.eventually("applied", w.running("train", 3))
	require.Empty(t, w.revision().Held)
	require.Equal(t, commit, w.status("train").Revision)
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Understood)
	w.eventually("audited", func() bool {
		var command, document, denied bool
		for _, r := range w.audited() {
			command = command || r.Action == "change.apply" && r.Actor == "ada" && r.Verdict == "allowed" && r.Commit == commit
			denied = denied || r.Action == "change.apply" && r.Actor == "eve" && r.Verdict == "denied"
			document = document || r.Action == "document.modified" && r.Actor == "ada" && r.Verdict == "allowed" && r.Commit == commit
		}
		return command && document && denied
	})
}

// A change that was merged without permission stays held after a late approval. It
// comes into force by a command on its own pull request.
func TestApplyBringsAMergeWithoutPermissionIntoForce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, who := range []string{"ada", "eve"} {
		w.forge.let(who, reconciler.CanWrite)
	}
	path, text := instance("train", 2)
	w.put(map[string]string{path: text})
	w.start(owned)
	w.eventually("running", w.running("train", 2))
	pr := w.pull(1, instanceNamed("train", 3))
	pr.Author = "eve"
	w.forge.put(pr)
	w.reviewed(pr)
	commit := w.merge(pr)[0]
	w.eventually("held", func() bool { return w.heldReasons()[path] == schema.HeldUnauthorised })
	w.forge.mu.Lock()
	w.forge.approvers = []string{"ada"}
	w.forge.mu.Unlock()
	w.put(map[string]string{"README.md": "decided once more\n"})
	w.eventually("decided", func() bool { return w.revision().Commit == w.git.Tip("main") })
	require.Equal(t, schema.HeldUnauthorised, w.heldReasons()[path], "an approval after the merge has no effect")

	w.comes(w.forge.say(1, "eve", "/berth apply "+commit), reconciler.Refused)
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Refused)
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Accepted)
	w.eventually("applied", w.running("train", 3))
	w.eventually("reported", func() bool {
		r, ok := w.forge.rollout(commit)
		return ok && len(r.Held) == 0 && r.Settled()
	})
}

// The command also brings a deletion above the limit into force.
func TestApplyReleasesAHeldDeletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	w.start()
	pr := w.pull(1, nil, w.seven()...)
	w.asked(1)
	w.reviewed(pr)
	commit := w.merge(pr)[0]
	w.eventually("held", func() bool { return len(w.revision().Held) == 7 })
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Refused)
	require.Contains(t, w.answer(1), "then repeat the command")
	require.False(t, w.gone())
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Accepted)
	w.eventually("gone", w.gone)
	require.Empty(t, w.revision().Held)
}

// A command for a commit that a later commit replaced is refused, and the answer names
// that later commit. A plan that changed since it was posted is posted again.
func TestApplyNeedsCurrentCommitAndPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, commit := w.pushed()
	w.pull(1, map[string]string{"README.md": "nothing to do with it\n"})
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Refused)
	path, more := instance("train", 3)
	next := w.put(map[string]string{path: more + "# edited\n"})
	w.eventually("decided", func() bool { return w.revision().Commit == next })
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Refused)
	require.Contains(t, w.answer(1), next[:10]+" replaced "+path+"; use /berth apply "+next[:10])

	w.comes(w.forge.say(1, "ada", "/berth apply "+next), reconciler.Refused)
	other := w.shown(3, instanceNamed("other", 1))
	w.merge(other)
	w.eventually("another instance has the node that the plan named", w.running("other", 1))
	before := w.effects()
	w.comes(w.forge.say(1, "ada", "/berth apply "+next), reconciler.Refused)
	require.Equal(t, 3, strings.Count(w.answer(1), "### Plan of"), "the new plan is posted")
	require.Equal(t, before, w.effects())
	w.comes(w.forge.say(1, "ada", "/berth apply "+next), reconciler.Accepted)
	w.eventually("applied", w.running("train", 3))
}

// A command counts on a closed unmerged pull request, but not on a pull request of
// another branch. Package forgetest covers comments by bots and by Berth.
func TestApplyOnOtherPullRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, commit := w.pushed()
	closed := w.pull(1, map[string]string{"README.md": "nothing to do with it\n"})
	closed.Open = false
	foreign := w.pull(2, map[string]string{"README.md": "of another estate\n"})
	foreign.BaseBranch = "other"
	w.forge.put(closed)
	w.forge.put(foreign)
	abroad := w.forge.say(2, "ada", "/berth apply "+commit)
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Refused)
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Accepted)
	w.eventually("applied", w.running("train", 3))
	w.forge.mu.Lock()
	defer w.forge.mu.Unlock()
	require.Empty(t, w.forge.reactions[abroad])
	require.False(t, w.forge.answered[abroad])
}

// lapse is a repository that, once armed, fails to list the history of main after a
// change of berth/in-force.
type lapse struct {
	reconciler.Repo
	armed, down *atomic.Bool
}

func (l lapse) WriteInForce(ctx context.Context, old string, w reconciler.InForce) (string, error) {
	tip, err := l.Repo.WriteInForce(ctx, old, w)
	l.down.Store(err == nil && l.armed.Load())
	return tip, err
}

func (l lapse) Log(ctx context.Context, from, to string, most int) ([]reconciler.Commit, error) {
	if most >= 20_000 && l.down.CompareAndSwap(true, false) {
		return nil, errors.New("a moment of darkness")
	}
	return l.Repo.Log(ctx, from, to, most)
}

// An error between the change and its answer does not change the answer.
func TestApplyAnswerSurvivesAnError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, commit := w.pushed()
	w.pull(1, map[string]string{"README.md": "nothing to do with it\n"})
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Refused)
	require.NoError(t, d.stop())
	var armed, down atomic.Bool
	w.start(owned, func(o *loop.Options) { o.Repo = lapse{o.Repo, &armed, &down} })
	armed.Store(true)
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Accepted)
	require.False(t, down.Load(), "the error occurred")
	w.eventually("applied", w.running("train", 3))
}
