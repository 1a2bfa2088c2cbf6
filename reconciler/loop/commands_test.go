package loop_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/schema"
)

// say adds a comment to a pull request and returns its id.
func (f *forge) say(n int, login, line string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := int64(1)
	for _, all := range f.remarks {
		id += int64(len(all))
	}
	f.remarks[n] = append(f.remarks[n], reconciler.CommandComment{ID: id, Pull: n, Author: login, Line: line, When: time.Now()})
	return id
}

func (f *forge) let(login string, p reconciler.Permission) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.permissions[login] = p
}

// comes waits until a comment is answered by a reaction.
func (w *world) comes(id int64, want reconciler.Reaction) {
	w.t.Helper()
	w.eventually("command answered", func() bool {
		w.forge.mu.Lock()
		defer w.forge.mu.Unlock()
		return w.forge.reactions[id] != ""
	})
	w.forge.mu.Lock()
	defer w.forge.mu.Unlock()
	for _, all := range w.forge.comments {
		w.t.Log(all["answers"])
	}
	require.Equal(w.t, want, w.forge.reactions[id])
}

func (w *world) answer(n int) string {
	w.forge.mu.Lock()
	defer w.forge.mu.Unlock()
	return w.forge.comments[n]["answers"] + w.forge.comments[n]["details"]
}

// offered waits until Berth records that the held plan of a unit was posted.
func (w *world) offered(name string) {
	w.t.Helper()
	w.eventually("plan of "+name+" recorded as posted", func() bool {
		v := w.stale(name)
		return v != nil && v.Posted != nil && v.Posted.Digest == v.Stale.Now
	})
}

// staled merges a pull request that grows train after a drift made its plan stale.
func (w *world) staled(tunes ...tune) (d *daemon, commit string) {
	w.t.Helper()
	d = w.start(tunes...)
	w.run(2)
	pr := w.pull(1, instanceNamed("train", 3))
	w.reviewed(pr)
	require.NoError(w.t, d.stop())
	require.NoError(w.t, w.world.SetDrift(trainKey, plan.Drift{Member: "worker-0", What: "users"}))
	commit = w.merge(pr)[0]
	d = w.start(tunes...)
	w.held("train", w.effects())
	w.eventually("held change reported", func() bool {
		r, ok := w.forge.rollout(commit)
		return ok && len(r.Units) == 1 && r.Units[0].Stale != nil && !r.Settled()
	})
	w.offered("train")
	return d, commit
}

func TestHeldChangeIsAppliedByCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	w.forge.let("rea", reconciler.CanRead)
	_, commit := w.staled()
	before := w.effects()

	w.comes(w.forge.say(1, "eve", "/berth apply "+commit), reconciler.Refused)
	w.comes(w.forge.say(1, "rea", "/berth apply "+commit), reconciler.Refused)
	require.Contains(t, w.answer(1), "only users with write access")
	w.comes(w.forge.say(1, "ada", "/berth apply 0123456789"), reconciler.Refused)
	require.Contains(t, w.answer(1), commit[:7], "the answer names the valid commit")
	w.comes(w.forge.say(1, "ada", "/berth apply everything"), reconciler.Confused)
	other := w.forge.say(1, "ada", "/berthing is fun")
	require.Equal(t, before, w.effects())

	w.comes(w.forge.say(1, "ada", "/berth apply "+commit[:8]), reconciler.Accepted)
	w.eventually("applied", func() bool {
		s := w.status("train")
		return converged(s, 4) && s.Review == nil
	})
	w.eventually("rollout reported", func() bool { r, ok := w.forge.rollout(commit); return ok && r.Settled() && r.Units[0].Stale == nil })
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Understood)
	require.Empty(t, w.forge.reactions[other])
	w.eventually("audited", func() bool {
		var held, meant bool
		for _, r := range w.audited() {
			held = held || r.Action == "plan.held" && r.PullRequest == 1
			meant = meant || r.Action == "plan.meant" && r.Actor == "ada" && r.Verdict == "allowed" && r.Commit == commit
		}
		return held && meant
	})
}

