package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/cmd/internal/localestate"
	"berth/cmd/internal/localplan"
	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/runtimes/backends"
	"berth/schema"
)

// decidedEstate is the lab with a held change of an instance. Berth decided each
// commit. The last commit changes nothing in force, so only berth/status records it.
type decidedEstate struct {
	git                  *gittest.Server
	first, second, third string // commits of main, each decided
	inForce              string
	topic                string // adds another instance
}

const decidedPath = "tenants/physics/projects/lattice/instances/train.yaml"

func newDecidedEstate(t *testing.T) (e decidedEstate) {
	t.Helper()
	files := map[string]string{}
	lab := os.DirFS(filepath.Join(moduleRoot, "examples/lab"))
	require.NoError(t, fs.WalkDir(lab, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(lab, path)
		files[path] = string(text)
		return err
	}))
	train := func(count string) map[string]string {
		return map[string]string{decidedPath: strings.Replace(files[decidedPath], "count: 1", "count: "+count, 1)}
	}
	e.git = gittest.New(t, files)
	daemon, err := gitrepo.Open(t.Context(), gitrepo.Options{URL: e.git.URL, Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, daemon.Close()) })
	status := ""
	decide := func(w reconciler.InForce) string {
		tips, err := daemon.Fetch(t.Context())
		require.NoError(t, err)
		w.Commit, w.Epoch = tips.Main, 1
		e.inForce, err = daemon.WriteInForce(t.Context(), tips.InForce, w)
		require.NoError(t, err)
		status, err = daemon.WriteStatus(t.Context(), status,
			reconciler.StatusBatch{Revision: reconciler.Revision{Commit: tips.Main, InForce: e.inForce, Epoch: 1}})
		require.NoError(t, err)
		return tips.Main
	}
	e.first = decide(reconciler.InForce{})
	e.git.MustCommit(t, "main", gittest.Commit{Message: "two workers", Files: train("2")})
	waits := reconciler.InForce{
		Replace: map[string]string{decidedPath: e.blob(t, e.first)}, Permitted: map[string]string{decidedPath: e.blob(t, "main")},
		Held: []schema.Held{{File: decidedPath, Reason: schema.HeldNeeds, Message: "it waits"}},
	}
	e.second = decide(waits)
	was := e.inForce
	e.git.MustCommit(t, "main", gittest.Commit{Message: "nothing"})
	e.third = decide(waits)
	require.Equal(t, was, e.inForce, "a commit without a change writes nothing to berth/in-force")
	e.topic = e.git.MustCommit(t, "topic", gittest.Commit{Message: "another", Parent: e.first, Files: map[string]string{
		strings.Replace(decidedPath, "train", "yard", 1): strings.Replace(files[decidedPath], "name: train", "name: yard", 1),
	}})
	return e
}

func (e *decidedEstate) blob(t *testing.T, commit string) string {
	t.Helper()
	id, err := e.git.Git("rev-parse", commit+":"+decidedPath)
	require.NoError(t, err)
	return id
}

// desk clones the repository, and returns it with a function that runs git in it.
func (e *decidedEstate) desk(t *testing.T) (dir string, git func(args ...string) string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "desk")
	_, err := e.git.Git("clone", "-q", e.git.Dir, dir)
	require.NoError(t, err)
	git = func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(ciRun(t, dir, nil, 0, "git", args...))
	}
	git("checkout", "-q", "--detach", "origin/topic")
	return dir, git
}

