package loop_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/schema"
)

// These tests prove that the applied plan is the reviewed plan.

// pull opens a pull request on the current main, or pushes to an open one.
func (w *world) pull(n int, files map[string]string, remove ...string) reconciler.PullRequest {
	w.t.Helper()
	branch := fmt.Sprintf("pull-%d", n)
	head := w.git.MustCommit(w.t, branch, gittest.Commit{Message: fmt.Sprint("change ", n), Files: files, Remove: remove})
	require.NoError(w.t, w.git.SetPull(n, head))
	pr := reconciler.PullRequest{Number: n, Author: "ada", Head: head, BaseBranch: "main", Open: true}
	w.forge.put(pr)
	return pr
}

// put adds or replaces a pull request.
func (f *forge) put(pr reconciler.PullRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.pulls {
		if f.pulls[i].Number == pr.Number {
			f.pulls[i] = pr
			return
		}
	}
	f.pulls = append(f.pulls, pr)
}

// review returns the review of a pull request on berth/status, or nil.
func (w *world) review(n int) *plan.Review {
	w.t.Helper()
	return w.tree().Reviews[n]
}

// reviewed waits until the plan of the head is published and its review recorded.
func (w *world) reviewed(pr reconciler.PullRequest) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("plan of #%d published", pr.Number), func() bool {
		p, ok := w.forge.last(pr.Number)
		r := w.review(pr.Number)
		return ok && p.Head == pr.Head && r != nil && r.Head == pr.Head && r.Next == nil
	})
}

// shown opens a pull request, or pushes to it, and waits until its plan is published.
func (w *world) shown(n int, files map[string]string, remove ...string) reconciler.PullRequest {
	w.t.Helper()
	pr := w.pull(n, files, remove...)
	w.reviewed(pr)
	return pr
}

// growthShown prepares a common start: train runs with two workers, a pull request
// with a third worker has a published plan, and the daemon is stopped.
func (w *world) growthShown() reconciler.PullRequest {
	w.t.Helper()
	d := w.start()
	w.run(2)
	pr := w.shown(1, instanceNamed("train", 3))
	require.NoError(w.t, d.stop())
	return pr
}

// drifts gives a member of train a configuration that differs from the applied one.
func (w *world) drifts(member string) {
	w.t.Helper()
	require.NoError(w.t, w.world.SetDrift(trainKey, plan.Drift{Member: member, What: "users"}))
}

// forgeReview overwrites the review of a pull request on berth/status.
func (w *world) forgeReview(n int, forge func(text string) string) {
	w.t.Helper()
	path := fmt.Sprintf("pulls/%d.yaml", n)
	text, err := w.git.Read(reconciler.BranchStatus, path)
	require.NoError(w.t, err)
	w.git.MustCommit(w.t, reconciler.BranchStatus, gittest.Commit{Message: "forged", Files: map[string]string{path: forge(text)}})
}

// merge merges pull requests at once, as the merge button of a forge does.
func (w *world) merge(prs ...reconciler.PullRequest) []string {
	w.t.Helper()
	require.NoError(w.t, w.git.SetRef("refs/heads/queue", w.git.Tip("main")))
	var commits []string
	for _, pr := range prs {
		commit, err := w.git.Merge("queue", pr.Head, fmt.Sprintf("merge #%d", pr.Number))
		require.NoError(w.t, err)
		pr.Open, pr.Merged, pr.MergeCommit = false, true, commit
		w.forge.put(pr)
		commits = append(commits, commit)
	}
	require.NoError(w.t, w.git.SetRef("refs/heads/main", w.git.Tip("queue")))
	return commits
}

func (w *world) stale(name string) *plan.UnitReview {
	if s := w.status(name); s != nil && s.Review != nil && s.Review.Stale != nil {
		return s.Review
	}
	return nil
}

// held waits until a unit is held and requires that no host action runs.
func (w *world) held(name string, calls int) *plan.UnitReview {
	w.t.Helper()
	w.eventually(name+" is held", func() bool { return w.stale(name) != nil })
	for range 3 {
		w.latest.does(reconciler.Item{Task: reconciler.TaskUnit, Unit: schema.InstanceKey("physics", "lab", name)})
	}
	require.Equal(w.t, calls, w.effects(), "a held change causes no host action")
	s := w.status(name)
	require.NotNil(w.t, s.Review)
	for _, c := range s.Conditions {
		if c.Type == "Stalled" {
			require.Equal(w.t, plan.ConditionTrue, c.Status)
			require.Equal(w.t, plan.CodeStale.Reason(), c.Reason)
			require.Contains(w.t, c.Message, "/berth apply "+s.Revision[:10])
		}
	}
	return s.Review
}

// heldFromTheStart starts a daemon that holds the unit before any host action.
func (w *world) heldFromTheStart(name string, tunes ...tune) *plan.UnitReview {
	w.t.Helper()
	before := w.effects()
	w.start(tunes...)
	return w.held(name, before)
}

