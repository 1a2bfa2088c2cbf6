package loop_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
)

// Promise 1 where a run ends, or a remote fails, in between.

// cutting is a repository whose remote takes nothing any more once something came
// into force: what is decided is not told.
type cutting struct {
	reconciler.Repo
	armed, cut *atomic.Bool
}

var errCut = errors.New("the remote cannot be reached")

func (c cutting) WriteInForce(ctx context.Context, old string, i reconciler.InForce) (string, error) {
	if c.cut.Load() {
		return "", errCut
	}
	tip, err := c.Repo.WriteInForce(ctx, old, i)
	if c.armed.Load() {
		c.cut.Store(true)
	}
	return tip, err
}

func (c cutting) WriteStatus(ctx context.Context, old string, b reconciler.StatusBatch) (string, error) {
	if c.cut.Load() {
		return "", errCut
	}
	return c.Repo.WriteStatus(ctx, old, b)
}

func newCutting(armed bool) (cutting, tune) {
	c := cutting{armed: new(atomic.Bool), cut: new(atomic.Bool)}
	c.armed.Store(armed)
	return c, func(o *loop.Options) { o.Repo = cutting{o.Repo, c.armed, c.cut} }
}

// sayings is a log in which something is waited for.
type sayings struct {
	of    string
	heard atomic.Bool
}

func (s *sayings) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.of) {
		s.heard.Store(true)
	}
	return len(p), nil
}

// A run that ends between what came into force and the status of it leaves units
// whose status speaks of what was before: whoever comes after does nothing to them
// until it is known which commit brought what.
func TestUnrecordedDecisionIsNotApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(instanceNamed("train", 2))
	d := w.start(withRights)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	pr := w.shown(1, instanceNamed("train", 3))
	require.NoError(t, d.stop())
	w.drifts("worker-0")
	w.merge(pr)
	was, before := w.git.Tip(reconciler.BranchInForce), w.effects()
	_, cut := newCutting(true)
	d = w.start(withRights, cut)
	w.eventually("in force", func() bool { return w.git.Tip(reconciler.BranchInForce) != was })
	_ = d.stop()

	w.forge.setDown(errDown) // so that nobody can say whose commit it is
	w.start(withRights)
	w.eventually("told", func() bool {
		return strings.Contains(condition2(w.status("train"), "Ready"), "which commit brought it")
	})
	require.Equal(t, before, w.effects())
	w.forge.setDown(nil)
	w.held("train", before)
}

// A plan that is the reviewed one and of which nothing could be begun is compared
// again when it can be.
func TestApprovedPlanIsComparedUntilAnActionStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pr := w.growthShown()
	remote, cut := newCutting(true)
	before, was := w.effects(), w.git.Tip(reconciler.BranchInForce)
	w.merge(pr)
	said := &sayings{of: "nothing new is started"}
	held := &sayings{of: "held after the merge"}
	w.start(cut, func(o *loop.Options) { o.Log = slog.New(slog.NewTextHandler(io.MultiWriter(said, held), nil)) })
	w.eventually("agreed to, and not begun", said.heard.Load)
	w.eventually("in force", func() bool { return w.git.Tip(reconciler.BranchInForce) != was })
	require.Equal(t, before, w.effects())
	w.drifts("worker-0")
	// A reconciliation that observed before the drift may wait for the remote now.
	said.heard.Store(false)
	w.eventually("observed after the drift", func() bool { return said.heard.Load() || held.heard.Load() })
	remote.armed.Store(false)
	remote.cut.Store(false)
	w.held("train", before)
}

// What stands still as its owner asked for is not started as if that were a repair,
// neither when its start was not shown nor while something else of it is held.
func TestStoppedUnitIsNotStartedAsARepair(t *testing.T) {
	t.Parallel()
	for name, workers := range map[string]int{"started again": 2, "started again and changed": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.start()
			path := w.run(2)
			_, text := instance("train", 2)
			w.put(map[string]string{path: text + "  desired_state: stopped\n"})
			w.eventually("stopped", w.phase("train", plan.PhaseStopped))
			require.NoError(t, d.stop())
			_, text = instance("train", workers)
			commit := w.merge(w.pull(1, map[string]string{path: text}))[0]
			held := w.heldFromTheStart("train")
			require.Empty(t, held.Stale.Reviewed)

			// It is started once somebody says so.
			w.forge.let("ada", reconciler.CanWrite)
			w.eventually("told", w.toldHeld(commit))
			w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Accepted)
			w.eventually("running", w.phase("train", plan.PhaseRunning))
		})
	}
}

// unnaming is a forge that knows of pull requests what became of them, and not yet
// of commits which one brought them.
type unnaming struct{ *forge }

func (unnaming) PullsOf(context.Context, string) ([]reconciler.PullRequest, error) { return nil, nil }

func TestLateForgeDoesNotReleaseAStalePlan(t *testing.T) {
	t.Parallel()
	for name, shown := range map[string]bool{"a plan was shown": true, "none was": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			late := func(o *loop.Options) { o.Forge = unnaming{w.forge} }
			d := w.start(late)
			w.run(2)
			pr := w.shown(1, instanceNamed("train", 3))
			if !shown {
				pr = w.pull(1, instanceNamed("train", 4))
			}
			require.NoError(t, d.stop())
			w.drifts("worker-0")
			w.merge(pr)
			require.Equal(t, 1, w.heldFromTheStart("train", late).Pull)

			// What is pushed past every pull request is known to be, and not held.
			w.put(instanceNamed("train", 1))
			w.eventually("let go", func() bool { s := w.status("train"); return s.Review == nil && s.Phase == plan.PhaseRunning })
		})
	}
}

