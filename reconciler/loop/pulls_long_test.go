//go:build long

package loop_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/explore"
	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
)

// held is a runtime that blocks each action until released.
type held struct {
	runtimes.Runtime
	until chan struct{}
}

func (h held) Apply(ctx context.Context, c runtimes.Change) error {
	select {
	case <-h.until:
	case <-ctx.Done():
		return ctx.Err()
	}
	return h.Runtime.Apply(ctx, c)
}

// TestLongManyPullRequestsAndTheBaseMoves runs with 200 pull requests.
func TestLongManyPullRequestsAndTheBaseMoves(t *testing.T) { moveBaseUnder(t, explore.Count(60, 200)) }

// After a stop between the record, the checks and the comment, the next daemon
// completes the publication without duplicates.
func TestLongInterruptedPublicationIsCompleted(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"check berth/validate", "check berth/plan", "comment"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			path, text := instance("train", 2)
			pr := w.topic(7, map[string]string{path: text})
			failed := make(chan struct{}, 100)
			w.forge.fails = func(call string) error {
				if strings.HasPrefix(call, at) {
					failed <- struct{}{}
					return errors.New("cut off")
				}
				return nil
			}
			d := w.start()
			<-failed
			require.NoError(t, d.stop())
			v := w.reviews()[7]
			require.NotNil(t, v, "the plan is recorded before it is published")
			if at == "comment" {
				require.Equal(t, pr.Head, v.Head, "the check is visible before a merge")
			} else {
				require.Empty(t, v.Key, "the plan was not published")
			}
			w.forge.mu.Lock()
			w.forge.fails = nil
			w.forge.mu.Unlock()
			w.start()
			w.eventually("plan published", w.shownFully(7, pr.Head))
			require.Equal(t, []string{"check berth/validate " + pr.Head + " success", "check berth/plan " + pr.Head + " success",
				"comment 7"}, w.forge.written(""))
		})
	}
}

// The review of a merged pull request is kept until its rollout ends, over restarts
// too.
func TestLongReviewIsKeptUntilTheRolloutEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	pr := w.topic(7, map[string]string{path: text})
	hold := make(chan struct{})
	d := w.start(func(o *loop.Options) {
		o.Runtimes = map[string]runtimes.Runtime{"bare_metal": held{memory.New(w.world), hold}}
	})
	w.eventually("plan published", w.shownFully(7, pr.Head))
	commit, err := w.git.Merge("main", pr.Head, "merge")
	require.NoError(t, err)
	w.change(7, func(p *reconciler.PullRequest) { p.Open, p.Merged, p.MergeCommit = false, true, commit })
	w.eventually("deploying", w.phase("train", plan.PhaseDeploying))
	d.publishes(7)
	d.written()
	require.NotNil(t, w.reviews()[7])
	close(hold)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	w.eventually("over", func() bool { return w.reviews()[7] == nil })
}