// A command confirms only the plan that was posted; a plan that changed since stays
// held.
func TestCommandConfirmsOnlyThePostedPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	d, commit := w.staled()
	require.NoError(t, d.stop())
	id := w.forge.say(1, "ada", "/berth apply "+commit)
	require.NoError(t, w.world.SetDrift(trainKey, plan.Drift{Member: "worker-0", What: "users"}, plan.Drift{Member: "worker-1", What: "users"}))
	before := w.effects()
	w.start()
	w.eventually("answered", func() bool {
		w.forge.mu.Lock()
		defer w.forge.mu.Unlock()
		return w.forge.reactions[id] != ""
	})
	for range 3 {
		w.latest.does(train)
	}
	require.Equal(t, before, w.effects())
	require.NotNil(t, w.stale("train"))
}

// A command does not confirm a plan that was posted after it, however old the command
// is. A command for the posted plan is valid, also for a daemon that starts later or
// has yet to post.
func TestCommandBeforeThePlanDoesNotConfirmIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	d, commit := w.staled()
	require.NoError(t, d.stop())
	w.forge.say(1, "ada", "/berth apply "+commit)
	was := w.stale("train").Stale.Now
	require.NoError(t, w.world.SetDrift(trainKey, plan.Drift{Member: "worker-0", What: "users"}, plan.Drift{Member: "worker-1", What: "users"}))
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

func TestApplyNeedsBerthPermission(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, who := range []string{"ada", "eve", "root"} {
		w.forge.let(who, reconciler.CanAdmin)
	}
	governed := func(o *loop.Options) { o.Decide.Authority = &decide.Authority{Administrators: []string{"root"}} }
	path, text := instance("train", 2)
	w.put(map[string]string{path: text}) // adopted with the estate
	d := w.start(governed)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	pr := w.pull(1, instanceNamed("train", 3))
	w.reviewed(pr)
	require.NoError(t, d.stop())
	require.NoError(t, w.world.SetDrift(trainKey, plan.Drift{Member: "worker-0", What: "users"}))
	commit := w.merge(pr)[0]
	w.start(governed)
	w.held("train", w.effects())
	w.eventually("held change reported", func() bool {
		r, ok := w.forge.rollout(commit)
		return ok && len(r.Units) == 1 && r.Units[0].Stale != nil
	})
	w.offered("train")
	w.comes(w.forge.say(1, "eve", "/berth apply "+commit), reconciler.Refused)
	require.Contains(t, w.answer(1), "apps.instance.update")
	w.comes(w.forge.say(1, "root", "/berth apply "+commit), reconciler.Refused)
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Accepted)
	w.eventually("applied", w.running("train", 3))
}

func TestApplyBeforeTheMergeIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	w.start()
	pr := w.pull(1, instanceNamed("train", 1))
	w.reviewed(pr)
	w.comes(w.forge.say(1, "ada", "/berth apply "+pr.Head), reconciler.Refused)
	require.Contains(t, w.answer(1), "before the merge")
	require.Zero(t, w.effects())
}

var digestAsked = regexp.MustCompile(decide.AckTrailer + ": ([0-9a-f]{16})")

// seven creates seven instances, a number above the deletion limit.
func (w *world) seven() (paths []string) {
	w.t.Helper()
	files := map[string]string{}
	for i := range 7 {
		path, text := instance(fmt.Sprintf("batch-%d", i), 0)
		files[path] = text
		paths = append(paths, path)
	}
	w.put(files)
	for i := range 7 {
		w.eventually("running", w.phase(fmt.Sprintf("batch-%d", i), plan.PhaseRunning))
	}
	return paths
}

func (w *world) asked(n int) string {
	w.t.Helper()
	var digest string
	w.eventually("the deletion is held", func() bool {
		p, _ := w.forge.last(n)
		for _, h := range p.Held {
			if m := digestAsked.FindStringSubmatch(h.Message); m != nil {
				digest = m[1]
			}
		}
		return digest != ""
	})
	return digest
}

func (w *world) gone() bool {
	for i := range 7 {
		if len(w.world.Remains(schema.InstanceKey("physics", "lab", fmt.Sprintf("batch-%d", i)))) > 0 {
			return false
		}
	}
	return true
}

