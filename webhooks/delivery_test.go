package webhooks_test

import (
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"berth/webhooks"
	"berth/webhooks/github"
	"berth/webhooks/github/githubtest"
)

// The test server sends the deliveries of a pull request's whole life, and checks
// their bodies against GitHub's description.
func TestPullRequestLifeAsEvents(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "estate.git")
	git := func(stdin string, args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Stdin = strings.NewReader(stdin)
		cmd.Env = append(os.Environ(), "GIT_DIR="+dir, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.TrimSpace(string(out))
	}
	commit := func(branch, content string, parents ...string) string {
		tree := git("100644 blob "+git(content, "hash-object", "-w", "--stdin")+"\ta.yaml\n", "mktree")
		args := []string{"commit-tree", tree, "-m", content}
		for _, p := range parents {
			args = append(args, "-p", p)
		}
		c := git("", args...)
		git("", "update-ref", "refs/heads/"+branch, c)
		return c
	}
	git("", "init", "-q", "--bare", "-b", "main", dir)
	main := commit("main", "one")

	var mu sync.Mutex
	var got []webhooks.Event
	h, err := webhooks.Handler(webhooks.Options{
		Format: github.Webhook(),
		Log:    slog.New(slog.DiscardHandler),
		Receivers: []webhooks.Receiver{{Secrets: staticSecrets([]byte("s")), Take: func(d webhooks.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, d.Events...)
			return nil
		}}},
	})
	require.NoError(t, err)
	receiver := httptest.NewServer(h)
	defer receiver.Close()
	srv, err := githubtest.New(githubtest.Options{
		RepoDir: dir, Owner: "lab", Repo: "estate", Secret: []byte("s"), WebhookURL: receiver.URL, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	defer srv.Close()

	srv.Ping()
	head := commit("workers", "two", main)
	n, err := srv.OpenPull("workers", "Two workers", "ana")
	require.NoError(t, err)
	commit("workers", "three", head)
	commit("berth/status", "status") // Berth's own
	require.NoError(t, srv.Sync())
	review, err := srv.Review(n, "olga", githubtest.Approved)
	require.NoError(t, err)
	require.NoError(t, srv.DismissReview(review))
	_, err = srv.Merge(n, githubtest.Squash, "ana")
	require.NoError(t, err)
	srv.Settle()

	pull := webhooks.Event{Kind: webhooks.PullRequest, Repo: "lab/estate", Number: n}
	push := func(branch string) webhooks.Event {
		return webhooks.Event{Kind: webhooks.Push, Repo: "lab/estate", Ref: "refs/heads/" + branch}
	}
	mu.Lock()
	defer mu.Unlock()
	require.Empty(t, cmp.Diff([]webhooks.Event{push("workers"), pull, push("workers"), pull, pull, pull, push("main"), pull}, got))
	for _, d := range srv.Deliveries() {
		require.Equal(t, 202, d.Status)
	}
	require.Empty(t, srv.Violations())
}
