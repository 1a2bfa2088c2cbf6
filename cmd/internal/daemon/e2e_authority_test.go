package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
	"berth/webhooks/github/githubtest"
)

// Users of examples/lab, by permission.
const (
	viewer        = "clara-lattice" // project_viewer
	projectAdmin  = "anna-lattice"  // project_admin
	tenantOwner   = "petra-phys"    // tenant_owner of physics
	superadmin    = labtest.Administrator
	rolesOfTheLab = "tenants/physics/projects/lattice/roles.yaml"
)

// governed is an estate whose daemon runs and asks for everybody's right.
type governed struct {
	*kept
	listen   string
	branches int
	stop     func()
}

// newGoverned has something more in its berth.yaml, and in its estate.
func newGoverned(t *testing.T, config map[string]any, more map[string]string) *governed {
	t.Helper()
	t.Parallel()
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	said := map[string]any{"listen": listen}
	maps.Copy(said, config)
	g := &governed{kept: newKept(t, "lattice", listen, said), listen: listen}
	if len(more) > 0 {
		g.git.MustCommit(t, "main", gittest.Commit{Message: "more", Files: more})
		require.NoError(t, g.forge.Sync())
	}
	g.start()
	t.Cleanup(func() { g.stop(); require.Empty(t, g.forge.Violations()) })
	return g
}

// start runs the daemon, and waits until it is ready.
func (g *governed) start() {
	g.Helper()
	said := &sink{}
	s, err := New([]string{g.path}, slog.New(slog.NewJSONHandler(said, nil)))
	require.NoError(g, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, nil) }()
	g.stop = func() {
		cancel()
		if err, running := <-ended; running {
			require.NoError(g, err)
			close(ended)
			if g.Failed() {
				g.Log(said.String())
			}
		}
	}
	await.True(g, "a daemon that is ready", func() bool { return s.ready() == nil },
		func() any { return fmt.Sprint(s.ready(), "\n", lastLines(said)) })
}

// open opens a pull request of one commit.
func (g *governed) open(author string, c gittest.Commit) (pull int, branch string) {
	g.Helper()
	g.branches++
	branch = fmt.Sprintf("change-%d", g.branches)
	g.git.MustCommit(g, branch, c)
	title, _, _ := strings.Cut(c.Message, "\n")
	pull, err := g.forge.OpenPull(branch, title, author)
	require.NoError(g, err)
	return pull, branch
}

// check waits until the head of a pull request has both checks and a comment, and
// the checks together have the conclusion. It returns their texts.
func (g *governed) check(pull int, conclusion string) (said string) {
	g.Helper()
	await.True(g, fmt.Sprintf("the %s of pull request %d", conclusion, pull), func() bool {
		p, _ := g.forge.Pull(pull)
		newest := map[string]githubtest.Check{}
		for _, c := range g.forge.Checks(p.Head) {
			newest[c.Name] = c
		}
		together := "success"
		said = ""
		for _, c := range newest {
			if c.Conclusion != "success" {
				together = c.Conclusion
			}
			said += c.Title + "\n" + c.Summary + "\n"
		}
		return labtest.PlanShown(g.forge, pull) && together == conclusion
	}, g.saw)
	return said
}

func (g *governed) approve(pull int, who string) (review int64) {
	g.Helper()
	review, err := g.forge.Review(pull, who, githubtest.Approved)
	require.NoError(g, err)
	return review
}

// mergeAs merges a pull request with a message of one's own, and waits until that
// is decided.
func (g *governed) mergeAs(pull int, method githubtest.Method, who, message string) (commit string) {
	g.Helper()
	g.shown(pull)
	commit, err := g.forge.MergeSaying(pull, method, who, message)
	require.NoError(g, err)
	g.decided()
	return commit
}

func (g *governed) decided() {
	g.Helper()
	await.True(g, "the decision on main", func() bool {
		tree, err := g.status()
		return err == nil && tree.Revision.Commit == g.git.Tip("main")
	}, g.saw)
}

// held are the reasons by file.
func (g *governed) held() map[string]schema.HeldReason {
	g.Helper()
	tree, err := g.status()
	require.NoError(g, err)
	out := map[string]schema.HeldReason{}
	for _, h := range tree.Revision.Held {
		out[h.File] = h.Reason
	}
	return out
}

// audited are the records of a document, oldest first; of an instance of a scheduler those of apps.*, as each
// has one of scheduler.* beside it.
func (g *governed) audited(file string) (out []audit.Record) {
	g.Helper()
	repo, err := gitrepo.OpenLocal(g.git.Dir)
	require.NoError(g, err)
	defer repo.Close()
	for line, err := range repo.Audit(g.Context(), g.git.Tip("berth/status"), statusbranch.LogOrder{}) {
		require.NoError(g, err)
		if line.Value.File == file && !strings.HasPrefix(line.Value.Permission, "scheduler.") {
			out = append(out, line.Value)
		}
	}
	return out
}