// A forge that merges may tell first that a pull request is closed.
func TestPullRequestClosedJustBeforeItIsMerged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	w.run(2)
	pr := w.shown(1, instanceNamed("train", 3))
	closed := pr
	closed.Open, closed.Updated = false, time.Now()
	w.forge.put(closed)
	reads := func() int { w.forge.mu.Lock(); defer w.forge.mu.Unlock(); return w.forge.read }
	before := reads()
	w.eventually("seen to be closed", func() bool { return reads() > before })
	w.merge(pr)
	w.eventually("applied, as it was shown", func() bool {
		require.Nil(t, w.stale("train"))
		return w.running("train", 3)()
	})
}

// What an earlier run told of to its end is not told anew, by fewer units, when
// something of it is repaired later.
func TestEndedRolloutIsNotPublishedAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start()
	files := instanceNamed("train", 1)
	maps.Copy(files, instanceNamed("other", 1))
	commit := w.merge(w.shown(1, files))[0]
	w.eventually("told to its end", func() bool {
		r, ok := w.forge.told(commit)
		return ok && r.Settled() && len(r.Units) == 2 && w.review(1) == nil
	})
	later := w.put(instanceNamed("other", 2))
	w.eventually("another changes", func() bool { s := w.status("other"); return s.Revision == later && s.Phase == plan.PhaseRunning })
	require.NoError(t, d.stop())
	written := len(w.forge.written("comment 1"))
	w.start()
	require.NoError(t, w.world.SetState(trainKey, "worker-0", plan.Stopped))
	w.eventually("repaired", func() bool { return w.world.Calls("start") == 1 })
	after := w.merge(w.shown(2, instanceNamed("third", 0)))[0]
	w.eventually("the next is told", func() bool { r, ok := w.forge.told(after); return ok && r.Settled() && len(r.Units) == 1 })
	require.Len(t, w.forge.written("comment 1"), written)
}

// What was merged unseen is held, also where its tenant could not be read then and
// it comes later, with no commit.
func TestWhatCouldNotBeReadIsHeldToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dark := w.runsDimmed()
	w.forge.mu.Lock()
	w.forge.fails = func(string) error { return errors.New("nothing can be said") }
	w.forge.mu.Unlock()
	dark.Store(true)
	commit := w.merge(w.pull(1, instanceNamed("train", 3)))[0]
	w.eventually("not read", func() bool { rev := w.revision(); return rev.Commit == commit && len(rev.Held) == 1 })
	effects := w.effects()
	dark.Store(false)
	s := w.held("train", effects)
	require.Equal(t, 1, s.Pull)
	require.Equal(t, commit, w.status("train").Revision)
}

// A plan that arrives after the merge was not what it was merged on: what people
// saw is what counts.
func TestPlanPublishedAfterTheMerge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(func(o *loop.Options) { o.AuthorLag = 2 * time.Second })
	pr := w.pull(1, instanceNamed("train", 2))
	w.reviewed(pr)
	var once sync.Once
	merged := make(chan string, 1)
	w.forge.mu.Lock()
	w.forge.fails = func(call string) error {
		if strings.HasPrefix(call, "check berth/plan "+pr.Head) {
			once.Do(func() { // somebody presses the button on what was shown, a moment before this arrives
				assert.NoError(t, w.git.SetRef("refs/heads/queue", w.git.Tip("main")))
				commit, err := w.git.Merge("queue", pr.Head, "merge #1")
				assert.NoError(t, err)
				for i := range w.forge.pulls {
					w.forge.pulls[i].Open, w.forge.pulls[i].Merged, w.forge.pulls[i].MergeCommit = false, true, commit
				}
				assert.NoError(t, w.git.SetRef("refs/heads/main", commit))
				merged <- commit
			})
		}
		return nil
	}
	w.forge.mu.Unlock()
	w.put(nil, "platform/nodes/gpu-1.yaml") // the plan is another now
	commit := <-merged
	w.held("train", w.effects())
	require.Equal(t, commit, w.status("train").Revision)
}

// What was reviewed and merged while its tenant could not be read is applied once it
// can be: the review is kept until then, though all there was to tell was told.
func TestReviewedPlanAppliesOnceTheTreeIsReadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dark := w.runsDimmed()
	pr := w.pull(1, instanceNamed("train", 3))
	w.reviewed(pr)
	dark.Store(true)
	w.put(map[string]string{"tenants/physics/README.md": "What was read for the review is not all there is now.\n"})
	commit := w.merge(pr)[0]
	w.eventually("told", func() bool { r := w.told(1); return r != nil && r.Commit == commit && len(r.Held) == 1 })
	time.Sleep(1500 * time.Millisecond) // it is looked at again
	require.NotNil(t, w.review(1))
	dark.Store(false)
	w.eventually("applied", w.running("train", 3))
	require.Equal(t, commit, w.status("train").Revision)
	w.eventually("told to its end", func() bool { r := w.told(1); return len(r.Held) == 0 && len(r.Units) == 1 && r.Settled() })
	w.eventually("forgotten", func() bool { return w.review(1) == nil })
}
