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
)

// Projects that accept their terms in pull requests that are merged at once are attached: the pull
// requests have shown a part of the plan each. A part that nobody has seen holds all.
func TestLongPullRequestsMergedTogetherShowAPartEach(t *testing.T) {
	t.Parallel()
	second := func(text string) string {
		return strings.NewReplacer("name: lab", "name: field", "at-5", "at-6", "physics.lab", "physics.field", "name: yard", "name: pond",
			"display_name: Yard", "display_name: Pond").Replace(text)
	}
	const fieldView = "tenants/physics/projects/field/instances/pond.yaml"
	for name, unseen := range map[string]map[string]string{
		"all seen": nil,
		"one part is pushed unseen": {
			"tenants/physics/shared-runtimes/commons/attachments/field.yaml": second(
				attachmentText("  submission_policy: {max_gpus: 3}\n"),
			),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.start()
			w.put(operatorFiles(""))
			w.put(map[string]string{
				commonsPath: commonsText(""), attachmentPath: attachmentText(""),
				"tenants/physics/shared-runtimes/commons/attachments/field.yaml": second(attachmentText("")),
				"tenants/physics/projects/field/project.yaml": "apiVersion: berth/v1\nkind: Project\nmetadata: {name: " +
					"field}\nspec: {display_name: Field}\n",
				"tenants/physics/projects/field/entitlements/batch.yaml": "apiVersion: berth/v1\nkind: Entitlement\nmetadata: {name: " +
					"batch}\nspec: {enabled: true}\n",
			})
			w.eventually("running", func() bool { s := w.unit(commons); return s != nil && s.Phase == plan.PhaseRunning })
			first := w.shown(1, map[string]string{viewPath: viewText("tenant")})
			other := w.shown(2, map[string]string{fieldView: second(viewText("tenant"))})
			require.NoError(t, d.stop())
			w.merge(first, other)
			if unseen != nil {
				w.put(unseen)
				commit := w.git.Tip("main") // a pull request that nobody was shown brought it
				w.forge.put(reconciler.PullRequest{Number: 3, Author: "ada", Head: commit, BaseBranch: "main", Merged: true,
					MergeCommit: commit})
			}
			w.start(func(o *loop.Options) { o.Settings.Interval = 50 * time.Millisecond })
			if unseen != nil {
				w.eventually("held", func() bool { s := w.unit(commons); return s.Review != nil && s.Review.Stale != nil })
				require.Empty(t, w.unit(commons).Observed.Unit.Effective.Attachments)
				return
			}
			w.eventually("both attached", func() bool {
				s := w.unit(commons)
				return s.Review == nil && len(s.Observed.Unit.Effective.Attachments) == 2
			})
		})
	}
}
