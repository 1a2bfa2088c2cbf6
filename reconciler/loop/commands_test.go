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

// say has somebody comment on a pull request.
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

// comes waits until a remark is answered by a reaction.
func (w *world) comes(id int64, want reconciler.Reaction) {
	w.t.Helper()
	w.eventually("an answer", func() bool {
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

// offered waits until it is recorded that people were told what is held of a unit.
func (w *world) offered(name string) {
	w.t.Helper()
	w.eventually("it is recorded that "+name+" was told", func() bool {
		v := w.stale(name)
		return v != nil && v.Offer != nil && v.Offer.Digest == v.Stale.Now
	})
}

// staled merges a pull request that grows train, of which what is there changed
// after it was shown.
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
	w.eventually("told", func() bool {
		r, ok := w.forge.told(commit)
		return ok && len(r.Units) == 1 && r.Units[0].Stale != nil && !r.Settled()
	})
	w.offered("train")
	return d, commit
}

func TestWhatIsHeldIsAppliedWhenSomebodySaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	w.forge.let("rea", reconciler.CanRead)
	_, commit := w.staled()
	before := w.effects()

	w.comes(w.forge.say(1, "eve", "/berth apply "+commit), reconciler.Refused)
	w.comes(w.forge.say(1, "rea", "/berth apply "+commit), reconciler.Refused)
	require.Contains(t, w.answer(1), "users who may write")
	w.comes(w.forge.say(1, "ada", "/berth apply 0123456789"), reconciler.Refused)
	require.Contains(t, w.answer(1), commit[:7], "the one that counts is named")
	w.comes(w.forge.say(1, "ada", "/berth apply everything"), reconciler.Confused)
	other := w.forge.say(1, "ada", "/berthing is fun")
	require.Equal(t, before, w.effects())

	w.comes(w.forge.say(1, "ada", "/berth apply "+commit[:8]), reconciler.Accepted)
	w.eventually("applied", func() bool {
		s := w.status("train")
		return len(s.Members) == 4 && s.Phase == plan.PhaseRunning && s.Review == nil
	})
	w.eventually("told", func() bool { r, ok := w.forge.told(commit); return ok && r.Settled() && r.Units[0].Stale == nil })
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

// What is meant is what was on offer: another plan by then is held still.
func TestWhatIsMeantIsWhatWasOffered(t *testing.T) {
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
	time.Sleep(500 * time.Millisecond) // several looks
	require.Equal(t, before, w.effects())
	require.NotNil(t, w.stale("train"))
}

// What was said while nobody could see what there is now does not mean it, however
// long ago it was said; what was said of just what was shown does, also to a daemon
// that was started since, and to one that has yet to tell.
func TestWhatWasNotShownWhenItWasSaidIsNotMeant(t *testing.T) {
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
	w.eventually("planned anew", func() bool { v := w.stale("train"); return v != nil && v.Stale.Now != was })
	require.Nil(t, w.stale("train").Offer, "the new plan was not shown yet")
	early := w.forge.say(1, "ada", "/berth apply "+commit)
	hush.deaf.Store(false)
	w.eventually("listened", func() bool { return hush.heard.Load() > 1 })
	w.forge.mu.Lock()
	require.Empty(t, w.forge.reactions[early], "nobody is refused for what Berth has yet to show")
	w.forge.mu.Unlock()
	hush.quiet.Store(false)
	w.comes(early, reconciler.Refused)
	require.Contains(t, w.answer(1), "posted after this command")
	require.Equal(t, before, w.effects())

	// Said while no daemon runs, of what was shown.
	w.offered("train")
	require.NoError(t, d.stop())
	id := w.forge.say(1, "ada", "/berth apply "+commit)
	w.start()
	w.comes(id, reconciler.Accepted)
	w.eventually("applied", func() bool { s := w.status("train"); return len(s.Members) == 4 && s.Phase == plan.PhaseRunning })
}

// hushed is a forge that shows no comment while it is quiet, and lists no remark
// while it is deaf.
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

func TestSayingSoTakesBerthsOwnRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, who := range []string{"ada", "eve", "root"} {
		w.forge.let(who, reconciler.CanAdmin)
	}
	governed := func(o *loop.Options) { o.Authority = &decide.Authority{Administrators: []string{"root"}} }
	path, text := instance("train", 2)
	w.put(map[string]string{path: text}) // taken over with the estate
	d := w.start(governed)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	pr := w.pull(1, instanceNamed("train", 3))
	w.reviewed(pr)
	require.NoError(t, d.stop())
	require.NoError(t, w.world.SetDrift(trainKey, plan.Drift{Member: "worker-0", What: "users"}))
	commit := w.merge(pr)[0]
	w.start(governed)
	w.held("train", w.effects())
	w.eventually("told", func() bool {
		r, ok := w.forge.told(commit)
		return ok && len(r.Units) == 1 && r.Units[0].Stale != nil
	})
	w.offered("train")
	w.comes(w.forge.say(1, "eve", "/berth apply "+commit), reconciler.Refused)
	require.Contains(t, w.answer(1), "apps.instance.update")
	w.comes(w.forge.say(1, "root", "/berth apply "+commit), reconciler.Refused)
	w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Accepted)
	w.eventually("applied", func() bool { s := w.status("train"); return len(s.Members) == 4 && s.Phase == plan.PhaseRunning })
}

