package gitrepo_test

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
)

// workTree creates a Git repository with a work tree in dir.
func workTree(t *testing.T, dir string) (git func(args ...string) string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	git = func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=Ada", "-c", "user.email=ada@example.org"}, args...)...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "git %q: %s", args, out)
		return string(out)
	}
	git("init", "-q", "-b", "main")
	return git
}

func openLocal(t *testing.T, dir string) *gitrepo.Repo {
	t.Helper()
	r, err := gitrepo.Open(t.Context(),
		gitrepo.Options{URL: (&url.URL{Scheme: "file", Path: dir}).String(), Dir: t.TempDir(), Timeout: await.Limit})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func TestLocalRepositoryKeepsItsWorkTree(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "an estate, 100%")
	git := workTree(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "README.md"), []byte("estate\n"), 0o600))
	git("add", ".")
	git("commit", "-q", "-m", "estate")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "README.md"), []byte("being edited\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "staged"), nil, 0o600))
	git("add", "staged")
	head, before := git("rev-parse", "HEAD"), git("status", "--porcelain=v2", "--branch")

	r, rival := openLocal(t, dir), openLocal(t, dir)
	main := fetch(t, r).Main
	require.Equal(t, head, main+"\n")
	require.Equal(t, map[string]string{"README.md": "estate\n"}, contents(t, r, main))
	inForce, err := r.WriteInForce(t.Context(), "", reconciler.InForce{Commit: main, CorrelationID: "c", Epoch: 1})
	require.NoError(t, err)
	one, err := r.WriteStatus(t.Context(), "", batch(1, main, unit("physics", "lhc", "train", plan.PhaseRunning)))
	require.NoError(t, err)
	require.Equal(t, reconciler.Tips{Main: main, InForce: inForce, Status: one}, fetch(t, rival))
	_, err = rival.WriteStatus(t.Context(), one, batch(2, main, unit("physics", "lhc", "train", plan.PhaseFailed)))
	require.NoError(t, err)
	_, err = r.WriteStatus(t.Context(), one, batch(2, main, unit("physics", "lhc", "train", plan.PhaseStopped)))
	require.ErrorIs(t, err, reconciler.ErrConflict)

	require.Equal(t, before, git("status", "--porcelain=v2", "--branch"), "work tree, index and checked-out branch are unchanged")
	git("fsck", "--strict")
}

func TestLocalRepositoryErrorsNameTheNextStep(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "estate")
	r := openLocal(t, dir)
	var operator *reconciler.OperatorError
	fails := func(want ...string) {
		t.Helper()
		_, err := r.Fetch(t.Context())
		require.ErrorAs(t, err, &operator)
		for _, w := range want {
			require.ErrorContains(t, err, w)
		}
	}
	fails("no such directory")
	require.NoError(t, os.Mkdir(dir, 0o755))
	fails("is not a Git repository", "git init -b main")

	git := workTree(t, dir)
	fails(`no branch "main"`, "git commit")
	git("checkout", "-q", "-b", "master")
	git("commit", "-q", "--allow-empty", "-m", "estate")
	fails(`no branch "main"`, "master", "git branch -m master main")
	git("branch", "-m", "master", "main")
	main := fetch(t, r).Main

	// Git refuses to move a checked-out branch.
	status, err := r.WriteStatus(t.Context(), "", batch(1, main))
	require.NoError(t, err)
	git("checkout", "-q", "berth/status")
	_, err = r.WriteStatus(t.Context(), status, batch(2, main))
	require.ErrorAs(t, err, &operator)
	require.ErrorContains(t, err, "berth/status is checked out")
	require.ErrorContains(t, err, "worktree list")
}

func TestRefusedCredentialErrorNamesSource(t *testing.T) {
	t.Parallel()
	s, err := gittest.Start(gittest.Options{Dir: t.TempDir(), Token: "canary-right", Files: estateFiles()})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	for _, c := range []struct {
		auth gitrepo.AuthFunc
		want string
	}{
		{func(context.Context) (gitrepo.Credentials, error) {
			return gitrepo.Credentials{Token: "canary-wrong", Source: "repository.token from /etc/berth/token"}, nil
		}, "refused the credential repository.token from /etc/berth/token"},
		{nil, "asks for a credential"},
		{func(context.Context) (gitrepo.Credentials, error) { return gitrepo.Credentials{}, os.ErrNotExist }, "file does not exist"},
	} {
		r := open(t, s, func(o *gitrepo.Options) { o.Auth = c.auth })
		_, err = r.Fetch(t.Context())
		var operator *reconciler.OperatorError
		require.ErrorAs(t, err, &operator)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "canary")
	}
}
