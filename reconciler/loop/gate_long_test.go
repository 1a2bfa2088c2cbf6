//go:build long

package loop_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/schema"
)

// Each case makes the reviewed plan differ from the plan at the merge. Berth applies
// none of it, also after a restart.
func TestLongStalePlanIsNeverApplied(t *testing.T) {
	t.Parallel()
	grow := func(w *world) reconciler.PullRequest { return w.shown(1, instanceNamed("train", 3)) }
	drop := func(w *world) reconciler.PullRequest {
		path, _ := instance("train", 2)
		return w.shown(1, nil, path)
	}
	push := func(files map[string]string) func(*world) { return func(w *world) { w.put(files) } }
	for name, way := range map[string]struct {
		open    func(*world) reconciler.PullRequest // changes train, which has two workers, and publishes its plan
		disturb func(*world)                        // runs between the published plan and the merge
	}{
		"base moved: the same instance": {grow, func(w *world) {
			path, text := instance("train", 2)
			w.put(map[string]string{path: strings.Replace(text, "display_name: train", "display_name: Train", 1)})
		}},
		"base moved: the node that the plan selects": {grow, push(map[string]string{
			"platform/nodes/gpu-3.yaml": strings.Replace(node("gpu-3", 13, "worker",
				"gpus: [{type: a100, count: 2, devices: \"/dev/nvidia[0-1]\"}]"), "cpus: 4", "cpus: 8", 1)})},
		"base moved: a policy": {grow, push(map[string]string{
			"tenants/physics/policy.yaml": "apiVersion: berth/v1\nkind: Policy\nmetadata: {name: policy}\nspec: {allowed_regions: " +
				"[eu-1]}\n"})},
		"base moved: the version": {grow, func(w *world) {
			w.put(map[string]string{"platform/catalog/batch/v1.yaml": strings.Replace(estateFiles()["platform/catalog/batch/v1.yaml"],
				"shareable: true", "shareable: false", 1)})
		}},
		"hosts: drifted":     {grow, func(w *world) { w.drifts("worker-0") }},
		"hosts: unreachable": {grow, func(w *world) { w.world.SetReachable("gpu-1", false) }},
		"hosts: half joined": {grow, func(w *world) {
			require.NoError(w.t, w.world.SetState(trainKey, "worker-0", plan.Partial))
		}},
		"a deletion: the deleted unit changed": {drop, func(w *world) {
			require.NoError(w.t, w.world.SetState(trainKey, "worker-0", plan.Stopped))
		}},
		"the head moved": {grow, func(w *world) { w.pull(1, instanceNamed("train", 4)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.start()
			w.run(2)
			pr := way.open(w)
			require.NoError(t, d.stop())
			before := w.effects()
			way.disturb(w)
			for _, now := range w.forge.pulls {
				pr = now
			}
			commit := w.merge(pr)[0]

			d = w.start(func(o *loop.Options) { o.Settings.Interval = 50 * time.Millisecond })
			w.eventually("decided", func() bool { return w.revision().Commit == commit })
			if strings.HasPrefix(name, "a deletion") { // the unit is repaired before it is deleted
				w.eventually("started again", func() bool { return w.world.Calls("start") == 1 })
				w.eventually("deleted as reviewed", func() bool { return w.status("train") == nil })
				return
			}
			held := w.held("train", before)
			require.Equal(t, 1, held.Pull)
			require.NotEmpty(t, held.Stale.Diff)
			require.Equal(t, plan.PhaseRunning, w.status("train").Phase)
			require.NoError(t, d.stop())
			w.start()
			w.eventually("held by the next daemon", func() bool {
				s := w.status("train")
				return s.Review != nil && s.Review.Stale != nil && s.Review.Stale.Now == held.Stale.Now
			})
			w.held("train", before)
		})
	}
}

// A review from another version of Berth, or one written by hand, does not match the
// plan and grants no permission.
func TestLongForeignReviewIsStale(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]func(digest, text string) string{
		"an older format": func(digest, text string) string {
			return strings.ReplaceAll(text, digest, strings.Repeat("0", len(digest)))
		},
		"no document":    func(string, string) string { return "{{{{" },
		"another's":      func(_, text string) string { return strings.ReplaceAll(text, "train", "other") },
		"nothing at all": func(string, string) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			pr := w.growthShown()
			digest := w.review(1).Units[0].Digest
			w.forgeReview(1, func(text string) string {
				require.Contains(t, text, digest)
				return forge(digest, text)
			})
			w.merge(pr)
			w.heldFromTheStart("train")
		})
	}
}

// Two pull requests are planned on the same base and merged in sequence or in one push
// of a merge queue. Berth holds only the plan that the other merge changed.
func TestLongPullRequestsMergedTogetherHoldOnlyStalePlans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start()
	w.run(1)
	first := w.pull(1, instanceNamed("first", 1))
	second := w.pull(2, instanceNamed("second", 1)) // alone, it gets the nodes of first
	third := w.pull(3, instanceNamed("train", 0))   // independent of both
	for _, pr := range []reconciler.PullRequest{first, second, third} {
		w.reviewed(pr)
	}
	require.NoError(t, d.stop())
	commits := w.merge(first, second, third)
	w.start()
	w.eventually("the first runs", w.phase("first", plan.PhaseRunning))
	w.eventually("held change reported", w.reportsHeld(commits[1]))
	w.eventually("the third runs", w.running("train", 0))
	w.eventually("the second is held", func() bool { return w.stale("second") != nil })
	require.Empty(t, w.world.Remains(schema.InstanceKey("physics", "lab", "second")))
	require.Equal(t, commits[0], w.status("first").Revision)
	require.Equal(t, commits[1], w.status("second").Revision)
	require.Equal(t, commits[2], w.status("train").Revision)
}

// A lost status branch holds no change: it stores observations, never permissions.
func TestLongLostStatusBranchHoldsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.merge(w.growthShown())
	require.NoError(t, w.git.SetRef("refs/heads/"+reconciler.BranchStatus, ""))
	w.start()
	w.eventually("applied", w.running("train", 3))
}