// comment waits until Berth's comment contains all the given texts.
func (g *governed) comment(pull int, words ...string) {
	g.Helper()
	said := ""
	await.True(g, fmt.Sprintf("%q in the comment of pull request %d", words, pull), func() bool {
		for _, c := range g.forge.Comments(pull) {
			if strings.HasSuffix(c.Author, "[bot]") {
				said = c.Body
			}
		}
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(said, w) })
	}, g.saw)
}

func trainOf(workers int) map[string]string {
	path, _ := labtest.Train.Path()
	return map[string]string{path: labtest.InstanceYAML(labtest.Train.Name, workers)}
}

// An approval by a user with permission counts at once, for the approved head and
// no later one, with every merge method.
func TestApprovalGivesPermission(t *testing.T) {
	for _, method := range []githubtest.Method{githubtest.Merge, githubtest.Squash, githubtest.Rebase} {
		t.Run(string(method), func(t *testing.T) {
			g := newGoverned(t, nil, nil)
			pull, branch := g.open(viewer, gittest.Commit{Message: "train", Files: trainOf(1)})
			require.Contains(t, g.check(pull, "failure"), "apps.instance.create")
			review := g.approve(pull, projectAdmin)
			g.check(pull, "success")
			require.NoError(t, g.forge.DismissReview(review))
			g.check(pull, "failure")
			g.approve(pull, projectAdmin)
			g.check(pull, "success")
			g.git.MustCommit(t, branch, gittest.Commit{Message: "one more", Files: trainOf(2)})
			require.NoError(t, g.forge.Sync())
			g.check(pull, "failure")
			g.approve(pull, projectAdmin)
			g.check(pull, "success")

			commit := g.mergeAs(pull, method, viewer, "")
			g.until("running", labtest.Train, func(s *plan.Status) bool { return running(s) && countRunning(s) == 3 })
			require.Empty(t, g.held())
			records := g.audited(pathOf(t, labtest.Train))
			require.NotEmpty(t, records)
			for _, r := range records {
				require.Equal(t, viewer, r.Actor)
				require.Equal(t, []string{projectAdmin}, r.Approvers)
				require.Equal(t, "pull_request", r.Proof)
				require.Equal(t, pull, r.PullRequest)
				require.Equal(t, audit.Allowed, r.Verdict)
				require.Equal(t, "project_admin", r.Rule)
			}
			require.Equal(t, "apps.instance.create", records[0].Permission)
			require.Equal(t, commit, records[len(records)-1].Commit)
		})
	}
}

// A merge without permission stays held though it is approved afterwards, and
// comes into force by /berth apply, once the plan was posted: the plan of the pull
// request stays where it is, and each command has one line above it.
func TestApplyOfAMergeWithoutPermission(t *testing.T) {
	g := newGoverned(t, nil, nil)
	for _, who := range []string{projectAdmin, viewer} {
		g.forge.SetPermission(who, "write")
	}
	pull, _ := g.open(projectAdmin, gittest.Commit{Message: "train", Files: trainOf(1)})
	g.check(pull, "success")
	g.mergeAs(pull, githubtest.Merge, projectAdmin, "")
	g.until("running", labtest.Train, running)

	pull, _ = g.open(viewer, gittest.Commit{Message: "one more", Files: trainOf(2)})
	g.check(pull, "failure")
	g.comment(pull, "### Berth plan") // it is published after the check; the test checks its order below
	g.mergeAs(pull, githubtest.Squash, projectAdmin, "")
	merge := g.git.Tip("main")
	apply := "/berth apply " + merge[:10]
	g.comment(pull, "An approval after the merge has no effect", "`"+apply+"`")
	_, err := g.forge.Review(pull, projectAdmin, githubtest.Approved)
	require.NoError(t, err)

	g.say(pull, viewer, apply, "-1")
	g.say(pull, projectAdmin, apply, "-1")
	require.Len(t, g.held(), 1)
	g.comment(pull, "then repeat the command", "### Plan of `"+apply+"`", "✗ `"+apply)
	for _, c := range g.forge.Comments(pull) {
		if c.Author == labtest.App+"[bot]" {
			require.Less(t, strings.Index(c.Body, "✗ `"+apply), strings.Index(c.Body, "### Berth plan"), c.Body)
			require.Less(t, strings.Index(c.Body, "### Berth plan"), strings.Index(c.Body, "### Plan of"))
		}
	}
	posted := time.Now()
	await.True(g, "the next second of the forge, whose timestamps are whole seconds",
		func() bool { return time.Now().Truncate(time.Second).After(posted) }, func() any { return time.Now() })
	g.say(pull, projectAdmin, apply, "rocket")
	g.until("one more", labtest.Train, func(s *plan.Status) bool { return running(s) && countRunning(s) == 3 })
	require.Empty(t, g.held())
	g.comment(pull, "✓ `"+apply+"`: applied by `"+projectAdmin+"`", "1 instance running")
}

