//go:build long

package loop_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
)

// hushed is a forge that rejects rollout comments while quiet and lists no commands
// while deaf.
type hushed struct {
	*forge
	quiet, deaf atomic.Bool
	heard       atomic.Int64
}

func (f *hushed) Commands(ctx context.Context, since time.Time) ([]reconciler.CommandComment, error) {
	if f.deaf.Load() {
		return nil, errDown
	}
	f.heard.Add(1)
	return f.forge.Commands(ctx, since)
}

func (f *hushed) Comment(ctx context.Context, n int, c reconciler.Comment) error {
	if f.quiet.Load() && c.Rollout != nil {
		return errDown
	}
	return f.forge.Comment(ctx, n, c)
}

// unanswering is a forge that fails to return the permission of some users.
type unanswering struct {
	*forge
	of atomic.Value
}

func (f *unanswering) Permission(ctx context.Context, login string) (reconciler.Permission, error) {
	if strings.Contains(f.of.Load().(string), login) {
		return 0, errDown
	}
	return f.forge.Permission(ctx, login)
}

// counted is a forge that counts its command-related calls.
type counted struct {
	*forge
	lists, permissions atomic.Int64
}

func (f *counted) Commands(ctx context.Context, since time.Time) ([]reconciler.CommandComment, error) {
	f.lists.Add(1)
	return f.forge.Commands(ctx, since)
}

func (f *counted) Permission(ctx context.Context, login string) (reconciler.Permission, error) {
	f.permissions.Add(1)
	return f.forge.Permission(ctx, login)
}

// An earlier acknowledgement without permission does not block a later one with
// permission.
func TestLongUnauthorizedAcknowledgementDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	w.forge.let("ben", reconciler.CanWrite)
	files := map[string]string{"tenants/physics/roles.yaml": roleBinding("    - {login: ben, role: tenant_admin}\n")}
	var paths []string
	for i := range 7 {
		path, text := instance(fmt.Sprintf("batch-%d", i), 0)
		files[path] = text
		paths = append(paths, path)
	}
	w.put(files) // adopted with the estate
	w.start(func(o *loop.Options) { o.Decide.Authority = &decide.Authority{Administrators: []string{"root"}} })
	for i := range 7 {
		w.eventually("running", w.phase(fmt.Sprintf("batch-%d", i), plan.PhaseRunning))
	}
	pr := w.pull(1, nil, paths...)
	digest := w.asked(1)
	w.comes(w.forge.say(1, "ada", "/berth ack-delete "+digest), reconciler.Refused)
	w.reviewed(pr)
	commit := w.merge(pr)[0]
	w.eventually("decided", func() bool { return w.revision().Commit == commit })
	w.eventually("held deletions reported", func() bool { r, ok := w.forge.rollout(commit); return ok && len(r.Held) == 7 })
	w.comes(w.forge.say(1, "ada", "/berth ack-delete "+digest), reconciler.Refused)
	w.comes(w.forge.say(1, "ben", "/berth ack-delete "+digest), reconciler.Accepted)
	w.eventually("gone", w.gone)
}

