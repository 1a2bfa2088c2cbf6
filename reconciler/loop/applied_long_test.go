//go:build long

package loop_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/loop"
	"berth/schema"
)

// Commands of other tenants are carried out while one tenant tree is unreadable or
// Berth is paused. A pause stops every host action; a freeze also stops commands.
func TestLongApplyNeverOverridesPauseOrFreeze(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 2)
	for _, who := range []string{"ada", "root"} {
		w.forge.let(who, reconciler.CanWrite)
	}
	w.put(map[string]string{path: text})
	dark := &atomic.Bool{}
	w.start(owned, func(o *loop.Options) { o.Repo = dim{o.Repo, "tenants/biology", dark} })
	w.eventually("running", w.running("train", 2))
	_, more := instance("train", 3)
	commit := w.put(map[string]string{path: more})
	w.eventually("held", func() bool { return w.heldReasons()[path] == schema.HeldUnauthorised })
	pause := w.pull(1, map[string]string{"platform/pause.yaml": "apiVersion: berth/v1\nkind: Pause\nmetadata: {name: pause}\nspec: " +
		"{reason: maintenance}\n"})
	pause.Author = "root"
	w.forge.put(pause)
	w.reviewed(pause)
	w.merge(pause)
	w.eventually("paused", func() bool { return w.revision().Commit == w.git.Tip("main") && len(w.revision().Held) == 1 })
	before := w.effects()
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Refused)
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Accepted)
	require.Contains(t, w.answer(1), "Berth is paused")
	require.Empty(t, w.revision().Held)
	w.latest.does(train)
	w.latest.does(train)
	require.Equal(t, before, w.effects(), "a pause stops every effect")

	dark.Store(true)
	_, more = instance("train", 4)
	commit = w.put(map[string]string{path: more, "tenants/biology/NOTES.md": "its tree is another one\n"})
	w.eventually("unreadable", func() bool { return w.heldReasons()["tenants/biology"] == schema.HeldUnreadable })
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Refused)
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Accepted)
	w.eventually("unreadable tree of another tenant delays no change", func() bool { return w.heldReasons()[path] == "" })
	require.Equal(t, schema.HeldUnreadable, w.heldReasons()["tenants/biology"])

	w.git.MustCommit(t, "main", gittest.Commit{Message: "emptied", Remove: []string{"platform", "tenants"}})
	w.eventually("frozen", func() bool { return w.revision().Frozen != "" })
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Refused)
	require.Contains(t, w.answer(1), "synchronization is frozen")
}

// After a restart the next daemon answers a command that was carried out but not
// answered, and does not repeat it.
func TestLongApplyIsAnsweredAfterRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, commit := w.pushed()
	w.pull(1, map[string]string{"README.md": "nothing to do with it\n"})
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Refused)
	require.NoError(t, d.stop())
	f := &signless{forge: w.forge, why: unsigned["an error"]}
	d = w.start(owned, func(o *loop.Options) { o.Forge = f })
	id := w.forge.say(1, "ada", "/berth apply "+commit)
	w.eventually("applied", w.running("train", 3))
	require.NoError(t, d.stop())
	before := w.effects()
	w.start(owned)
	w.comes(id, reconciler.Understood)
	require.Equal(t, before, w.effects())
	require.Contains(t, w.answer(1), "nothing to do")
}

// Two commands at once do not confirm each other: the second is older than the plan.
func TestLongEarlierCommandDoesNotConfirmApply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, commit := w.pushed()
	w.pull(1, map[string]string{"README.md": "nothing to do with it\n"})
	require.NoError(t, d.stop())
	one, two := w.forge.say(1, "ada", "/berth apply "+commit), w.forge.say(1, "ada", "/berth apply "+commit)
	before := w.effects()
	w.start(owned)
	w.comes(one, reconciler.Refused)
	w.comes(two, reconciler.Refused)
	require.Contains(t, w.answer(1), "posted after this command")
	require.Equal(t, before, w.effects())
}
