package gittest_test

import (
	"context"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"berth/reconciler/gitrepo/gittest"

	"berth/examples/await"
	"github.com/stretchr/testify/require"
)

func git(t *testing.T, args ...string) (string, error) {
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Env = append(cmd.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestServerServesCommits(t *testing.T) {
	s := gittest.New(t, map[string]string{"a/b.yaml": "one\n", "odd\n\"name": "two"})
	files, err := s.Files("main")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a/b.yaml": "one\n", "odd\n\"name": "two"}, files)

	clone := filepath.Join(t.TempDir(), "clone")
	out, err := git(t, "clone", "-q", s.URL, clone)
	require.NoError(t, err, out)
	require.FileExists(t, filepath.Join(clone, "a", "b.yaml"))

	s.MustCommit(t, "topic", gittest.Commit{Message: "Topic", Files: map[string]string{"c": "three"}, Remove: []string{"a"}})
	s.MustCommit(t, "main", gittest.Commit{Message: "Meanwhile", Files: map[string]string{"d": "four"}})
	require.NoError(t, s.SetPull(7, s.Tip("topic")))
	merged, err := s.Merge("main", s.Tip("topic"), "Merge #7")
	require.NoError(t, err)
	require.Equal(t, merged, s.Tip("main"))
	files, err = s.Files(merged)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"c": "three", "d": "four", "odd\n\"name": "two"}, files)
	require.Equal(t, s.Tip("topic"), s.Ref("refs/pull/7/head"))
	require.Empty(t, s.Tip("nowhere"))
	require.NoError(t, s.Fsck())
}

func TestPushTakesEffectWithLostResponse(t *testing.T) {
	s := gittest.New(t, map[string]string{"a": "1"})
	clone := filepath.Join(t.TempDir(), "clone")
	out, err := git(t, "clone", "-q", s.URL, clone)
	require.NoError(t, err, out)
	out, err = git(t, "-C", clone, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty", "-m", "x")
	require.NoError(t, err, out)
	s.ResetRequests()
	before := s.Tip("main")

	s.SetFaults(gittest.Faults{DropReplies: 1})
	out, err = git(t, "-C", clone, "push", "-q", "origin", "HEAD:main")
	require.Error(t, err, "the response should be lost: %s", out)
	require.NotEqual(t, before, s.Tip("main"), "the push itself should have happened")
	require.Positive(t, s.Requests()["POST git-receive-pack"]) // git retries after a lost connection
}

func TestFaults(t *testing.T) {
	s, err := gittest.Start(gittest.Options{Dir: t.TempDir(), Token: "secret", Files: map[string]string{"a": "1"}})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	limit := await.Limit
	get := func(password string) (int, error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit) // the moment at which a caller gives up on a server that hangs
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/info/refs?service=git-upload-pack", nil)
		require.NoError(t, err)
		r.SetBasicAuth("x", password)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err
		}
		return res.StatusCode, res.Body.Close()
	}
	code, err := get("wrong")
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, code)
	code, err = get("secret")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code)

	s.SetFaults(gittest.Faults{Unauthorized: true})
	code, err = get("secret")
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, code)

	s.SetFaults(gittest.Faults{Down: true})
	_, err = get("secret")
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)

	s.SetFaults(gittest.Faults{Hang: true})
	limit = 50 * time.Millisecond
	_, err = get("secret")
	require.ErrorIs(t, err, context.DeadlineExceeded)

	limit = await.Limit
	s.SetFaults(gittest.Faults{})
	code, err = get("secret")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code)
}

// Tests need trees that no Git client would push.
func TestRawTrees(t *testing.T) {
	s := gittest.New(t, map[string]string{"a/b": "1", "c": "2"})
	entries, err := s.Tree("main")
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.Equal(t, "40000", entries[0].Mode)
	same, err := s.WriteTree(entries...)
	require.NoError(t, err)
	main, err := s.Git("rev-parse", "main^{tree}")
	require.NoError(t, err)
	require.Equal(t, main, same)
	odd, err := s.WriteTree(entries[1], entries[0], entries[1])
	require.NoError(t, err)
	id, err := s.CommitTree("main", "odd", odd)
	require.NoError(t, err)
	require.Equal(t, id, s.Tip("main"))
	require.Error(t, s.Fsck())
}
