package reconciler_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/decide"
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
	return c, func(o *reconciler.Options) { o.Repo = cutting{o.Repo, c.armed, c.cut} }
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
func TestWhatIsInForceAndNotToldIsNotApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	governed := func(o *reconciler.Options) { o.Authority = &decide.Authority{Administrators: []string{"root"}} }
	path, text := instance("train", 2)
	w.put(map[string]string{path: text})
	d := w.start(governed)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	pr := w.pull(1, instanceNamed("train", 3))
	w.reviewed(pr)
	require.NoError(t, d.stop())
	require.NoError(t, w.world.SetDrift(trainKey, plan.Drift{Member: "worker-0", What: "users"}))
	w.merge(pr)
	was, before := w.git.Tip(reconciler.BranchInForce), w.effects()
	_, cut := newCutting(true)
	d = w.start(governed, cut)
	w.eventually("in force", func() bool { return w.git.Tip(reconciler.BranchInForce) != was })
	_ = d.stop()

	w.forge.mu.Lock()
	w.forge.down = errDown // so that nobody can say whose commit it is
	w.forge.mu.Unlock()
	w.start(governed)
	w.eventually("told", func() bool {
		return strings.Contains(condition2(w.status("train"), "Ready"), "which commit brought it")
	})
	require.Equal(t, before, w.effects())
	w.forge.mu.Lock()
	w.forge.down = nil
	w.forge.mu.Unlock()
	w.held("train", before)
}

// A plan that is the reviewed one and of which nothing could be begun is compared
// again when it can be.
func TestWhatWasAgreedIsComparedUntilItIsBegun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start()
	w.run(2)
	pr := w.pull(1, instanceNamed("train", 3))
	w.reviewed(pr)
	require.NoError(t, d.stop())
	remote, cut := newCutting(true)
	before, was := w.effects(), w.git.Tip(reconciler.BranchInForce)
	w.merge(pr)
	said := &sayings{of: "nothing new is started"}
	w.start(cut, func(o *reconciler.Options) { o.Log = slog.New(slog.NewTextHandler(said, nil)) })
	w.eventually("agreed to, and not begun", said.heard.Load)
	w.eventually("in force", func() bool { return w.git.Tip(reconciler.BranchInForce) != was })
	require.Equal(t, before, w.effects())
	require.NoError(t, w.world.SetDrift(trainKey, plan.Drift{Member: "worker-0", What: "users"}))
	remote.armed.Store(false)
	remote.cut.Store(false)
	w.held("train", before)
}

// What stands still as its owner asked for is not started as if that were a repair,
// neither when its start was not shown nor while something else of it is held.
func TestWhatWasStoppedIsNotStartedUnseen(t *testing.T) {
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
			before := w.effects()
			w.start()
			held := w.held("train", before)
			require.Empty(t, held.Stale.Reviewed)

			// It is started once somebody says so.
			w.forge.let("ada", reconciler.CanWrite)
			w.eventually("told", func() bool { r, ok := w.forge.told(commit); return ok && len(r.Units) == 1 && r.Units[0].Stale != nil })
			w.comes(w.forge.say(1, "ada", "/berth apply "+commit), reconciler.Accepted)
			w.eventually("running", w.phase("train", plan.PhaseRunning))
		})
	}
}