func TestLargeDeletionIsAcknowledgedBeforeTheMerge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	w.forge.let("rea", reconciler.CanRead)
	w.start()
	pr := w.pull(1, nil, w.seven()...)
	digest := w.asked(1)
	w.comes(w.forge.say(1, "rea", "/berth ack-delete "+digest), reconciler.Refused)
	w.comes(w.forge.say(1, "ada", "/berth ack-delete 0123456789abcdef"), reconciler.Refused)
	require.Contains(t, w.answer(1), digest[:7])
	w.comes(w.forge.say(1, "ada", "/berth ack-delete "+digest), reconciler.Accepted)
	w.eventually("plan published", func() bool { p, _ := w.forge.last(1); return len(p.Held) == 0 && len(p.Plans) == 7 })
	w.reviewed(pr)
	w.merge(pr)
	w.eventually("instances deleted", w.gone)
}

// The decision reads the acknowledgement again. It does not count if the user lost the
// permission or removed the comment.
func TestAcknowledgementIsCheckedAtTheDecision(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	d := w.start()
	pr := w.pull(1, nil, w.seven()...)
	w.comes(w.forge.say(1, "ada", "/berth ack-delete "+w.asked(1)), reconciler.Accepted)
	w.eventually("plan published", func() bool { p, _ := w.forge.last(1); return len(p.Held) == 0 })
	w.reviewed(pr)
	require.NoError(t, d.stop())
	w.forge.let("ada", reconciler.CanRead)
	commit := w.merge(pr)[0]
	before := w.effects()
	w.start()
	w.eventually("decided", func() bool { return w.revision().Commit == commit })
	require.Len(t, w.revision().Held, 7)
	require.Equal(t, before, w.effects())

	// After the merge any user with the permission can acknowledge the deletion.
	w.forge.let("ben", reconciler.CanWrite)
	h := w.revision().Held[0]
	w.comes(w.forge.say(1, "ben", "/berth ack-delete "+digestAsked.FindStringSubmatch(h.Message)[1]), reconciler.Accepted)
	w.eventually("gone", w.gone)
	require.Empty(t, w.revision().Held)
	w.eventually("rollout reported", func() bool {
		r, ok := w.forge.rollout(commit)
		return ok && len(r.Held) == 0 && len(r.Units) == 7 && r.Settled()
	})
}

// An acknowledgement by a user with unknown permission is ignored for now. It delays
// neither other acknowledgements nor other changes.
func TestUnknownPermissionDelaysNoOtherChange(t *testing.T) {
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

// An earlier acknowledgement without permission does not block a later one with
// permission.
func TestUnauthorizedAcknowledgementDoesNotBlockOthers(t *testing.T) {
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

func TestRetryCommandRestartsFailedUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	w.start(func(o *loop.Options) { o.Settings.MaxAttempts = 1 })
	pr := w.pull(1, instanceNamed("train", 1))
	w.reviewed(pr)
	w.comes(w.forge.say(1, "ada", "/berth retry"), reconciler.Understood)
	w.world.FailStep(1, errors.New("the disk is full"))
	commit := w.merge(pr)[0]
	w.eventually("failed step reported", func() bool {
		r, ok := w.forge.rollout(commit)
		return ok && len(r.Units) == 1 && r.Units[0].At == "create on ctl" && r.Units[0].Phase == plan.PhaseFailed
	})
	w.eventually("gave up", func() bool { s := w.status("train"); return s != nil && s.Retry != nil && s.Retry.Terminal })
	w.comes(w.forge.say(1, "eve", "/berth retry"), reconciler.Refused)
	w.comes(w.forge.say(1, "ada", "/berth retry"), reconciler.Accepted)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
}

func TestCommandsAreAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	w.forge.let("rea", reconciler.CanRead)
	w.start()
	pr := w.pull(1, instanceNamed("train", 2))
	w.reviewed(pr)
	w.comes(w.forge.say(1, "rea", "/berth help"), reconciler.Understood)
	require.Contains(t, w.answer(1), "/berth ack-delete")
	w.comes(w.forge.say(1, "rea", "/berth explain physics.lab/train roles"), reconciler.Understood)
	require.Contains(t, w.answer(1), "roles.worker.sku", "explained as after the merge")
	w.comes(w.forge.say(1, "rea", "/berth explain physics.lab/nobody"), reconciler.Understood)
	w.comes(w.forge.say(1, "rea", "/berth plan"), reconciler.Refused)
	w.comes(w.forge.say(1, "ada", "/berth plan"), reconciler.Accepted)
	w.comes(w.forge.say(1, "ada", "/berth dance"), reconciler.Confused)

	// A new daemon does not repeat any answer.
	w.forge.mu.Lock()
	before := len(w.forge.writes)
	w.forge.mu.Unlock()
	d := w.start()
	d.ready()
	d.passes(2, theCommands, thePulls)
	d.publishes(1)
	w.forge.mu.Lock()
	defer w.forge.mu.Unlock()
	require.Len(t, w.forge.writes, before)
}

