package loop_test

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/schema"
)

// Items that a test waits for.
var (
	theEstate   = reconciler.Item{Task: reconciler.TaskEstate}
	thePulls    = reconciler.Item{Task: reconciler.TaskPulls}
	theCommands = reconciler.Item{Task: reconciler.TaskCommands}
	theShow     = reconciler.Item{Task: reconciler.TaskShow}
	train       = reconciler.Item{Task: reconciler.TaskUnit, Unit: trainKey}
	// nobody is no unit. It waits in the queue of the units for its turn.
	nobody = reconciler.Item{Task: reconciler.TaskUnit, Unit: schema.InstanceKey("physics", "lab", "nobody")}
)

func pull(n int) reconciler.Item { return reconciler.Item{Task: reconciler.TaskPull, Pull: n} }

// reconciliations counts those of a daemon by item. One item is never reconciled twice at a time.
type reconciliations struct {
	mu           sync.Mutex
	begun, ended map[reconciler.Item]int
}

// watch adds the counts to the hooks of a daemon.
func (r *reconciliations) watch(o *loop.Options) {
	inner := o.Hooks.Watch
	o.Hooks.Watch = func(i reconciler.Item) func(bool) {
		ended := func(bool) {}
		if inner != nil {
			ended = inner(i)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.begun[i]++
		return func(done bool) {
			ended(done)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ended[i]++
		}
	}
}

// after returns whether n reconciliations of each item that begin from now on have ended.
func (r *reconciliations) after(n int, items []reconciler.Item) func() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	begun := maps.Clone(r.begun)
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, i := range items {
			if r.ended[i] < begun[i]+n {
				return false
			}
		}
		return true
	}
}

// passes waits until each item was reconciled n times more, from begin to end. What the daemon does by itself,
// it has done by then; what it records may still wait to be written.
func (d *daemon) passes(n int, items ...reconciler.Item) {
	d.w.t.Helper()
	await.True(d.w.t, fmt.Sprint(n, " more reconciliations of ", items), d.seen.after(n, items), d.w.saw)
}

// does enqueues items, and waits until a reconciliation of each that began after that has ended.
func (d *daemon) does(items ...reconciler.Item) {
	d.w.t.Helper()
	ended := d.seen.after(1, items)
	for _, i := range items {
		d.Enqueue(i)
	}
	await.True(d.w.t, fmt.Sprint("a reconciliation of ", items), ended, d.w.saw)
}

// publishes has a pull request planned and, if that changed anything, its plan published.
func (d *daemon) publishes(n int) {
	d.w.t.Helper()
	d.does(pull(n))
	d.does(theShow)
}

// written waits until everything that the daemon recorded is on the remote.
func (d *daemon) written() {
	d.w.t.Helper()
	await.True(d.w.t, "every record on the remote", d.IsWritten, d.w.saw)
}

// eventually waits until ok returns true.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	await.True(w.t, what, ok, w.saw)
}

// bubble runs f with a world in a synctest bubble: its daemons work on the clock of the test. They use the
// repository by its path, as time stands still while a connection is open.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	w := newWorld(t)
	newLoader(t) // it is shared, so no bubble may make it
	synctest.Test(t, func(t *testing.T) {
		w.t, w.git.URL = t, "file://"+w.git.Dir
		f(t, w)
		w.latest.stop()
	})
}

// converged returns true if the unit of a status runs with that number of members, as was observed since its last
// change: before that, the status has the new members with the phase of the old ones.
func converged(s *plan.Status, members int) bool {
	return s != nil && s.Phase == plan.PhaseRunning && len(s.Members) == members && s.Condition("Ready") != nil &&
		s.Condition("Ready").Status == "True"
}

// saw describes what a test that waits can see: berth/status, the last writes at the forge, and the refs.
func (w *world) saw() any {
	if w.git.Tip(reconciler.BranchStatus) == "" {
		return fmt.Sprintf("no %s; main is at %s", reconciler.BranchStatus, w.git.Tip("main"))
	}
	tree := w.tree()
	var out strings.Builder
	rev := tree.Revision
	fmt.Fprintf(&out, "main at %s; decided %s, epoch %d, frozen %q, %d held\n", w.git.Tip("main"), rev.Commit, rev.Epoch, rev.Frozen,
		len(rev.Held))
	for _, h := range rev.Held {
		fmt.Fprintf(&out, "held %s (%s): %s\n", h.File, h.Why(), h.Message)
	}
	for key, s := range tree.Units.All() {
		fmt.Fprintf(&out, "%s: %s at %s, attempt %d, %d members, failure %q, retry %+v\n", key, s.Phase, s.Revision, s.Attempt,
			len(s.Members), s.FailureReason, s.Retry)
		for _, c := range s.Conditions {
			fmt.Fprintf(&out, "  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for key, s := range tree.Things {
		fmt.Fprintf(&out, "%s: %s %s\n", key, s.Phase, s.Detail)
	}
	for n, r := range tree.Reviews {
		fmt.Fprintf(&out, "review of #%d: head %s, waiting to be published: %v\n", n, r.Head, r.Next != nil)
	}
	writes := w.forge.written("")
	fmt.Fprintf(&out, "last writes at the forge: %q", writes[max(0, len(writes)-10):])
	return out.String()
}
