package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/webhooks/github/githubtest"
)

// say writes a comment as login and waits until Berth reacts to it with sign.
func (g *governed) say(pull int, login, words, sign string) {
	g.Helper()
	id, err := g.forge.Comment(pull, login, words)
	require.NoError(g, err)
	var signs []githubtest.Reaction
	await.True(g, fmt.Sprintf("a reaction to %q", words), func() bool {
		for _, c := range g.forge.Comments(pull) {
			if c.ID == id {
				signs = c.Reactions
			}
		}
		return len(signs) > 0
	}, g.saw)
	require.Equal(g, []githubtest.Reaction{{Login: labtest.App + "[bot]", Content: sign}}, signs, words)
}

// secondAfterReview waits until the plan for a unit was posted, and until a second of the
// forge has begun since then: its timestamps are whole seconds.
func (g *governed) secondAfterReview(key schema.Key) {
	g.Helper()
	g.until("posted in a second that is over", key, func(s *plan.Status) bool {
		return s.Review != nil && s.Review.Posted != nil && s.Review.Posted.At.Before(time.Now().Truncate(time.Second))
	})
}

// Two pull requests are planned, and one of them is merged first. The other one's
// reviewed plan is stale then. Its change is held, and both pull requests show
// that, until a user with permission approves the new plan.
func TestStalePlanIsHeldUntilApproved(t *testing.T) {
	g := newGoverned(t, nil, nil)
	for _, who := range []string{projectAdmin, viewer, labtest.ProjectMember} {
		g.forge.SetPermission(who, "write")
	}
	first, _ := g.open(projectAdmin, gittest.Commit{Message: "train", Files: trainOf(1)})
	g.check(first, "success")
	g.mergeAs(first, githubtest.Merge, projectAdmin, "")
	g.until("running", labtest.Train, func(s *plan.Status) bool { return running(s) && countRunning(s) == 2 })
	g.comment(first, "1 instance running")

	// Both were planned before either was merged.
	base := g.git.Tip("main")
	more, _ := g.open(projectAdmin, gittest.Commit{Message: "two workers", Parent: base, Files: trainOf(2)})
	name := strings.Replace(trainOf(1)[pathOf(t, labtest.Train)], "spec:\n",
		"spec:\n  config:\n    partitions:\n      - name: quick\n        default: true\n        max_time_minutes: 30\n", 1)
	config, _ := g.open(projectAdmin,
		gittest.Commit{Message: "a partition", Parent: base, Files: map[string]string{pathOf(t, labtest.Train): name}})
	g.check(more, "success")
	g.check(config, "success")
	_, err := g.forge.Merge(more, githubtest.Merge, projectAdmin)
	require.NoError(t, err)
	merge, err := g.forge.Merge(config, githubtest.Merge, projectAdmin)
	require.NoError(t, err)
	g.decided()
	g.comment(config, "/berth apply "+merge[:10])
	held := func(s *plan.Status) bool { return condition(*s, "Stalled").Reason == plan.CodeStale.Reason() }
	g.until("held", labtest.Train, held)

	g.say(config, viewer, "/berth apply "+merge[:10], "-1") // has no permission in the estate
	g.say(config, projectAdmin, "/berth apply 0123456789", "-1")
	g.say(config, projectAdmin, "/berth dance", "confused")
	g.until("still held", labtest.Train, held)
	g.secondAfterReview(labtest.Train)
	g.say(config, projectAdmin, "/berth apply "+merge[:10], "rocket")
	g.until("applied", labtest.Train, func(s *plan.Status) bool { return running(s) && !held(s) && s.Revision == merge })
	g.comment(config, "1 instance running")
}