// reportsHeld reports whether the report of a commit shows its only unit as held.
func (w *world) reportsHeld(commit string) func() bool {
	return func() bool {
		r, ok := w.forge.rollout(commit)
		return ok && len(r.Units) == 1 && r.Units[0].Stale != nil && r.Units[0].Failure == ""
	}
}

// running reports whether an instance runs with the given number of workers.
func (w *world) running(name string, workers int) func() bool {
	return func() bool {
		s := w.status(name)
		return converged(s, 1+workers)
	}
}

// effects counts all calls that changed a host.
func (w *world) effects() int { return w.world.TotalCalls() - w.world.Calls("observe") }

// setDown makes every forge call fail with err; nil restores the forge.
func (f *forge) setDown(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = err
}

// withRights requires a permission for every change; root is administrator.
func withRights(o *loop.Options) {
	o.Decide.Authority = &decide.Authority{Administrators: []string{"root"}}
}

func instanceNamed(name string, workers int) map[string]string {
	path, text := instance(name, workers)
	return map[string]string{path: text}
}

func TestReviewedPlanIsApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	pr := w.shown(1, instanceNamed("train", 2))
	shown := w.review(1).Units
	require.Len(t, shown, 1)
	commit := w.merge(pr)[0]
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	s := w.status("train")
	require.Equal(t, shown[0].Digest, s.Digest)
	require.Equal(t, commit, s.Revision)
	require.Nil(t, s.Review, "further actions of this plan need no other review")

	// One such action is a repair that does more than start a stopped member.
	w.drifts("worker-0")
	w.eventually("repaired", func() bool { return w.world.Calls("configure") > 0 })
}

// Berth repairs a held unit as it was applied. It applies the held change by itself
// once the plan matches the review again.
func TestHeldUnitIsRepaired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pr := w.growthShown()
	w.drifts("worker-1")
	w.merge(pr)
	w.heldFromTheStart("train")

	require.NoError(t, w.world.SetDrift(trainKey)) // the drift is repaired by hand, and another member stops
	require.NoError(t, w.world.SetState(trainKey, "worker-0", plan.Stopped))
	w.eventually("member started, then the reviewed plan applied", func() bool {
		s := w.status("train")
		return converged(s, 4) && s.Review == nil
	})
	require.Equal(t, 1, w.world.Calls("start"))
}

// A pull request merged before its plan was published is held.
func TestMergeBeforePublishedPlanIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start()
	w.run(2)
	require.NoError(t, d.stop())
	w.merge(w.pull(1, instanceNamed("train", 3)))
	held := w.heldFromTheStart("train")
	require.Empty(t, held.Stale.Reviewed)
	require.Contains(t, message(w.status("train"), "Ready"), "no plan of it was shown before the merge of #1")

	// A direct push needs no plan and is not held.
	w.put(instanceNamed("train", 4))
	w.eventually("applied", w.running("train", 4))
}

// The merged content differs from the planned content, as after a squash with edits or
// a conflict resolved by hand.
func TestMergeWithOtherContentIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pr := w.growthShown()
	files := instanceNamed("train", 4)
	maps.Copy(files, instanceNamed("extra", 0)) // without any published plan
	pr.Open, pr.Merged, pr.MergeCommit = false, true, w.put(files)
	w.forge.put(pr)
	before := w.effects()
	w.start()
	require.NotEmpty(t, w.held("train", before).Stale.Reviewed)
	require.Empty(t, w.held("extra", before).Stale.Reviewed)
}

func TestForgedReviewGrantsNoPermission(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start(withRights)
	path, text := instance("train", 3)
	pr := w.pull(1, map[string]string{path: text})
	pr.Author = "eve"
	w.forge.put(pr)
	w.reviewed(pr)
	require.Empty(t, w.review(1).Units, "eve has no permission, so the plan is empty")
	require.NoError(t, d.stop())
	w.forgeReview(1, func(text string) string {
		return text + "units:\n  - key: {kind: Instance, tenant: physics, project: lab, name: train}\n    digest: " +
			strings.Repeat("a", 64) + "\n"
	})
	w.merge(pr)
	before := w.effects()
	w.start(withRights)
	w.eventually("held", func() bool { return w.heldReasons()[path] == schema.HeldUnauthorised })
	require.Equal(t, before, w.effects())
}

// A change is held while the forge cannot name its pull request. Berth keeps repairing
// the unit meanwhile.
func TestUnreachableForgeHoldsPlans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	w.run(2)
	w.forge.setDown(errDown)
	w.put(instanceNamed("train", 3))
	w.eventually("the status reports the unreachable forge",
		func() bool { return strings.Contains(message(w.status("train"), "Ready"), "the forge is down") })
	require.NoError(t, w.world.SetState(trainKey, "worker-0", plan.Stopped))
	w.eventually("member started again", func() bool { return w.world.Calls("start") == 1 })
	require.Len(t, w.status("train").Observed.Members, 3)
	w.forge.setDown(nil)
	w.eventually("change applied", w.running("train", 3))
}

var errDown = fmt.Errorf("the forge is down")
