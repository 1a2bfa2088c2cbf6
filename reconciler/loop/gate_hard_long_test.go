//go:build long

package loop_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
)

// logWatch is a log that records whether a given message was written.
type logWatch struct {
	of    string
	heard atomic.Bool
}

func (s *logWatch) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.of) {
		s.heard.Store(true)
	}
	return len(p), nil
}

// unnaming is a forge that knows the state of each pull request but not yet which pull
// request brought a commit.
type unnaming struct{ *forge }

func (unnaming) PullsOf(context.Context, string) ([]reconciler.PullRequest, error) { return nil, nil }

func TestLongLateForgeDoesNotReleaseAStalePlan(t *testing.T) {
	t.Parallel()
	for name, shown := range map[string]bool{"a plan was shown": true, "no plan was shown": false} {
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

			// A direct push is known to belong to no pull request and is not held.
			w.put(instanceNamed("train", 1))
			w.eventually("released", func() bool { s := w.status("train"); return s.Review == nil && s.Phase == plan.PhaseRunning })
		})
	}
}

// A rollout that an earlier daemon reported completely is not reported again, with
// fewer units, after a later repair.
func TestLongEndedRolloutIsNotPublishedAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start()
	files := instanceNamed("train", 1)
	maps.Copy(files, instanceNamed("other", 1))
	commit := w.merge(w.shown(1, files))[0]
	w.eventually("rollout reported completely", func() bool {
		r, ok := w.forge.rollout(commit)
		return ok && r.Settled() && len(r.Units) == 2 && w.review(1) == nil
	})
	later := w.put(instanceNamed("other", 2))
	w.eventually("other unit changed", func() bool { s := w.status("other"); return s.Revision == later && s.Phase == plan.PhaseRunning })
	require.NoError(t, d.stop())
	written := len(w.forge.written("comment 1"))
	w.start()
	require.NoError(t, w.world.SetState(trainKey, "worker-0", plan.Stopped))
	w.eventually("repaired", func() bool { return w.world.Calls("start") == 1 })
	after := w.merge(w.shown(2, instanceNamed("third", 0)))[0]
	w.eventually("next rollout reported", func() bool { r, ok := w.forge.rollout(after); return ok && r.Settled() && len(r.Units) == 1 })
	require.Len(t, w.forge.written("comment 1"), written)
}

// A plan that matches the review is compared again until its first action starts.
func TestLongApprovedPlanIsComparedUntilAnActionStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pr := w.growthShown()
	remote, cut := newCutting(true)
	before, was := w.effects(), w.git.Tip(reconciler.BranchInForce)
	w.merge(pr)
	stopped := &logWatch{of: "no new action started"}
	held := &logWatch{of: "stale plan held"}
	w.start(cut, func(o *loop.Options) { o.Log = slog.New(slog.NewTextHandler(io.MultiWriter(stopped, held), nil)) })
	w.eventually("plan accepted, no action started", stopped.heard.Load)
	w.eventually("in force", func() bool { return w.git.Tip(reconciler.BranchInForce) != was })
	require.Equal(t, before, w.effects())
	w.drifts("worker-0")
	// A reconciliation that observed before the drift may wait for the remote now.
	stopped.heard.Store(false)
	w.eventually("observed after the drift", func() bool { return stopped.heard.Load() || held.heard.Load() })
	remote.armed.Store(false)
	remote.cut.Store(false)
	w.held("train", before)
}

// A change that was merged without a review is held, also when its tenant tree becomes
// readable only later, without a new commit.
func TestLongUnreviewedMergeOfUnreadableTreeIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dark := w.runsDimmed()
	w.forge.mu.Lock()
	w.forge.fails = func(string) error { return errors.New("the forge rejects every write") }
	w.forge.mu.Unlock()
	dark.Store(true)
	commit := w.merge(w.pull(1, instanceNamed("train", 3)))[0]
	w.eventually("tenant tree unreadable", func() bool { rev := w.revision(); return rev.Commit == commit && len(rev.Held) == 1 })
	effects := w.effects()
	dark.Store(false)
	s := w.held("train", effects)
	require.Equal(t, 1, s.Pull)
	require.Equal(t, commit, w.status("train").Revision)
}