// A change that is merged without permission is held, even if the daemon loses its
// state. The pull request names the users to ask, and the API shows the state in
// force. The change comes into force when a user with permission approves it.
func TestMergeWithoutPermissionIsHeld(t *testing.T) {
	g := newGoverned(t, nil, nil)
	path := pathOf(t, labtest.Train)
	pull, _ := g.open(projectAdmin, gittest.Commit{Message: "train", Files: trainOf(1)})
	g.check(pull, "success")
	g.mergeAs(pull, githubtest.Merge, projectAdmin, "")
	g.until("running", labtest.Train, running)

	pull, _ = g.open(viewer, gittest.Commit{Message: "one more", Files: trainOf(2)})
	g.check(pull, "failure")
	g.mergeAs(pull, githubtest.Squash, projectAdmin, "") // the merging user has no proven authorship of the change
	held := map[string]schema.HeldReason{path: schema.HeldUnauthorised}
	require.Equal(t, held, g.held())
	g.comment(pull, "held", "apps.instance.update", projectAdmin)
	r := g.audited(path)[1]
	require.Equal(t, []any{viewer, audit.Denied, pull, "apps.instance.update"}, []any{r.Actor, r.Verdict, r.PullRequest, r.Permission})

	inForce := func() string {
		r, err := http.NewRequest(http.MethodGet, "http://"+g.listen+"/api/v1/projects/physics.lattice/app-instances/train", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+strings.Repeat("petra", 8))
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode, string(text))
		return string(text)
	}
	require.Contains(t, inForce(), `"worker":{"count":1,`)

	g.stop()
	require.NoError(t, os.RemoveAll(filepath.Join(g.dir, "mirror")))
	g.start()
	g.git.MustCommit(t, "main", gittest.Commit{Message: "words", Files: map[string]string{"README.md": "more words\n"}})
	require.NoError(t, g.forge.Sync())
	g.decided()
	require.Equal(t, held, g.held())
	require.Contains(t, inForce(), `"worker":{"count":1,`)

	pull, _ = g.open(projectAdmin,
		gittest.Commit{Message: "we do want it",
			Files: map[string]string{path: labtest.InstanceYAML(labtest.Train.Name, 2) + "# asked for by clara\n"}})
	g.check(pull, "success")
	g.mergeAs(pull, githubtest.Merge, viewer, "")
	g.until("one more", labtest.Train, func(s *plan.Status) bool { return running(s) && countRunning(s) == 3 })
	require.Empty(t, g.held())
	require.Contains(t, inForce(), `"worker":{"count":2,`)
}

func (g *governed) read(path string) string {
	g.Helper()
	text, err := g.git.Read("main", path)
	require.NoError(g, err)
	return text
}

// The author of a change gets break-glass access by a trailer in its last commit. A
// trailer in the message of the merge gives none.
func TestBreakGlassNeedsTheAuthor(t *testing.T) {
	for _, method := range []githubtest.Method{githubtest.Merge, githubtest.Squash} {
		t.Run(string(method), func(t *testing.T) {
			g := newGoverned(t, nil, nil)
			path := pathOf(t, labtest.Train)
			pull, _ := g.open(superadmin, gittest.Commit{Message: "train", Files: trainOf(1)})
			g.check(pull, "failure")
			g.mergeAs(pull, method, projectAdmin, "train\n\nBreak-Glass: it is late")
			require.Equal(t, map[string]schema.HeldReason{path: schema.HeldUnauthorised}, g.held())

			pull, _ = g.open(superadmin, gittest.Commit{Message: "train\n\nBreak-Glass: nobody else is awake", Files: trainOf(2)})
			g.check(pull, "success")
			g.comment(pull, "Break-glass access", superadmin)
			g.mergeAs(pull, method, projectAdmin, "train")
			g.until("running", labtest.Train, running)
			require.Empty(t, g.held())
			records := g.audited(path)
			last := records[len(records)-1]
			require.Equal(t, []any{superadmin, true, audit.Allowed}, []any{last.Actor, last.BreakGlass, last.Verdict})
			require.Contains(t, last.Reason, "nobody else is awake")

			pull, _ = g.open(viewer, gittest.Commit{Message: "train\n\nBreak-Glass: I like to", Files: trainOf(1)})
			g.check(pull, "failure")
		})
	}
}

