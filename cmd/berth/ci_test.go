package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// The scripts in deploy/ci work: the tests run them as CI and Git do, on an estate
// with one good and one bad change.

// ciEstate is a repository of examples/lab with the branches main, good and bad.
func ciEstate(t *testing.T) (dir string, git func(args ...string) string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "estate")
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(moduleRoot, "examples/lab"))))
	git = func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(ciRun(t, dir, nil, 0, "git", args...))
	}
	patches, err := filepath.Abs(filepath.Join(moduleRoot, "examples/lab-changes"))
	require.NoError(t, err)
	git("init", "-q", "-b", "main")
	git("add", ".")
	git("commit", "-q", "-m", "the lab")
	for branch, patch := range map[string]string{"good": "add.patch", "bad": "add-with-mistakes.patch"} {
		git("checkout", "-q", "-b", branch, "main")
		git("apply", "--index", filepath.Join(patches, patch))
		git("commit", "-q", "-m", branch)
	}
	return dir, git
}

// ciRun runs a program and returns what it prints; its exit status is code.
func ciRun(t *testing.T, dir string, env []string, code int, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=ada", "GIT_COMMITTER_EMAIL=ada@example.org"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, string(out))
	}
	require.Equal(t, code, cmd.ProcessState.ExitCode(), "%s %v\n%s", name, args, out)
	return string(out)
}

func ciFile(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot, "deploy/ci", name))
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(text, into, yaml.DisallowUnknownFields))
}

// workflow is as much of a GitHub Actions workflow as the tests need.
type workflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		Steps []struct {
			Name, Uses, Run string
			With            map[string]any
		}
	}
}

func readWorkflow(t *testing.T, name, job string) (w workflow, scripts map[string]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot, "deploy/ci", name))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &w))
	scripts = map[string]string{}
	for _, s := range w.Jobs[job].Steps {
		if s.Run != "" {
			require.NotContains(t, s.Run, "${{", "untrusted names must reach a script in its environment, never in its text")
			scripts[s.Name] = s.Run
		}
	}
	return w, scripts
}

func TestGitHubWorkflow(t *testing.T) {
	w, scripts := readWorkflow(t, "github/berth.yml", "check")
	require.Equal(t, map[string]string{"contents": "read"}, w.Permissions, "a fork's pull request runs it")
	for _, s := range w.Jobs["check"].Steps {
		if strings.HasPrefix(s.Uses, "actions/checkout@") {
			require.Equal(t, false, s.With["persist-credentials"], "%s leaves its token to what comes after", s.Name)
		}
	}
	dir, git := ciEstate(t)
	git("update-ref", "refs/remotes/origin/main", "main")
	run := func(branch, step string, code int) (out, summary, kept string) {
		git("checkout", "-q", branch)
		tmp := t.TempDir()
		env := []string{"RUNNER_TEMP=" + tmp, "GITHUB_STEP_SUMMARY=" + tmp + "/summary", "NUMBER=7",
			"BASE_REF=main", "HEAD=" + git("rev-parse", branch)}
		out = ciRun(t, dir, env, code, "bash", "-e", "-c", scripts[step])
		s, _ := os.ReadFile(filepath.Join(tmp, "summary"))
		k, _ := os.ReadFile(filepath.Join(tmp, "plan", "plan.txt"))
		return out, string(s), string(k)
	}
	run("good", "Validate", 0)
	out, _, _ := run("bad", "Validate", 1)
	require.Contains(t, out, "::error file=tenants/physics/projects/lattice/instances/sweep.yaml,line=9,", "it shows beside the line")
	_, summary, kept := run("good", "Plan", 0)
	require.Contains(t, summary, "`physics.lattice/sweep`")
	require.Contains(t, kept, "+ physics.lattice/sweep  (create)")
	_, summary, _ = run("bad", "Plan", 1)
	require.Contains(t, summary, "sweep.yaml:9:18`: spec.desired\\_state: got \"runing\"")
}

// The run that posts the comment has a token, and the posted text is hostile.
func TestGitHubCommentWorkflow(t *testing.T) {
	w, scripts := readWorkflow(t, "github/berth-comment.yml", "comment")
	require.Equal(t, map[string]string{"actions": "read", "pull-requests": "write"}, w.Permissions)
	require.Len(t, w.Jobs["comment"].Steps, 1, "nothing of the pull request is checked out")
	head := strings.Repeat("a", 40)
	type said struct{ text, head, comments string }
	post := func(s said) string {
		t.Helper()
		dir := t.TempDir()
		fake := `#!/bin/bash
# Stands for GitHub's own program: answers what the script asks, and notes what it writes.
case "$*" in
  "run download"*) printf '7\n' > number; printf '%s' "$TEXT" > plan.txt;;
  *pulls/7*) echo "$AT";;
  *"--paginate"*) printf '%s' "$COMMENTS";;
  *"--method"*) echo "$*" > "$WROTE"; for a; do case $a in body=@*) cat "${a#body=@}" >> "$WROTE";; esac; done;;
  *) echo "unexpected: $*" >&2; exit 3;;
esac
`
		require.NoError(t, os.WriteFile(filepath.Join(dir, "gh"), []byte(fake), 0o755))
		ciRun(t, dir, []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "RUN=1", "HEAD=" + head, "GH_REPO=o/r", "WROTE=" + dir + "/wrote",
			"TEXT=" + s.text, "AT=" + s.head, "COMMENTS=" + s.comments}, 0, "bash", "-e", "-c", scripts["Comment"])
		wrote, _ := os.ReadFile(filepath.Join(dir, "wrote"))
		return string(wrote)
	}
	first := post(said{text: "+ physics.lattice/sweep  (create)\n", head: head})
	require.Contains(t, first, "--method POST repos/o/r/issues/7/comments")
	require.Contains(t, first, "````````text\n+ physics.lattice/sweep  (create)\n")
	require.Contains(t, post(said{text: "x", head: head, comments: "31\n44\n"}), "--method PATCH repos/o/r/issues/comments/31 ")
	require.Empty(t, post(said{text: "x", head: strings.Repeat("b", 40)}), "the pull request moved on, or is another")
	hostile := post(said{text: "````````\n@everyone [click](https://example.org)\n<!-- berth:plan:v1 -->", head: head})
	require.Equal(t, 2, strings.Count(hostile, "````````"), "what it posts opens and closes no fence:\n%s", hostile)
	require.Less(t, len(post(said{text: strings.Repeat("ä", 50_000), head: head})), 61_000)
}