// The explanation matches the enforcement. This includes an instance stopped for the
// nodes of its members, suspended or not, and the state after a pull request.
func TestExplainConsidersAssignments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("rea", reconciler.CanRead)
	w.forge.let("ada", reconciler.CanWrite)
	begin, started := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC), time.Now()
	w.start(func(o *loop.Options) {
		o.Now = func() time.Time { return begin.Add(time.Since(started)) }
	})
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	const file, policy = "tenants/physics/policy.yaml", "apiVersion: berth/v1\nkind: Policy\nmetadata: {name: policy}\nspec:\n  allowed_skus: [%s]\n  noncompliant: {action: stop, grace_until: \"2026-03-03\"}\n"
	w.put(map[string]string{file: fmt.Sprintf(policy, "elsewhere"), path: strings.Replace(text, "spec:\n", "suspend: true\nspec:\n", 1)})
	w.eventually("stopped", func() bool {
		return w.world.Calls("stop") > 0 && strings.Contains(message(w.status("train"), "PolicyCompliant"), "is stopped")
	})

	explained := func(n int) string {
		w.comes(w.forge.say(n, "rea", "/berth explain physics.lab/train"), reconciler.Understood)
		return w.answer(n)
	}
	w.pull(1, map[string]string{"README.md": "nothing of it\n"})
	lifts := w.pull(2, map[string]string{file: fmt.Sprintf(policy, w.status("train").Members[0].SKU)})
	closed := w.pull(3, map[string]string{"README.md": "nor this\n"})
	closed.Open = false
	w.forge.put(closed)
	for _, n := range []int{1, 3} { // after the merge, and on main
		answer := explained(n)
		require.Contains(t, answer, "denied: it stopped: its grace period ended on 2026-03-03")
		require.Contains(t, answer, "`desired_state` is `stopped`")
		require.Contains(t, answer, "`suspend` is `false`")
		require.Contains(t, answer, "is not allowed ("+"`tenants/physics/policy.yaml:5`)")
	}
	answer := explained(lifts.Number)
	require.Contains(t, answer, "is allowed")
	require.Contains(t, answer, "`suspend` is `true`")
}

// Many commands by users without permission cost few forge calls and delay no other
// user.
func TestUnauthorizedCommandsCostFewCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	w.forge.let("rea", reconciler.CanRead)
	for i := range 500 {
		w.forge.say(1, []string{"eve", "rea"}[i%2], "/berth explain physics.lab/train")
	}
	last := w.forge.say(1, "ada", "/berth help")
	w.forge.set(reconciler.PullRequest{Number: 1, Author: "eve", BaseBranch: "main"})
	w.start()
	w.comes(last, reconciler.Understood)
	w.latest.passes(3, theCommands)
	w.forge.mu.Lock()
	defer w.forge.mu.Unlock()
	n := 0
	for _, call := range w.forge.writes {
		if strings.HasPrefix(call, "react ") {
			n++
		}
	}
	require.LessOrEqual(t, n, 11, "five of each user, and the valid command")
}

// Many users without permission, on many pull requests, do not delay a user with
// permission. A skipped user is not checked again.
func TestUnauthorizedUsersDelayNoOtherCommand(t *testing.T) {
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
			w.forge.set(reconciler.PullRequest{Number: 1, Author: "eve", BaseBranch: "main"}, reconciler.PullRequest{Number: 2, Author: "eve", BaseBranch: "next"})
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
