package loop_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
	"berth/schema"
	"berth/schema/estate"
)

// These tests cover cases in which a control loop may lose, repeat or invent work.

var trainKey = schema.InstanceKey("physics", "lab", "train")

// commits counts the commits of the status branch.
func (w *world) commits() int {
	out, err := w.git.Git("rev-list", "--count", reconciler.BranchStatus)
	require.NoError(w.t, err)
	var n int
	_, err = fmt.Sscan(out, &n)
	require.NoError(w.t, err)
	return n
}

// run puts an instance train on main and waits until it runs.
func (w *world) run(workers int) (path string) {
	w.t.Helper()
	path, text := instance("train", workers)
	w.put(map[string]string{path: text})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	return path
}

// blind is a runtime whose configure reports success without any effect.
type blind struct {
	runtimes.Runtime
	n *atomic.Int64
}

func (b blind) Apply(ctx context.Context, c runtimes.Change) error {
	if c.Action.Verb == plan.Configure {
		b.n.Add(1)
		return nil
	}
	return b.Runtime.Apply(ctx, c)
}

func TestRepeatedSuccessfulActionBacksOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var n atomic.Int64
	clock := newManualClock()
	d := w.start(func(o *loop.Options) {
		o.Runtimes = map[string]runtimes.Runtime{"bare_metal": blind{memory.New(w.world), &n}}
		o.Forge, o.Now = nil, clock.Now
	})
	w.run(2)
	before := w.commits()
	require.NoError(t, w.world.SetDrift(trainKey, plan.Drift{Member: "controller-0", What: "configuration"}))
	w.eventually("retry reported", func() bool { s := w.status("train"); return s.Retry != nil })
	clock.Set(clock.Now().Add(4 * time.Second))
	d.does(train)
	d.does(train)
	d.written()
	require.EqualValues(t, 1, n.Load(), "the next attempt follows after 5 s")
	require.LessOrEqual(t, w.commits()-before, 3)
	require.Contains(t, w.status("train").FailureReason+w.status("train").Retry.Reason, "still differs")
	clock.Set(clock.Now().Add(time.Second))
	d.does(train)
	require.EqualValues(t, 2, n.Load())
}

func TestWaitingForJobsCostsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	path := w.run(2)
	require.NoError(t, w.world.SetJobs(trainKey, plan.Jobs{Running: 1}))
	_, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.eventually("waiting", func() bool { s := w.status("train"); return s.Attempt == 2 })
	w.latest.does(train) // the first wait is recorded
	w.latest.does(train)
	w.latest.written()
	before, attempt := w.commits(), w.status("train").Attempt
	require.True(t, slices.ContainsFunc(w.status("train").Conditions, func(c plan.Condition) bool {
		return c.Type == "Ready" && c.Status == "False" && c.Reason == "Waiting" && strings.Contains(c.Message, "jobs run on gpu-2")
	}), "the status does not name the cause of the wait: %+v", w.status("train").Conditions)
	w.latest.passes(3, train, theEstate)
	w.latest.written()
	require.Equal(t, before, w.commits())
	require.Equal(t, attempt, w.status("train").Attempt)
	require.NoError(t, w.world.SetJobs(trainKey, plan.Jobs{}))
	w.eventually("grown and running", w.running("train", 1))
}

func TestFreeNodeIsGivenToAWaitingMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(func(o *loop.Options) { o.Forge = nil }) // a forge is not needed here
	path := w.run(4)
	_, text := instance("train", 3)
	other, otherText := instance("other", 1)
	w.put(map[string]string{path: text, other: otherText})
	w.eventually("other instance runs", w.phase("other", plan.PhaseRunning))
	w.put(nil, path)
	w.eventually("gone", func() bool { return w.status("train") == nil })
}

