package loop_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
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
	require.NoError(t, w.world.SetDrift(trainKey, plan.Drift{Member: "worker-0", What: "users"},
		plan.Drift{Member: "worker-1", What: "users"}))
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
	const file, policy = "tenants/physics/policy.yaml",
		"apiVersion: berth/v1\nkind: Policy\nmetadata: {name: policy}\nspec:\n  allowed_skus: [%s]\n  noncompliant: {action: stop, " +
			"grace_until: \"2026-03-03\"}\n"
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
