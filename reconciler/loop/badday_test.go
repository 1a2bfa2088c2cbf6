package loop_test

import (
	"context"
	"slices"
	"strings"
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
)

// twice commits a root tree with a duplicate entry to main. Git forbids such a tree,
// but a server without checks accepts it.
func (w *world) twice(name string) string {
	w.t.Helper()
	entries, err := w.git.Tree("main")
	require.NoError(w.t, err)
	i := slices.IndexFunc(entries, func(e gittest.TreeEntry) bool { return e.Name == name })
	tree, err := w.git.WriteTree(slices.Insert(entries, i, entries[i])...)
	require.NoError(w.t, err)
	return w.commitTree(tree)
}

// commitTree commits a tree to main.
func (w *world) commitTree(tree string) string {
	w.t.Helper()
	id, err := w.git.CommitTree("main", "by hand", tree)
	require.NoError(w.t, err)
	return id
}

// An ambiguous tree freezes synchronization. After a restart the daemon still repairs
// the units in force; a good commit on top ends the freeze.
func TestUnreadableTreeFreezesSynchronization(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"tenants", "platform"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			path, text := instance("train", 1)
			w.put(map[string]string{path: text})
			d := w.start()
			w.eventually("running", w.phase("train", plan.PhaseRunning))
			good, err := w.git.Git("rev-parse", "main^{tree}")
			require.NoError(t, err)

			w.twice(name)
			w.eventually("frozen", func() bool { return strings.Contains(w.revision().Frozen, name) })
			require.NoError(t, d.stop())
			d = w.start() // the cache is empty
			d.ready()     // also while frozen, as it repairs units in force
			key := schema.InstanceKey("physics", "lab", "train")
			require.NoError(t, w.world.SetState(key, "worker-0", plan.Stopped))
			w.eventually("repaired", func() bool { return w.world.Calls("start") > 0 })
			w.eventually("running again", w.phase("train", plan.PhaseRunning))

			commit := w.commitTree(good)
			w.eventually("synchronization resumed", func() bool { return w.revision().Frozen == "" && w.revision().Commit == commit })
			w.noEventTwice()
		})
	}
}

// A daemon that finds a rewritten main at its start keeps the documents in force.
func TestRewrittenMainFreezesAtStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	dir := t.TempDir()
	d := w.startAt(dir)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	require.NoError(t, d.stop())
	w.git.MustCommit(t, "main", gittest.Commit{Message: "rewritten", Parent: w.git.Ref("refs/heads/main~1"),
		Files: map[string]string{"x": "y"}})

	w.startAt(dir)
	w.eventually("frozen", func() bool { return w.revision().Frozen != "" })
	require.NoError(t, w.world.SetState(schema.InstanceKey("physics", "lab", "train"), "worker-0", plan.Stopped))
	w.eventually("repaired", func() bool { return w.world.Calls("start") > 0 })
}

// An idle daemon also notices that another daemon took leadership.
func TestIdleDaemonLosesLeadership(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.start(func(o *loop.Options) { o.Settings.Interval = time.Hour })
	first.ready()
	w.start()
	require.ErrorContains(t, first.end(), "another daemon leads")
}

// Write access to the status branch does not bring a commit into force.
func TestStatusBranchDoesNotDecideWhatIsInForce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	d := w.start()
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	require.NoError(t, d.stop())

	_, more := instance("train", 4)
	evil := w.git.MustCommit(t, "evil", gittest.Commit{Message: "never reviewed", Files: map[string]string{path: more}})
	rev, err := w.git.Read(reconciler.BranchStatus, "revision.yaml")
	require.NoError(t, err)
	forged := strings.ReplaceAll(rev, w.git.Tip(reconciler.BranchInForce), evil)
	require.NotEqual(t, rev, forged)
	w.git.MustCommit(t, reconciler.BranchStatus, gittest.Commit{Message: "forged", Files: map[string]string{"revision.yaml": forged}})
	// The commit has to be where the daemon can read it, as a pull request's is.
	w.git.MustCommit(t, "main", gittest.Commit{Message: "merged and taken back", Merge: evil})

	w.twice("platform") // this freeze prevents a new decision at the start

	calls := w.world.Calls("join")
	w.start()
	w.eventually("frozen", func() bool { return w.revision().Frozen != "" })
	w.latest.does(theEstate, train)
	w.latest.does(train)
	require.Equal(t, calls, w.world.Calls("join"))
}

