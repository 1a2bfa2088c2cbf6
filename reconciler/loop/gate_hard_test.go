package loop_test

import (
	"context"
	"errors"
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

// These tests cover promise 1 when a daemon ends or a remote fails between two steps.

// cutting is a repository whose remote rejects every push after the first change of
// berth/in-force. The status of that decision is therefore not published.
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

// A daemon that ends between publishing a decision and its status leaves outdated unit
// statuses. The next daemon applies nothing to these units until it knows which commit
// changed each of them.
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

	w.forge.setDown(errDown) // the author of the commit is unknown
	w.start(withRights)
	w.eventually("the status reports the missing commit", func() bool {
		return strings.Contains(message(w.status("train"), "Ready"), "which commit brought it")
	})
	require.Equal(t, before, w.effects())
	w.forge.setDown(nil)
	w.held("train", before)
}

// A unit that its owner stopped is not started as a repair: neither when its start was
// not shown, nor while another change of it is held.
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

			// A command of a user with permission starts it.
			w.forge.let("ada", reconciler.CanWrite)
			w.eventually("held change reported", w.reportsHeld(commit))
			w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Accepted)
			w.eventually("running", w.phase("train", plan.PhaseRunning))
		})
	}
}

// A forge may report a pull request as closed shortly before it reports the merge.
func TestPullRequestReportedClosedBeforeMergeIsApplied(t *testing.T) {
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
	w.eventually("pull request read after it closed", func() bool { return reads() > before })
	w.merge(pr)
	w.eventually("reviewed plan applied", func() bool {
		require.Nil(t, w.stale("train"))
		return w.running("train", 3)()
	})
}

// A plan that is published after the merge has no effect: the plan that reviewers saw
// before the merge counts.
func TestPlanPublishedAfterMergeIsStale(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(func(o *loop.Options) { o.Settings.AuthorLag = 2 * time.Second })
	pr := w.pull(1, instanceNamed("train", 2))
	w.reviewed(pr)
	var once sync.Once
	merged := make(chan string, 1)
	w.forge.mu.Lock()
	w.forge.fails = func(call string) error {
		if strings.HasPrefix(call, "check berth/plan "+pr.Head) {
			once.Do(func() { // a reviewer merges the earlier plan just before this one arrives
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
	w.put(nil, "platform/nodes/gpu-1.yaml") // this changes the plan
	commit := <-merged
	w.held("train", w.effects())
	require.Equal(t, commit, w.status("train").Revision)
}

// A change that was reviewed and merged while its tenant tree was unreadable is
// applied once the tree is readable. Berth keeps the review until then, although every
// report was published.
func TestReviewedPlanAppliesOnceTheTreeIsReadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dark := w.runsDimmed()
	pr := w.pull(1, instanceNamed("train", 3))
	w.reviewed(pr)
	dark.Store(true)
	w.put(map[string]string{"tenants/physics/README.md": "This file is not part of the reviewed tree.\n"})
	commit := w.merge(pr)[0]
	w.eventually("held change reported", func() bool { r := w.rolloutOf(1); return r != nil && r.Commit == commit && len(r.Held) == 1 })
	w.latest.does(theEstate, train, reconciler.Item{Task: reconciler.TaskRollout, Commit: commit})
	w.latest.publishes(1)
	w.latest.written()
	require.NotNil(t, w.review(1))
	dark.Store(false)
	w.eventually("applied", w.running("train", 3))
	require.Equal(t, commit, w.status("train").Revision)
	w.eventually("rollout reported completely",
		func() bool { r := w.rolloutOf(1); return len(r.Held) == 0 && len(r.Units) == 1 && r.Settled() })
	w.eventually("review removed", func() bool { return w.review(1) == nil })
}