func TestGitLabJob(t *testing.T) {
	var file map[string]struct {
		Script []string
	}
	text, err := os.ReadFile(filepath.Join(moduleRoot, "deploy/ci/gitlab/berth.gitlab-ci.yml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &file))
	script := strings.Join(file["berth"].Script, "\n")
	dir, git := ciEstate(t)
	git("update-ref", "refs/remotes/origin/main", "main")
	for branch, code := range map[string]int{"good": 0, "bad": 1} {
		git("checkout", "-q", branch)
		out := ciRun(t, dir, []string{"CI_MERGE_REQUEST_TARGET_BRANCH_NAME=main", "CI_COMMIT_SHA=" + git("rev-parse", branch)}, code,
			"bash", "-e", "-c", script)
		require.Contains(t, out, "sweep")
		junit, err := os.ReadFile(filepath.Join(dir, "berth-validate.xml"))
		require.NoError(t, err)
		require.Equal(t, code == 1, strings.Contains(string(junit), "<failure"), string(junit))
		page, err := os.ReadFile(filepath.Join(dir, "berth-plan.md"))
		require.NoError(t, err)
		require.Contains(t, string(page), "sweep")
	}
}

// The hook checks the staged content, not the work tree.
func TestPreCommitHook(t *testing.T) {
	dir, git := ciEstate(t)
	hook, err := os.ReadFile(filepath.Join(moduleRoot, "deploy/ci/git/pre-commit"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".git/hooks/pre-commit"), hook, 0o755))
	git("checkout", "-q", "good")
	path := "tenants/physics/projects/lattice/instances/sweep.yaml"
	right, err := os.ReadFile(filepath.Join(dir, path))
	require.NoError(t, err)
	write := func(text string) { require.NoError(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644)) }
	wrong := strings.Replace(string(right), "spec:", "spec:\n  colour: red", 1)

	write(wrong)
	git("add", path)
	write(string(right))
	out := ciRun(t, dir, nil, 1, "git", "commit", "-q", "-m", "wrong in the index")
	require.Contains(t, out, path+":")
	require.Contains(t, out, "colour")

	write(strings.Replace(string(right), "spec:", "spec:  # a comment", 1))
	git("add", path)
	write(wrong)
	git("commit", "-q", "-m", "right in the index")
	git("checkout", "-q", path)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "NOTES.md"), []byte("none of Berth's\n"), 0o644))
	git("add", "NOTES.md")
	bare := []string{"PATH=/usr/bin:/bin"} // no berth there
	ciRun(t, dir, bare, 0, "git", "commit", "-q", "-m", "nothing of the estate")
	write(string(right))
	git("add", path)
	require.Contains(t, ciRun(t, dir, bare, 1, "git", "commit", "-q", "-m", "who would check it?"), "berth is not on PATH")
}

// The framework runs the same hook, also for a commit that only deletes.
func TestPreCommitFramework(t *testing.T) {
	var file struct {
		Repos []struct {
			Repo  string `json:"repo"`
			Hooks []struct {
				ID       string `json:"id"`
				Name     string `json:"name"`
				Entry    string `json:"entry"`
				Language string `json:"language"`
				Pass     bool   `json:"pass_filenames"`
				Always   bool   `json:"always_run"`
			} `json:"hooks"`
		} `json:"repos"`
	}
	ciFile(t, "git/pre-commit-config.yaml", &file)
	hook := file.Repos[0].Hooks[0]
	require.True(t, hook.Always)
	require.False(t, hook.Pass)
	dir, git := ciEstate(t)
	script, err := os.ReadFile(filepath.Join(moduleRoot, "deploy/ci/git/pre-commit"))
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "scripts"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.FromSlash(hook.Entry)), script, 0o755))
	git("checkout", "-q", "good")
	ciRun(t, dir, nil, 0, "./"+hook.Entry)
	git("rm", "-q", "tenants/physics/projects/lattice/entitlements/slurm.yaml")
	require.Contains(t, ciRun(t, dir, nil, 1, "./"+hook.Entry), "entitlement")
}