// The merge queue waits for both checks on its merge group, and merges the group if
// they succeed.
func TestMergeQueue(t *testing.T) {
	g := newGoverned(t, nil, nil)
	one, _ := g.open(projectAdmin, gittest.Commit{Message: "train", Files: trainOf(1)})
	two, _ := g.open("dora-genomes",
		gittest.Commit{Message: "assembly", Parent: g.git.Tip("main"), Files: map[string]string{pathOf(t, labtest.Assembly): g.neighbour}})
	g.check(one, "success")
	g.check(two, "success")
	for _, pull := range []int{one, two} {
		_, err := g.forge.Enqueue(pull)
		require.NoError(t, err)
	}
	await.True(t, "the merge of the queue", func() bool {
		p, _ := g.forge.Pull(two)
		return p.MergeCommit != ""
	}, g.saw)
	require.Empty(t, g.forge.Queue())
	g.decided()
	g.until("running", labtest.Train, running)
	g.until("running", labtest.Assembly, running)
	require.Empty(t, g.held())
	for _, pull := range []int{one, two} {
		g.comment(pull, "1 instance running")
		require.Len(t, g.forge.Comments(pull), 1)
	}
}

// A pull request from a stranger's fork is planned like any other. Merging it
// needs the approval of a user with permission.
func TestForkIsPlanned(t *testing.T) {
	g := newGoverned(t, nil, nil)
	dir, err := g.forge.Fork("stranger")
	require.NoError(t, err)
	id := g.git.MustCommit(t, "stranger-prepares", gittest.Commit{Message: "train", Files: trainOf(1)})
	_, err = g.git.Git("push", "--quiet", dir, id+":refs/heads/mine")
	require.NoError(t, err)
	require.NoError(t, g.git.SetRef("refs/heads/stranger-prepares", ""))
	require.NoError(t, g.forge.Sync())
	pull, err := g.forge.OpenForkPull("stranger", "mine", "train")
	require.NoError(t, err)
	require.Contains(t, g.check(pull, "failure"), "apps.instance.create")
	g.comment(pull, "fork")
	g.say(pull, "stranger", "/berth plan", "-1")
	g.approve(pull, projectAdmin)
	g.check(pull, "success")
	g.mergeAs(pull, githubtest.Merge, projectAdmin, "")
	g.until("running", labtest.Train, running)
}

// Without an App, both verdicts are commit statuses, and the rest is the same.
func TestTokenReportsStatuses(t *testing.T) {
	t.Parallel()
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	k := newKept(t, "token", listen, map[string]any{"listen": listen})
	var c map[string]any
	data, err := os.ReadFile(k.path)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(data, &c))
	gh := c["forge"].(map[string]any)
	delete(gh, "report")
	delete(gh, "login")
	require.NoError(t, os.WriteFile(filepath.Join(k.dir, "token"), []byte(personToken), 0o600))
	data, err = yaml.Marshal(c)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(k.path, data, 0o600))
	attend(k, listen)
	k.git.MustCommit(t, "change", gittest.Commit{Message: "assembly", Files: map[string]string{pathOf(t, labtest.Assembly): k.neighbour}})
	pull, err := k.forge.OpenPull("change", "assembly", "dora-genomes")
	require.NoError(t, err)
	says := func(context, state string) func() bool {
		return func() bool {
			p, _ := k.forge.Pull(pull)
			all := k.forge.Statuses(p.Head)
			for i := len(all) - 1; i >= 0; i-- {
				if all[i].Context == context {
					return all[i].State == state
				}
			}
			return false
		}
	}
	saw := func() any {
		p, _ := k.forge.Pull(pull)
		return show([]any{p, k.forge.Statuses(p.Head), k.forge.Comments(pull)})
	}
	for _, context := range []string{plan.CheckValidate, plan.CheckPlan} {
		await.True(t, "the success of "+context, says(context, "success"), saw)
	}
	k.git.MustCommit(t, "change", gittest.Commit{Message: "misspelt",
		Files: map[string]string{pathOf(t, labtest.Assembly): strings.Replace(k.neighbour, "display_name", "dislpay_name", 1)}})
	require.NoError(t, k.forge.Sync())
	await.True(t, "the failure of "+plan.CheckValidate, says(plan.CheckValidate, "failure"), saw)
	await.True(t, "the finding in the one comment", func() bool {
		all := k.forge.Comments(pull)
		return len(all) == 1 && strings.Contains(all[0].Body, "dislpay")
	}, saw)
	p, _ := k.forge.Pull(pull)
	require.Empty(t, k.forge.Checks(p.Head))
	require.Empty(t, k.forge.Violations())
}
