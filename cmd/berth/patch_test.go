package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/localestate"
	"berth/cmd/internal/localplan"
)

// estateRepo is a repository whose main is the estate in dir.
func estateRepo(t *testing.T, dir string) (at string, git func(args ...string) string) {
	t.Helper()
	at = filepath.Join(t.TempDir(), "estate")
	require.NoError(t, os.CopyFS(at, os.DirFS(dir)))
	git = func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = at
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_AUTHOR_NAME=ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=ada", "GIT_COMMITTER_EMAIL=ada@example.org"}
		var problem bytes.Buffer
		cmd.Stderr = &problem
		out, err := cmd.Output()
		require.NoError(t, err, "git %v: %s", args, problem.String())
		return string(out)
	}
	git("init", "-q", "-b", "main")
	git("add", ".")
	git("commit", "-q", "-m", "the estate")
	return at, git
}

var update = flag.Bool("update", false, "write the files that tests compare with")

// exampleChanges are the patches beside the example estates.
func exampleChanges(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, estate := range []string{"lab", "campus"} {
		changes, err := filepath.Glob("../../examples/" + estate + "-changes/*.patch")
		require.NoError(t, err)
		require.NotEmpty(t, changes, estate)
		out = append(out, changes...)
	}
	return out
}

// estateOf is the directory of the estate that an example's patch changes.
func estateOf(patch string) string { return strings.TrimSuffix(filepath.Dir(patch), "-changes") }

// The plan file of each change has its author and its plan: the command, its
// output, and its exit status.
func TestExampleChangesHaveTheirPlans(t *testing.T) {
	loader, err := localestate.NewLoader()
	require.NoError(t, err)
	for _, change := range exampleChanges(t) {
		name := strings.TrimPrefix(change, "../../examples/")
		t.Run(name, func(t *testing.T) {
			beside := strings.TrimSuffix(change, ".patch") + ".txt"
			want, err := os.ReadFile(beside)
			require.NoError(t, err)
			command, _, _ := strings.Cut(string(want), "\n")
			args := strings.Fields(command)
			require.Len(t, args, 7, "$ berth plan --patch FILE --author LOGIN, not %s", command)
			require.Equal(t, []string{"$", "berth", "plan", "--patch", "examples/" + name, "--author"}, args[:6])
			dir, _ := estateRepo(t, estateOf(change))
			r := localplan.Request{Repo: dir, Base: "main", Patch: change, Author: args[6], Today: "2026-11-21"}
			p, err := r.Plan(t.Context(), loader, nil)
			require.NoError(t, err)
			said, err := formOf(p, "text")
			require.NoError(t, err)
			status := 0
			if p.Blocked() {
				status = 1
			}
			// The commit depends on every byte of the estate.
			got := fmt.Sprintf("%s\n%s\nexit status %d\n", command, strings.ReplaceAll(string(said), p.Base[:10], "main"), status)
			if *update {
				require.NoError(t, os.WriteFile(beside, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(want), got, "go test ./cmd/berth -run TestExampleChangesHaveTheirPlans -update rewrites it")
		})
	}
}

// An invalid patch is a usage error. A conflict between a patch and its base is a
// finding of the plan.
func TestPatchExitStatus(t *testing.T) {
	dir, _ := estateRepo(t, "../../examples/lab")
	const header = "diff --git a/platform/nodes/dev-gpu-1.yaml b/platform/nodes/dev-gpu-1.yaml\n--- a/platform/nodes/dev-gpu-1.yaml\n+++ " +
		"b/platform/nodes/dev-gpu-1.yaml\n"
	for text, code := range map[string]int{
		"":                               0,
		"not a patch\n":                  2,
		header + "@@ -1 +1 @@\n-x\n":     2,
		header + "@@ -1 +1 @@\n-x\n+y\n": 1,
	} {
		cmd := exec.Command("berth", "plan", "--repo", dir, "--patch", "-")
		cmd.Stdin = strings.NewReader(text)
		out, _ := cmd.CombinedOutput()
		require.Equal(t, code, cmd.ProcessState.ExitCode(), "%q: %s", text, out)
	}
}