// A unit that was not observed is not settled, whatever its status says. The same
// holds for a unit that a commit just changed.
func TestUnsettledListsUnitsUntilTheyAreObserved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	d := w.start()
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	require.NoError(t, d.stop())
	key := schema.InstanceKey("physics", "lab", "train")
	require.NoError(t, w.world.SetState(key, "worker-0", plan.Stopped))

	d = w.start()
	w.eventually("settled", func() bool { return len(d.Unsettled()) == 0 })
	require.Equal(t, 1, w.world.Calls("start"), "settled implies repaired")
	require.NoError(t, d.stop())

	w.world.SetReachable("ctl", false)
	_, more := instance("train", 2)
	commit := w.put(map[string]string{path: more})
	w.start()
	w.eventually("decided", func() bool { return w.revision().Commit == commit && w.status("train").Revision == commit })
	for _, c := range w.status("train").Conditions {
		if c.Type == "Ready" || c.Type == "Reconciling" {
			require.NotEqual(t, "Ready is True", string(c.Type)+" is "+string(c.Status), "the unit was not observed yet")
			require.NotEqual(t, "Reconciling is False", string(c.Type)+" is "+string(c.Status))
		}
	}
}

// Documents that cannot converge by waiting are reported separately.
func TestUnsettledReportsStuckDocuments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: strings.Replace(text, "count: 1, gpus", "cuont: 1, gpus", 1)})
	d := w.start()
	d.ready()
	w.eventually("stuck document reported", func() bool {
		left := d.Unsettled()
		return len(left) == 1 && left[0].Stuck && strings.Contains(left[0].What, "cuont")
	})
}

// A suspended unit is converged, whether or not it exists. Documents of kinds without effect are
// not waited for.
func TestUnsettledIgnoresSuspendedUnits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	never, suspended := instance("sweep", 1)
	w.put(map[string]string{path: text, never: "suspend: true\n" + suspended})
	d := w.start()
	w.eventually("settled", func() bool { return len(d.Unsettled()) == 0 })
	commit := w.put(map[string]string{path: "suspend: true\n" + strings.Replace(text, "count: 1, gpus", "count: 2, gpus", 1)})
	w.eventually("settled while suspended", func() bool { return w.revision().Commit == commit && len(d.Unsettled()) == 0 })

	commit = w.put(map[string]string{
		"platform/queues/all.yaml": "apiVersion: berth/v1\nkind: QueueMap\nmetadata: {name: all}\nspec: {app: batch, queues: [{queue: " +
			"short, partition: main}]}\n",
	})
	w.eventually("documents without effect settled", func() bool { return w.revision().Commit == commit && len(d.Unsettled()) == 0 })
}

// patient is a runtime whose next observations block until they are cancelled.
type patient struct {
	runtimes.Runtime
	asked chan struct{} // receives one value for each observation
}

func (p patient) Observe(ctx context.Context, s runtimes.Scope) plan.Observed {
	select {
	case p.asked <- struct{}{}:
		<-ctx.Done()
		return plan.Observed{Key: s.Key, Presence: plan.Unknown, Reason: ctx.Err().Error()}
	default:
		return p.Runtime.Observe(ctx, s)
	}
}

// A daemon that stops during an observation records no result of it.
func TestStopDuringObservationRecordsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	asked := make(chan struct{})
	d := w.start(func(o *loop.Options) {
		o.Runtimes = map[string]runtimes.Runtime{"bare_metal": patient{memory.New(w.world), asked}}
	})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	<-asked
	require.NoError(t, d.stop())
	for _, c := range w.status("train").Conditions {
		require.NotEqual(t, plan.ConditionUnknown, c.Status, "%s: %s", c.Type, c.Message)
	}
}