// Write access to the status branch does not decide which documents are in force.
func TestStatusDecidesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	initial := w.git.Tip("main")
	d := w.start()
	d.ready()
	older := w.revision().InForce // a commit of in-force without train
	w.run(2)
	require.NoError(t, d.stop())
	text, err := w.git.Read(reconciler.BranchStatus, "revision.yaml")
	require.NoError(t, err)
	for _, forged := range []string{initial, older} {
		now := w.revision().InForce
		fake := strings.Replace(text, "in_force: "+now, "in_force: "+forged, 1)
		require.NotEqual(t, text, fake)
		w.git.MustCommit(t, reconciler.BranchStatus, gittest.Commit{Message: "forged", Files: map[string]string{"revision.yaml": fake}})
		d := w.start()
		d.ready()
		d.does(theEstate, train)
		d.does(train)
		require.Zero(t, w.world.Calls("delete"))
		require.Equal(t, plan.PhaseRunning, w.status("train").Phase)
		require.NoError(t, d.stop())
		text, err = w.git.Read(reconciler.BranchStatus, "revision.yaml")
		require.NoError(t, err)
	}
}

func TestOtherBackendDoesNotMoveUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	second := memory.NewWorld()
	open := "#Config: {...}\n#Parameters: {...}"
	loader, err := estate.New(estate.Options{Backends: map[string]string{"bare_metal": open, "ray": open}})
	require.NoError(t, err)
	w.start(func(o *loop.Options) {
		o.Decide.Loader = loader
		o.Runtimes = map[string]runtimes.Runtime{"bare_metal": memory.New(w.world), "ray": memory.New(second)}
	})
	path := w.run(2)
	v2 := strings.NewReplacer("name: v1", "name: v2", `version: "1"`, `version: "2"`, "bare_metal",
		"ray").Replace(estateFiles()["platform/catalog/batch/v1.yaml"])
	_, text := instance("train", 2)
	w.put(map[string]string{"platform/catalog/batch/v2.yaml": v2, path: strings.Replace(text, "version: v1", "version: v2", 1)})
	w.eventually("backend change reported", func() bool {
		for _, c := range w.status("train").Conditions {
			if c.Type == "Stalled" && c.Status == "True" && c.Reason == plan.CodeBackend.Reason() {
				return true
			}
		}
		return false
	})
	require.Empty(t, second.Remains(trainKey), "no second unit is created")
	w.put(nil, path)
	w.eventually("gone", func() bool { return w.status("train") == nil })
	require.Empty(t, w.world.Remains(trainKey))
}

// hanging is a forge that blocks before each empty answer.
type hanging struct {
	*forge
	n *atomic.Int64
}

func (h hanging) Pull(ctx context.Context, _ int) (reconciler.PullRequest, error) {
	h.n.Add(1)
	<-ctx.Done()
	return reconciler.PullRequest{}, ctx.Err()
}

func TestSlowForgeDelaysNoRepair(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := hanging{w.forge, &atomic.Int64{}}
	d := w.start(func(o *loop.Options) { o.Forge = h })
	w.run(2)
	for i := range 12 {
		d.Enqueue(reconciler.Item{Task: reconciler.TaskPull, Pull: i + 1})
	}
	w.eventually("every worker that plans hangs", func() bool { return h.n.Load() == 3 })
	require.NoError(t, w.world.SetState(trainKey, "worker-0", plan.Stopped))
	w.eventually("repaired", func() bool { return w.world.Calls("start") > 0 })
}

// A stricter version of Berth starts with documents that an older version accepted.
func TestStricterVersionStartsWithOlderDocuments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start()
	path, text := instance("train", 2)
	w.put(map[string]string{path: text + "  config: {old: true}\n"})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	require.NoError(t, d.stop())
	strict, err := estate.New(estate.Options{Backends: map[string]string{"bare_metal": "#Config: {new?: bool}\n#Parameters: {...}"}})
	require.NoError(t, err)
	_, fixed := instance("train", 3)
	commit := w.put(map[string]string{path: fixed})
	w.start(func(o *loop.Options) { o.Decide.Loader = strict })
	w.eventually("decided", func() bool { return w.revision().Commit == commit })
	w.eventually("done", w.running("train", 3))
	require.Zero(t, w.world.Calls("delete"))
}