// A plan in a local checkout equals the daemon's plan if the checkout has the commit
// that Berth decided, under any ref name.
func TestLocalPlanIsTheDaemonsPlan(t *testing.T) {
	e := newDecidedEstate(t)
	loader, err := localestate.NewLoader()
	require.NoError(t, err)
	repo, err := gitrepo.OpenLocal(e.git.Dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, repo.Close()) })
	// As the daemon asks, and as it would with all of the base in force.
	decider := decide.New(decide.Options{Loader: loader, Rules: []decide.Rule{decide.Undated(schema.Lifecycle)}})
	digest := func(base, inForce string, permitted map[string]string) string {
		t.Helper()
		p, err := decider.Proposal(t.Context(), decide.Input{
			Repo: repo, Base: base, Head: e.topic, InForce: inForce, Permitted: permitted, Memory: &plan.Memory{}, Rules: backends.Rules,
			Today: "2026-11-21",
		})
		require.NoError(t, err)
		require.NotEmpty(t, p.Plans)
		return p.Digest
	}
	berths := digest(e.third, e.inForce, map[string]string{decidedPath: e.blob(t, e.third)})
	require.NotEqual(t, digest(e.third, "", nil), berths)

	dir, git := e.desk(t)
	planned := func(base string) plan.Proposal {
		t.Helper()
		r := localplan.Request{Repo: dir, Base: base, Head: e.topic, Today: "2026-11-21"}
		p, err := r.Plan(t.Context(), loader, nil)
		require.NoError(t, err)
		return p
	}
	same := func(what, base string) {
		t.Helper()
		p := planned(base)
		require.Empty(t, p.Note, what)
		require.False(t, p.Assumed, what)
		require.Equal(t, berths, p.Digest, what)
	}
	other := func(what, base, note string) {
		t.Helper()
		p := planned(base)
		require.Contains(t, p.Note, note, what)
		require.Equal(t, digest(p.Base, "", nil), p.Digest, what)
		for _, form := range planForms() {
			text, err := formOf(p, form)
			require.NoError(t, err)
			require.Contains(t, string(text), p.Note, "%s, as %s", what, form)
		}
	}
	same("main", "main")
	same("a commit whose decision changed nothing", e.second)
	git("update-ref", "refs/heads/main", e.first)
	same("origin's main, with an older one here", "origin/main")
	same("a commit", e.third[:12])
	other("an older main", "main", "give --base "+e.third[:10])
	git("update-ref", "refs/heads/berth/in-force", e.inForce+"~1")
	git("update-ref", "refs/heads/berth/status", "origin/berth/status~1")
	same("older branches of Berth's own here", "origin/main")
	git("update-ref", "refs/heads/trunk", e.third)
	git("update-ref", "-d", "refs/heads/main")
	git("update-ref", "-d", "refs/remotes/origin/main")
	git("update-ref", "-d", "refs/heads/berth/in-force")
	git("update-ref", "-d", "refs/heads/berth/status")
	same("a branch that is not called main", "trunk")
	git("update-ref", "refs/heads/berth/in-force", e.inForce)
	git("update-ref", "refs/remotes/origin/berth/in-force", e.inForce+"~1")
	same("an origin that is behind", e.second)
	git("update-ref", "-d", "refs/heads/berth/in-force")
	newer := e.git.MustCommit(t, "main", gittest.Commit{Message: "not decided yet"})
	git("fetch", "-q")
	other("a main that is newer", newer, "fetch again, or give --base "+e.third[:10])

	git("update-ref", "-d", "refs/remotes/origin/berth/in-force")
	other("no berth/in-force here", "trunk", "Branch berth/in-force is missing beside berth/status")
	git("update-ref", "-d", "refs/remotes/origin/berth/status")
	p := planned("trunk")
	require.Empty(t, p.Note, "Berth does not manage this repository")
	require.True(t, p.Assumed)
}

// CI plans against the fetched tip of the base branch, not against the base of the
// push: only the tip has a known state in force.
func TestPlanInCIIsAgainstTheTip(t *testing.T) {
	e := newDecidedEstate(t)
	dir, git := e.desk(t)
	git("update-ref", "-d", "refs/heads/main") // neither has a branch of its own
	of := func(out string) string {
		t.Helper()
		require.NotContains(t, out, "Berth may plan differently")
		_, digest, ok := strings.Cut(out, "\nplan ")
		require.True(t, ok, out)
		return strings.Fields(digest)[0]
	}
	plan := func(base string) string {
		return ciRun(t, dir, nil, 0, "berth", "plan", "--base", base, "--head", e.topic)
	}
	want := of(plan(e.third))
	require.Contains(t, plan(e.first), "Berth may plan differently")

	w, scripts := readWorkflow(t, "github/berth.yml", "check")
	require.EqualValues(t, 0, w.Jobs["check"].Steps[0].With["fetch-depth"], "all branches are fetched, berth/* too")
	for _, ref := range []string{"main", "refs/heads/main"} { // of a pull request, and of a merge queue
		tmp := t.TempDir()
		ciRun(t, dir, []string{"RUNNER_TEMP=" + tmp, "GITHUB_STEP_SUMMARY=" + tmp + "/summary", "NUMBER=7", "BASE_REF=" + ref,
			"HEAD=" + e.topic},
			0, "bash", "-e", "-c", scripts["Plan"])
		kept, err := os.ReadFile(filepath.Join(tmp, "plan", "plan.txt"))
		require.NoError(t, err)
		require.Equal(t, want, of(string(kept)))
	}

	var file map[string]struct {
		Before []string `json:"before_script"`
		Script []string
	}
	text, err := os.ReadFile(filepath.Join(moduleRoot, "deploy/ci/gitlab/berth.gitlab-ci.yml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, branch := range []string{"main", "berth/in-force", "berth/status"} {
		git("update-ref", "-d", "refs/remotes/origin/"+branch)
	}
	ciRun(t, dir, nil, 0, "bash", "-e", "-c", file["berth"].Before[len(file["berth"].Before)-1])
	out := ciRun(t, dir, []string{"CI_MERGE_REQUEST_TARGET_BRANCH_NAME=main", "CI_COMMIT_SHA=" + e.topic}, 0, "bash", "-e", "-c",
		strings.Join(file["berth"].Script, "\n"))
	require.Equal(t, want, of(out))
}
