package github_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/webhooks/github"
	"berth/webhooks/github/githubtest"
)

const (
	base        = "/repos/{owner}/{repo}"
	opPull      = "GET " + base + "/pulls/{pull_number}"
	opPulls     = "GET " + base + "/pulls"
	opNewCheck  = "POST " + base + "/check-runs"
	opCheck     = "PATCH " + base + "/check-runs/{check_run_id}"
	opChecks    = "GET " + base + "/commits/{ref}/check-runs"
	opSay       = "POST " + base + "/issues/{issue_number}/comments"
	opEdit      = "PATCH " + base + "/issues/comments/{comment_id}"
	opNewStatus = "POST " + base + "/statuses/{sha}"
)

// appToken must never appear in logs, errors or requests to other hosts.
const appToken = "ghs_canary_9f8e7d6c5b4a"

// clock is shared by test, forge and server. Sleep advances it.
type clock struct {
	mu    sync.Mutex
	t     time.Time
	slept time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t, c.slept = c.t.Add(d), c.slept+d
	return ctx.Err()
}

// bed is a forge with a repository behind it.
type bed struct {
	t    *testing.T
	srv  *githubtest.Server
	dir  string
	time *clock
	log  *bytes.Buffer
}

func newBed(t *testing.T, change func(*githubtest.Options)) *bed {
	t.Helper()
	b := &bed{
		t: t, dir: filepath.Join(t.TempDir(), "estate.git"), log: &bytes.Buffer{},
		time: &clock{t: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)},
	}
	b.git("", "init", "-q", "--bare", "-b", "main", b.dir)
	b.commit("main", "", "README.md", "estate\n")
	o := githubtest.Options{
		RepoDir: b.dir, Owner: "lab", Repo: "estate", Now: b.time.now, Log: slog.New(slog.DiscardHandler),
		Tokens: map[string]githubtest.Token{appToken: {Login: "berth", App: true}, "pat": {Login: "ana"}},
	}
	if change != nil {
		change(&o)
	}
	var err error
	b.srv, err = githubtest.New(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		b.srv.Close()
		require.Empty(t, b.srv.Violations())
		require.Empty(t, b.srv.Unused())
		require.NotContains(t, b.log.String(), appToken, "the log holds the token")
	})
	return b
}

func (b *bed) git(stdin string, args ...string) string {
	b.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GIT_DIR="+b.dir, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=ana", "GIT_AUTHOR_EMAIL=ana@example.com", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=ana", "GIT_COMMITTER_EMAIL=ana@example.com", "GIT_COMMITTER_DATE=1700000000 +0000")
	out, err := cmd.CombinedOutput()
	require.NoError(b.t, err, "git %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

// commit adds a commit with one file to a branch, without the server. Equal arguments
// give equal commits.
func (b *bed) commit(branch, parent, file, content string) string {
	b.t.Helper()
	blob := b.git(content, "hash-object", "-w", "--stdin")
	tree := b.git("100644 blob "+blob+"\t"+file+"\n", "mktree")
	args := []string{"commit-tree", tree, "-m", branch}
	if parent != "" {
		args = append(args, "-p", parent)
	}
	c := b.git("", args...)
	b.git("", "update-ref", "refs/heads/"+branch, c)
	return c
}

// pull opens a pull request with one commit.
func (b *bed) pull(branch string) reconciler.PullRequest {
	b.t.Helper()
	head := b.commit(branch, b.git("", "rev-parse", "main"), branch+".yaml", branch)
	n, err := b.srv.OpenPull(branch, "Change "+branch, "ana")
	require.NoError(b.t, err)
	return reconciler.PullRequest{Number: n, Title: "Change " + branch, Author: "ana", Head: head, BaseBranch: "main", Open: true}
}

// forge makes a new Forge, as after a restart.
func (b *bed) forge(change func(*github.Options)) *github.Forge {
	b.t.Helper()
	o := github.Options{
		BaseURL: b.srv.APIURL(), Owner: "lab", Repo: "estate", Token: staticToken(appToken), Login: "berth[bot]",
		Clock: github.Clock{Now: b.time.now, Sleep: b.time.sleep},
		Log:   slog.New(slog.NewTextHandler(&lockedWriter{w: b.log}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&o)
	}
	f, err := github.New(o)
	require.NoError(b.t, err)
	return f
}

type lockedWriter struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// verdict makes a check with a number of findings.
func verdict(key string, findings int) plan.Check {
	c := plan.Check{Name: plan.CheckPlan, Key: key, Conclusion: plan.Success, Title: "fine", Summary: "summary"}
	for i := range findings {
		c.Conclusion, c.Title = plan.Failure, "blocked"
		c.Notes = append(c.Notes, schema.Diagnostic{
			Severity: schema.SeverityError, Code: "field-unknown", Message: fmt.Sprintf("finding %d", i),
			File: "tenants/physics/tenant.yaml", Line: i + 1, Column: 3,
		})
	}
	return c
}

// show reports a check and then a comment, in the loop's order.
func show(f *github.Forge, pr reconciler.PullRequest, c plan.Check) error {
	c.Pull = pr.Number
	if err := f.Report(bg(), pr.Head, c); err != nil {
		return err
	}
	return f.Comment(bg(), pr.Number, reconciler.Comment{Plan: text("### Plan " + c.Key)})
}

func text(s string) *string { return &s }

// writes lists the operations of write requests.
func (b *bed) writes() []string {
	var out []string
	for _, r := range b.srv.Requests() {
		if r.Write() {
			out = append(out, r.Op)
		}
	}
	return out
}

// at is the server's state of a pull request.
func (b *bed) at(number int) reconciler.PullRequest {
	p, ok := b.srv.Pull(number)
	require.True(b.t, ok)
	return reconciler.PullRequest{Number: p.Number, Title: p.Title, Author: p.Author, Head: p.Head, BaseBranch: "main", Open: p.Open}
}

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func bg() context.Context { return context.Background() }

// staticToken is a token that never changes.
func staticToken(token string) github.TokenSource {
	return func(context.Context) (string, error) { return token, nil }
}