// The author of a large deletion acknowledges it with a trailer in a later commit.
// The message of a squash merge, a trailer by another user and a trailer for
// another deletion have no effect.
func TestAuthorAcknowledgesDeletion(t *testing.T) {
	more := map[string]string{}
	var gone []string
	for i := range 8 {
		path := fmt.Sprintf("tenants/physics/projects/p%d/project.yaml", i)
		more[path] = fmt.Sprintf("apiVersion: berth/v1\nkind: Project\nmetadata: {name: p%d}\nspec: {display_name: p%d}\n", i, i)
		gone = append(gone, path)
	}
	g := newGoverned(t, nil, more)
	pull, _ := g.open(tenantOwner, gittest.Commit{Message: "tidy up", Remove: gone})
	found := regexp.MustCompile(`Berth-Ack-Delete: ([0-9a-f]+)`).FindStringSubmatch(g.check(pull, "failure"))
	require.NotNil(t, found, "the check shows the trailer to write")
	g.mergeAs(pull, githubtest.Squash, tenantOwner, "tidy up\n\n"+found[0])
	require.Len(t, g.held(), 8)

	ack := func(who, trailer string) {
		pull, _ := g.open(who, gittest.Commit{Message: "meant so\n\n" + trailer,
			Files: map[string]string{"README.md": who + trailer + "\n"}})
		g.mergeAs(pull, githubtest.Merge, projectAdmin, "")
	}
	ack(viewer, found[0])
	require.Len(t, g.held(), 8, "a viewer has no permission to acknowledge it")
	ack(tenantOwner, "Berth-Ack-Delete: "+strings.Repeat("0", len(found[1])))
	require.Len(t, g.held(), 8, "the trailer names another deletion")
	ack(tenantOwner, found[0])
	require.Empty(t, g.held())
	now, err := g.git.Files("berth/in-force")
	require.NoError(t, err)
	for p := range maps.Keys(more) {
		require.NotContains(t, now, p)
	}
}

// Permissions and policy are evaluated from the base. A change cannot grant its own
// author the role that it needs, and a wider policy holds only for later changes.
func TestPermissionsComeFromTheBase(t *testing.T) {
	const policy = "tenants/physics/policy.yaml"
	narrow := "apiVersion: berth/v1\nkind: Policy\nmetadata: {name: policy}\nspec: {max_gpus_per_instance: 2}\n"
	g := newGoverned(t, nil, map[string]string{policy: narrow})
	train := pathOf(t, labtest.Train)
	both := map[string]string{rolesOfTheLab: strings.Replace(g.read(rolesOfTheLab), "role: project_viewer", "role: project_admin", 1)}
	require.NotEqual(t, g.read(rolesOfTheLab), both[rolesOfTheLab])
	maps.Copy(both, trainOf(1))
	pull, _ := g.open(viewer, gittest.Commit{Message: "me too", Files: both})
	g.check(pull, "failure")
	g.mergeAs(pull, githubtest.Merge, viewer, "")
	require.Equal(t, map[string]schema.HeldReason{rolesOfTheLab: schema.HeldUnauthorised, train: schema.HeldUnauthorised}, g.held())
	pull, _ = g.open(viewer, gittest.Commit{Message: "again", Files: trainOf(2)})
	g.check(pull, "failure")

	wide := trainOf(2)
	wide[policy] = strings.Replace(narrow, "max_gpus_per_instance: 2", "max_gpus_per_instance: 4", 1)
	pull, _ = g.open(tenantOwner, gittest.Commit{Message: "larger", Files: wide})
	g.check(pull, "failure")
	g.approve(pull, projectAdmin)
	g.mergeAs(pull, githubtest.Merge, tenantOwner, "")
	held := g.held()
	require.NotContains(t, held, policy)
	require.Equal(t, schema.HeldDenied, held[train])
	pull, _ = g.open(tenantOwner, gittest.Commit{Message: "words", Files: map[string]string{"README.md": "words\n"}})
	require.Contains(t, g.check(pull, "success"), "`physics.lattice/train` was held and comes into force with the next merge")
	g.mergeAs(pull, githubtest.Merge, tenantOwner, "")
	g.until("running, larger", labtest.Train, func(s *plan.Status) bool { return running(s) && countRunning(s) == 3 })
	require.NotContains(t, g.held(), train)
}
