package loop_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
)

// group creates a merge group and queues its reconciliation.
func (w *world) group(d *daemon, n int, c gittest.Commit) (head string) {
	w.t.Helper()
	ref := fmt.Sprintf("refs/heads/queue/main/pr-%d-%s", n, w.git.Tip("main"))
	c.Message, c.Parent = "G", w.git.Tip("main")
	head = w.git.MustCommit(w.t, fmt.Sprint("g", n), c)
	require.NoError(w.t, w.git.SetRef(ref, head))
	d.Enqueue(reconciler.Item{Task: reconciler.TaskGroup, Ref: ref})
	w.eventually("judged", func() bool {
		return w.forge.check(head, plan.CheckValidate).Name != "" && w.forge.check(head, plan.CheckPlan).Name != ""
	})
	return head
}

// A merge group needs no acknowledgement of its deletions. The pull request passed
// this check, and the decision after the merge repeats it.
func TestMergeGroupNeedsNoAcknowledgement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start()
	gone := w.seven()
	pr := w.pull(1, nil, gone...)
	w.asked(1)
	require.Equal(t, plan.Failure, w.forge.check(pr.Head, plan.CheckPlan).Conclusion)
	k := w.forge.check(w.group(d, 1, gittest.Commit{Remove: gone}), plan.CheckPlan)
	require.Equal(t, plan.Success, k.Conclusion, k.Summary)
	require.Contains(t, k.Title, "Deletes 7 instances")
}

// A merge group needs no permission; the check of its pull request covered that. A
// change held on main for a missing permission is not part of the group's plan.
func TestMergeGroupExcludesHeldChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start(func(o *loop.Options) { o.Decide.Authority = &decide.Authority{Administrators: []string{"root"}} })
	w.eventually("decided", func() bool { return w.revision().Commit != "" })
	waits, text := instance("waits", 1)
	w.put(map[string]string{waits: text}) // by an unknown author
	path, text := instance("train", 1)
	w.eventually("held", func() bool {
		r := w.revision()
		return len(r.Held) == 1 && r.Held[0].File == waits
	})
	head := w.group(d, 1, gittest.Commit{Files: map[string]string{path: text}})
	w.eventually("planned", func() bool { return w.forge.check(head, plan.CheckPlan).Conclusion == plan.Success })
	k := w.forge.check(head, plan.CheckPlan)
	require.Contains(t, k.Title, "physics.lab/train")
	require.NotContains(t, k.Title+k.Summary, "waits")
}