// A command does not confirm a plan that was posted after it, however old the command
// is. A command for the posted plan is valid, also for a daemon that starts later or
// has yet to post.
func TestLongCommandBeforeThePlanDoesNotConfirmIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	d, commit := w.staled()
	require.NoError(t, d.stop())
	w.forge.say(1, "ada", "/berth apply "+commit)
	was := w.stale("train").Stale.Now
	require.NoError(t, w.world.SetDrift(trainKey, plan.Drift{Member: "worker-0", What: "users"},
		plan.Drift{Member: "worker-1", What: "users"}))
	before := w.effects()
	hush := &hushed{forge: w.forge}
	hush.quiet.Store(true)
	hush.deaf.Store(true)
	d = w.start(func(o *loop.Options) { o.Forge = hush })
	w.eventually("planned again", func() bool { v := w.stale("train"); return v != nil && v.Stale.Now != was })
	require.Nil(t, w.stale("train").Posted, "the new plan is not posted yet")
	early := w.forge.say(1, "ada", "/berth apply "+commit)
	hush.deaf.Store(false)
	w.eventually("commands read", func() bool { return hush.heard.Load() > 1 })
	w.forge.mu.Lock()
	require.Empty(t, w.forge.reactions[early], "a command is not refused before its plan is posted")
	w.forge.mu.Unlock()
	hush.quiet.Store(false)
	w.comes(early, reconciler.Refused)
	require.Contains(t, w.answer(1), "posted after this command")
	require.Equal(t, before, w.effects())

	// This command follows the posted plan while no daemon runs.
	w.offered("train")
	require.NoError(t, d.stop())
	id := w.forge.say(1, "ada", "/berth apply "+commit)
	w.start()
	w.comes(id, reconciler.Accepted)
	w.eventually("applied", w.running("train", 3))
}

// An acknowledgement by a user with unknown permission is ignored for now. It delays
// neither other acknowledgements nor other changes.
func TestLongUnknownPermissionDelaysNoOtherChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	f := &unanswering{forge: w.forge}
	f.of.Store("eve, ada")
	w.start(func(o *loop.Options) { o.Forge = f })
	pr := w.pull(1, nil, w.seven()...)
	digest := w.asked(1)
	w.reviewed(pr)
	w.forge.say(1, "eve", "/berth ack-delete "+digest)
	id := w.forge.say(1, "ada", "/berth ack-delete "+digest)
	w.merge(pr)
	path, text := instance("other", 0)
	commit := w.put(map[string]string{path: text})
	w.eventually("decided", func() bool { return w.revision().Commit == commit })
	w.eventually("running", w.phase("other", plan.PhaseRunning))
	require.Len(t, w.revision().Held, 7, "the deletion stays held")
	f.of.Store("eve")
	w.eventually("gone", w.gone)
	w.comes(id, reconciler.Accepted)
}

// Many users without permission, on many pull requests, do not delay a user with
// permission. A skipped user is not checked again.
func TestLongUnauthorizedUsersDelayNoOtherCommand(t *testing.T) {
	t.Parallel()
	for name, say := range map[string]func(w *world){
		"one account, a pull request each": func(w *world) {
			var prs []reconciler.PullRequest
			for i := range 71 {
				prs = append(prs, reconciler.PullRequest{Number: i + 1, Author: "eve", BaseBranch: "main"})
				w.forge.say(i+1, "eve", "/berth help")
			}
			w.forge.set(prs...)
		},
		"an account each, one pull request": func(w *world) {
			w.forge.set(reconciler.PullRequest{Number: 1, Author: "eve", BaseBranch: "main"})
			for i := range 90 {
				w.forge.say(1, fmt.Sprint("eve", i), "/berth help")
			}
		},
		"another base": func(w *world) {
			w.forge.set(reconciler.PullRequest{Number: 1, Author: "eve", BaseBranch: "main"},
				reconciler.PullRequest{Number: 2, Author: "eve", BaseBranch: "next"})
			for range 40 {
				w.forge.say(2, "eve", "/berth help")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.forge.let("ada", reconciler.CanWrite)
			say(w)
			last := w.forge.say(1, "ada", "/berth help")
			f := &counted{forge: w.forge}
			d := w.start(func(o *loop.Options) { o.Forge = f; o.Settings.Poll = time.Hour })
			w.comes(last, reconciler.Understood)
			for asked := int64(-1); asked != f.permissions.Load(); { // a command that is neither answered nor skipped costs a check
				asked = f.permissions.Load()
				d.does(theCommands)
			}
			require.NoError(t, d.stop())
			require.LessOrEqual(t, f.lists.Load(), int64(15), "each pass handles a command")
			require.LessOrEqual(t, f.permissions.Load(), 60*f.lists.Load(), "one permission check for each user and pass")
		})
	}
}