func TestNothingIsAppliedBeforeTheMerge(t *testing.T) {
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

// seven are so many instances that nobody deletes them by mistake.
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

func TestALargeDeletionIsAcknowledgedBeforeTheMerge(t *testing.T) {
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
	w.eventually("shown", func() bool { p, _ := w.forge.last(1); return len(p.Held) == 0 && len(p.Plans) == 7 })
	w.reviewed(pr)
	w.merge(pr)
	w.eventually("gone", w.gone)
}

// It is read again by the decision that needs it: whoever may not any more does
// not, and what is not there any more was not said.
func TestAnAcknowledgementIsReadWhenItCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	d := w.start()
	pr := w.pull(1, nil, w.seven()...)
	w.comes(w.forge.say(1, "ada", "/berth ack-delete "+w.asked(1)), reconciler.Accepted)
	w.eventually("shown", func() bool { p, _ := w.forge.last(1); return len(p.Held) == 0 })
	w.reviewed(pr)
	require.NoError(t, d.stop())
	w.forge.let("ada", reconciler.CanRead)
	commit := w.merge(pr)[0]
	before := w.effects()
	w.start()
	w.eventually("decided", func() bool { return w.revision().Commit == commit })
	require.Len(t, w.revision().Held, 7)
	require.Equal(t, before, w.effects())

	// After the merge too, by whoever may.
	w.forge.let("ben", reconciler.CanWrite)
	h := w.revision().Held[0]
	w.comes(w.forge.say(1, "ben", "/berth ack-delete "+digestAsked.FindStringSubmatch(h.Message)[1]), reconciler.Accepted)
	w.eventually("gone", w.gone)
	require.Empty(t, w.revision().Held)
	w.eventually("told", func() bool {
		r, ok := w.forge.told(commit)
		return ok && len(r.Held) == 0 && len(r.Units) == 7 && r.Settled()
	})
}

// Whose right cannot be asked has said nothing, and holds nobody else up: neither
// others who acknowledge the same, nor whatever else is merged.
func TestAWordThatCannotBeReadHoldsNobodyUp(t *testing.T) {
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
	require.Len(t, w.revision().Held, 7, "meanwhile it is held")
	f.of.Store("eve")
	w.eventually("gone", w.gone)
	w.comes(id, reconciler.Accepted)
}

// unanswering is a forge that does not tell what some may.
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

// That somebody without the right said it before takes nothing from who has it.
func TestAnAcknowledgementIsTriedBeforeItIsRefused(t *testing.T) {
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
	w.put(files) // taken over with the estate
	w.start(func(o *loop.Options) { o.Authority = &decide.Authority{Administrators: []string{"root"}} })
	for i := range 7 {
		w.eventually("running", w.phase(fmt.Sprintf("batch-%d", i), plan.PhaseRunning))
	}
	pr := w.pull(1, nil, paths...)
	digest := w.asked(1)
	w.comes(w.forge.say(1, "ada", "/berth ack-delete "+digest), reconciler.Refused)
	w.reviewed(pr)
	commit := w.merge(pr)[0]
	w.eventually("decided", func() bool { return w.revision().Commit == commit })
	w.eventually("told", func() bool { r, ok := w.forge.told(commit); return ok && len(r.Held) == 7 })
	w.comes(w.forge.say(1, "ada", "/berth ack-delete "+digest), reconciler.Refused)
	w.comes(w.forge.say(1, "ben", "/berth ack-delete "+digest), reconciler.Accepted)
	w.eventually("gone", w.gone)
}

func TestWhatGaveUpTriesAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forge.let("ada", reconciler.CanWrite)
	w.start(func(o *loop.Options) { o.MaxAttempts = 1 })
	pr := w.pull(1, instanceNamed("train", 1))
	w.reviewed(pr)
	w.comes(w.forge.say(1, "ada", "/berth retry"), reconciler.Understood)
	w.world.FailStep(1, errors.New("the disk is full"))
	commit := w.merge(pr)[0]
	w.eventually("told where", func() bool {
		r, ok := w.forge.told(commit)
		return ok && len(r.Units) == 1 && r.Units[0].At == "create on ctl" && r.Units[0].Phase == plan.PhaseFailed
	})
	w.eventually("gave up", func() bool { s := w.status("train"); return s != nil && s.Retry != nil && s.Retry.Terminal })
	w.comes(w.forge.say(1, "eve", "/berth retry"), reconciler.Refused)
	w.comes(w.forge.say(1, "ada", "/berth retry"), reconciler.Accepted)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
}

func TestWordsAreAnswered(t *testing.T) {
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
	require.Contains(t, w.answer(1), "roles.worker.sku", "as it would be, with the pull request merged")
	w.comes(w.forge.say(1, "rea", "/berth explain physics.lab/nobody"), reconciler.Understood)
	w.comes(w.forge.say(1, "rea", "/berth plan"), reconciler.Refused)
	w.comes(w.forge.say(1, "ada", "/berth plan"), reconciler.Accepted)
	w.comes(w.forge.say(1, "ada", "/berth dance"), reconciler.Confused)

	// Nothing of it is said twice by a daemon that is started anew.
	w.forge.mu.Lock()
	before := len(w.forge.writes)
	w.forge.mu.Unlock()
	w.start()
	time.Sleep(500 * time.Millisecond)
	w.forge.mu.Lock()
	defer w.forge.mu.Unlock()
	require.Len(t, w.forge.writes, before)
}

// What is explained is what is enforced: also where an instance is stopped for the
// nodes that its members are on, suspended or not, and what a pull request would
// make of that.
func TestExplainKnowsWhereMembersAre(t *testing.T) {
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
	for _, n := range []int{1, 3} { // as it would be, and as it is
		said := explained(n)
		require.Contains(t, said, "refused: it stopped, as its grace ended on 2026-03-03")
		require.Contains(t, said, "`desired_state` is `stopped`")
		require.Contains(t, said, "`suspend` is `false`")
		require.Contains(t, said, "is not allowed ("+"`tenants/physics/policy.yaml:5`)")
	}
	said := explained(lifts.Number)
	require.Contains(t, said, "is allowed")
	require.Contains(t, said, "`suspend` is `true`")
}

// Whoever may not write and says a lot costs little, and nobody else anything.
func TestAStrangersFloodCostsLittle(t *testing.T) {
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
	time.Sleep(500 * time.Millisecond)
	w.forge.mu.Lock()
	defer w.forge.mu.Unlock()
	n := 0
	for _, call := range w.forge.writes {
		if strings.HasPrefix(call, "react ") {
			n++
		}
	}
	require.LessOrEqual(t, n, 11, "five of each, and the one that counts")
}

// However many strangers there are, on however many pull requests, who may write
// is heard, and what is passed over is not asked about again.
func TestStrangersKeepNobodyFromBeingHeard(t *testing.T) {
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
			d := w.start(func(o *loop.Options) { o.Forge = f; o.Poll = time.Hour })
			w.comes(last, reconciler.Understood)
			require.Eventually(t, func() bool { return f.idle() > 4*time.Second }, time.Minute, 100*time.Millisecond, "once all is answered or passed over it is quiet")
			require.NoError(t, d.stop())
			require.LessOrEqual(t, f.lists.Load(), int64(15), "each pass comes to something")
			require.LessOrEqual(t, f.permissions.Load(), 60*f.lists.Load(), "nobody is asked about twice in one, and few are")
		})
	}
}

// counted is a forge that counts what it is asked of remarks.
type counted struct {
	*forge
	lists, permissions, last atomic.Int64
}

// idle is how long it was not asked for remarks.
func (f *counted) idle() time.Duration { return time.Since(time.Unix(0, f.last.Load())) }

func (f *counted) Commands(ctx context.Context, since time.Time) ([]reconciler.CommandComment, error) {
	f.lists.Add(1)
	f.last.Store(time.Now().UnixNano())
	return f.forge.Commands(ctx, since)
}

func (f *counted) Permission(ctx context.Context, login string) (reconciler.Permission, error) {
	f.permissions.Add(1)
	return f.forge.Permission(ctx, login)
}