// rollout returns the last report of a commit.
func (f *forge) rollout(commit string) (plan.Rollout, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.follow) - 1; i >= 0; i-- {
		if f.follow[i].Commit == commit {
			return f.follow[i], true
		}
	}
	return plan.Rollout{}, false
}

func TestEachRolloutReportsItsOwnMerge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start(func(o *loop.Options) { o.Settings.Poll = time.Hour })
	d.ready()
	bad, badText := instance("bad", 1)
	c1 := w.put(map[string]string{bad: strings.Replace(badText, "count: 1, gpus", "cuont: 1, gpus", 1)})
	pr := w.pull(2, instanceNamed("train", 1))
	d.Enqueue(reconciler.Item{Task: reconciler.TaskPull, Pull: 2})
	w.reviewed(pr)
	c2 := w.merge(pr)[0]
	c3 := w.put(map[string]string{"README.md": "hello\n"})
	for n, c := range map[int]string{1: c1, 3: c3} {
		w.forge.put(reconciler.PullRequest{Number: n, BaseBranch: "main", Merged: true, MergeCommit: c})
	}
	d.Enqueue(reconciler.Item{Task: reconciler.TaskEstate})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	w.eventually("rollout reported", func() bool {
		first, ok1 := w.forge.rollout(c1)
		second, ok2 := w.forge.rollout(c2)
		third, ok3 := w.forge.rollout(c3)
		return ok1 && ok2 && ok3 && len(first.Held) == 1 && len(second.Units) == 1 && second.Settled() && len(second.Held) == 0 &&
			len(third.Units) == 0 && len(third.Held) == 0
	})
}

func TestOnlyPullRequestsToTheBranchAreChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start()
	d.ready()
	path, text := instance("train", 2)
	head := w.git.MustCommit(t, "feature", gittest.Commit{Message: "add", Files: map[string]string{path: text}})
	require.NoError(t, w.git.SetPull(7, head))
	w.forge.set(reconciler.PullRequest{Number: 7, Head: head, BaseBranch: "develop", Open: true})
	d.publishes(7)
	_, shown := w.forge.last(7)
	require.False(t, shown)
}

// counting counts the reads of pull request 4711. That of 4712 fails.
type counting struct {
	*forge
	missing, failing *atomic.Int64
}

func (c counting) Pull(ctx context.Context, n int) (reconciler.PullRequest, error) {
	if n == 4712 {
		c.failing.Add(1)
		return reconciler.PullRequest{}, errDown
	}
	c.missing.Add(1)
	return c.forge.Pull(ctx, n)
}

func TestMissingPullRequestIsNotRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var missing, failing atomic.Int64
	d := w.start(func(o *loop.Options) { o.Forge = counting{w.forge, &missing, &failing} })
	d.ready()
	d.does(pull(4711))
	d.Enqueue(pull(4712)) // is retried, and each retry of the other one would come before
	w.eventually("two retries", func() bool { return failing.Load() >= 3 })
	require.EqualValues(t, 1, missing.Load())
}

// watched remembers the last targets of an observation.
type watched struct {
	runtimes.Runtime
	mu   *sync.Mutex
	last *runtimes.Scope
}

func (s watched) Observe(ctx context.Context, sc runtimes.Scope) plan.Observed {
	s.mu.Lock()
	*s.last = sc
	s.mu.Unlock()
	return s.Runtime.Observe(ctx, sc)
}

func TestNewNodeAddressIsObserved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	var last runtimes.Scope
	w.start(func(o *loop.Options) {
		o.Runtimes = map[string]runtimes.Runtime{"bare_metal": watched{memory.New(w.world), &mu, &last}}
	})
	w.run(1)
	w.world.SetReachable("ctl", false) // the old address does not answer
	w.put(map[string]string{"platform/nodes/ctl.yaml": strings.Replace(estateFiles()["platform/nodes/ctl.yaml"], "10.9.0.10", "10.9.0.99",
		1)})
	w.eventually("observed at the new address", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(last.Members) > 0 && last.Members[0].Address == "10.9.0.99"
	})
}
