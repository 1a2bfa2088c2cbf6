package githubtest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gh "github.com/google/go-github/v62/github"
	"github.com/stretchr/testify/require"

	"berth/webhooks/github/githubtest"
)

const (
	repoOps = "/repos/{owner}/{repo}"
)

// work is a clone that tests commit in.
type work struct {
	t   *testing.T
	dir string
}

func (w work) git(args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", w.dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=ana", "GIT_AUTHOR_EMAIL=ana@example.com", "GIT_COMMITTER_NAME=ana", "GIT_COMMITTER_EMAIL=ana@example.com")
	out, err := cmd.CombinedOutput()
	require.NoError(w.t, err, "git %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

// commit writes a file on a branch, pushes it and returns the commit.
func (w work) commit(branch, file, content string) string {
	w.t.Helper()
	w.git("checkout", "-q", "-B", branch)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(filepath.Join(w.dir, file)), 0o755))
	require.NoError(w.t, os.WriteFile(filepath.Join(w.dir, file), []byte(content), 0o644))
	w.git("add", "-A")
	w.git("commit", "-q", "-m", branch+": "+file)
	w.git("push", "-q", "-f", "origin", branch)
	return w.git("rev-parse", "HEAD")
}

// start makes a forge with one commit on main, and a clone of it.
func start(t *testing.T, change func(*githubtest.Options)) (*githubtest.Server, work) {
	t.Helper()
	bare := filepath.Join(t.TempDir(), "estate.git")
	w := work{t, t.TempDir()}
	out, err := exec.Command("git", "init", "-q", "--bare", "-b", "main", bare).CombinedOutput()
	require.NoError(t, err, string(out))
	o := githubtest.Options{
		RepoDir: bare, Owner: "lab", Repo: "estate",
		Tokens:      map[string]githubtest.Token{"app": {Login: "berth", App: true}, "ana": {Login: "ana"}},
		Permissions: map[string]string{"ana": "write"},
		Secret:      []byte("s"), Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	s, err := githubtest.New(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.Close()
		require.Empty(t, s.Violations())
		require.Empty(t, s.Unused())
	})
	w.git("init", "-q", "-b", "main")
	w.git("remote", "add", "origin", strings.Replace(s.CloneURL(), "://", "://git:ana@", 1))
	w.commit("main", "README.md", "estate\n")
	return s, w
}

// client is go-github with a token.
func client(t *testing.T, s *githubtest.Server, token string) *gh.Client {
	c := gh.NewClient(nil).WithAuthToken(token)
	var err error
	c.BaseURL, err = c.BaseURL.Parse(s.APIURL())
	require.NoError(t, err)
	return c
}

func status(t *testing.T, err error) int {
	t.Helper()
	var e *gh.ErrorResponse
	require.ErrorAs(t, err, &e)
	return e.Response.StatusCode
}

var ctx = context.Background()

// TestLifeOfAPullRequest goes once through everything; each answer on the way is
// checked against GitHub's description by the server itself.
func TestLifeOfAPullRequest(t *testing.T) {
	t.Parallel()
	s, w := start(t, nil)
	c := client(t, s, "app")

	r, _, err := c.Repositories.Get(ctx, "lab", "estate")
	require.NoError(t, err)
	require.Equal(t, "main", r.GetDefaultBranch())

	first := w.commit("two-workers", "a.yaml", "a: 1\n")
	n, err := s.OpenPull("two-workers", "Two workers", "ana")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, first, w.git("ls-remote", "origin", "refs/pull/1/head")[:40])

	list, _, err := c.PullRequests.List(ctx, "lab", "estate", nil)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, first, list[0].GetHead().GetSHA())

	pr, _, err := c.PullRequests.Get(ctx, "lab", "estate", n)
	require.NoError(t, err)
	require.Equal(t, "ana", pr.GetUser().GetLogin())

	second := w.commit("two-workers", "a.yaml", "a: 2\n")
	pr, _, err = c.PullRequests.Get(ctx, "lab", "estate", n)
	require.NoError(t, err)
	require.Equal(t, second, pr.GetHead().GetSHA(), "a push moves the pull request")
	require.Equal(t, second, w.git("ls-remote", "origin", "refs/pull/1/head")[:40])

	run, _, err := c.Checks.CreateCheckRun(ctx, "lab", "estate", gh.CreateCheckRunOptions{
		Name: "berth", HeadSHA: second, Status: gh.String("in_progress"),
		Output: &gh.CheckRunOutput{Title: gh.String("t"), Summary: gh.String("s"), Annotations: []*gh.CheckRunAnnotation{note(1)}},
	})
	require.NoError(t, err)
	run, _, err = c.Checks.UpdateCheckRun(ctx, "lab", "estate", run.GetID(), gh.UpdateCheckRunOptions{
		Name: "berth", Conclusion: gh.String("failure"),
		Output: &gh.CheckRunOutput{Title: gh.String("t"), Summary: gh.String("s"), Annotations: []*gh.CheckRunAnnotation{note(2)}},
	})
	require.NoError(t, err)
	require.Equal(t, "completed", run.GetStatus())
	require.Equal(t, 2, run.GetOutput().GetAnnotationsCount(), "annotations are added, never replaced")
	_, _, err = c.Checks.UpdateCheckRun(ctx, "lab", "estate", run.GetID(),
		gh.UpdateCheckRunOptions{Name: "berth", Status: gh.String("in_progress")})
	require.Equal(t, 422, status(t, err), "a completed run stays completed")
	runs, _, err := c.Checks.ListCheckRunsForRef(ctx, "lab", "estate", second, &gh.ListCheckRunsOptions{CheckName: gh.String("berth")})
	require.NoError(t, err)
	require.Equal(t, 1, runs.GetTotal())

	cm, _, err := c.Issues.CreateComment(ctx, "lab", "estate", n, &gh.IssueComment{Body: gh.String("plan")})
	require.NoError(t, err)
	require.Equal(t, "berth[bot]", cm.GetUser().GetLogin())
	cm, _, err = c.Issues.EditComment(ctx, "lab", "estate", cm.GetID(), &gh.IssueComment{Body: gh.String("better plan")})
	require.NoError(t, err)
	require.Equal(t, "better plan", cm.GetBody())
	_, _, err = c.Issues.GetComment(ctx, "lab", "estate", cm.GetID())
	require.NoError(t, err)

	_, _, err = c.Repositories.CreateStatus(ctx, "lab", "estate", second,
		&gh.RepoStatus{State: gh.String("success"), Context: gh.String("x"), Description: gh.String("d")})
	require.NoError(t, err)
	statuses, _, err := c.Repositories.ListStatuses(ctx, "lab", "estate", second, nil)
	require.NoError(t, err)
	require.Len(t, statuses, 1)

	for login, want := range map[string]string{"ana": "write", "eve": "none"} {
		p, _, err := c.Repositories.GetPermissionLevel(ctx, "lab", "estate", login)
		require.NoError(t, err)
		require.Equal(t, want, p.GetPermission())
	}
	_, _, err = c.RateLimit.Get(ctx)
	require.NoError(t, err)

	merge, err := s.Merge(n, githubtest.Squash, "ana")
	require.NoError(t, err)
	require.Equal(t, merge, w.git("ls-remote", "origin", "refs/heads/main")[:40])
	pr, _, err = c.PullRequests.Get(ctx, "lab", "estate", n)
	require.NoError(t, err)
	require.True(t, pr.GetMerged())
	require.Equal(t, merge, pr.GetMergeCommitSHA())
	prs, _, err := c.PullRequests.ListPullRequestsWithCommit(ctx, "lab", "estate", merge, nil)
	require.NoError(t, err)
	require.Len(t, prs, 1)
	prs, _, err = c.PullRequests.ListPullRequestsWithCommit(ctx, "lab", "estate", w.git("rev-parse", "main"), nil)
	require.NoError(t, err)
	require.Empty(t, prs, "the commit it was forked from is not its own")

	_, err = c.Issues.DeleteComment(ctx, "lab", "estate", cm.GetID())
	require.NoError(t, err)
	require.Empty(t, s.Comments(n))
	require.Len(t, s.Checks(second), 1)
	require.Equal(t, []githubtest.Status{{Context: "x", State: "success", Description: "d"}}, s.Statuses(second))

	u, _, err := client(t, s, "ana").Users.Get(ctx, "")
	require.NoError(t, err)
	require.Equal(t, "ana", u.GetLogin())
}

func note(line int) *gh.CheckRunAnnotation {
	return &gh.CheckRunAnnotation{Path: gh.String("a.yaml"), StartLine: gh.Int(line), EndLine: gh.Int(line),
		AnnotationLevel: gh.String("failure"), Message: gh.String("no")}
}

// The server enforces limits and permissions that GitHub's description omits.
func TestUndescribedLimitsAreEnforced(t *testing.T) {
	t.Parallel()
	s, w := start(t, nil)
	head := w.commit("b", "a.yaml", "a: 1\n")
	n, err := s.OpenPull("b", "b", "ana")
	require.NoError(t, err)
	app, ana := client(t, s, "app"), client(t, s, "ana")

	check := gh.CreateCheckRunOptions{Name: "berth", HeadSHA: head}
	_, _, err = ana.Checks.CreateCheckRun(ctx, "lab", "estate", check)
	require.Equal(t, 403, status(t, err), "a person's token makes no check runs")
	check.Status = gh.String("completed")
	_, _, err = app.Checks.CreateCheckRun(ctx, "lab", "estate", check)
	require.Equal(t, 422, status(t, err), "completed without conclusion")
	check.Status, check.HeadSHA = nil, strings.Repeat("1", 40)
	_, _, err = app.Checks.CreateCheckRun(ctx, "lab", "estate", check)
	require.Equal(t, 422, status(t, err), "no such commit")

	long := strings.Repeat("ä", 65_536)
	_, _, err = app.Issues.CreateComment(ctx, "lab", "estate", n, &gh.IssueComment{Body: gh.String(long)})
	require.NoError(t, err)
	_, _, err = app.Issues.CreateComment(ctx, "lab", "estate", n, &gh.IssueComment{Body: gh.String(long + "a")})
	require.Equal(t, 422, status(t, err))
	_, _, err = app.Issues.CreateComment(ctx, "lab", "estate", n, &gh.IssueComment{Body: gh.String(" ")})
	require.Equal(t, 422, status(t, err))
	_, _, err = app.Issues.CreateComment(ctx, "lab", "estate", 99, &gh.IssueComment{Body: gh.String("x")})
	require.Equal(t, 404, status(t, err))
	_, _, err = app.Repositories.CreateStatus(ctx, "lab", "estate", head,
		&gh.RepoStatus{State: gh.String("success"), Description: gh.String(strings.Repeat("x", 141))})
	require.Equal(t, 422, status(t, err))
	_, _, err = app.Users.Get(ctx, "")
	require.Equal(t, 403, status(t, err), "an App is not a user")
	_, _, err = client(t, s, "stolen").PullRequests.Get(ctx, "lab", "estate", n)
	require.Equal(t, 401, status(t, err))
	_, _, err = app.PullRequests.Get(ctx, "other", "estate", n)
	require.Equal(t, 404, status(t, err))
}

// TestViolations: a request or an answer that does not match the description is recorded.
func TestViolations(t *testing.T) {
	t.Parallel()
	s, w := start(t, nil)
	head := w.commit("b", "a.yaml", "a: 1\n")
	_, err := s.OpenPull("b", "b", "ana")
	require.NoError(t, err)
	base := strings.TrimSuffix(s.APIURL(), "/") + "/repos/lab/estate"
	many := strings.TrimSuffix(strings.Repeat(`{"path":"a","start_line":1,"end_line":1,"annotation_level":"failure","message":"m"},`, 51),
		",")
	cases := []struct{ method, path, body, want string }{
		{"POST", "/check-runs", `{"name":"berth","head_sha":"` + head + `","output":{"title":"t","summary":"s","annotations":[` + many +
			`]}}`, "annotations"},
		{"POST", "/check-runs", `{"name":"berth","head_sha":"` + head + `","output":{"title":"t","summary":"` +
			strings.Repeat("x", 65_536) + `"}}`, "summary"},
		{"POST", "/check-runs", `{"name":"berth","head_sha":"` + head + `","conclusion":"fine"}`, "conclusion"},
		{"POST", "/check-runs", `{"name":"berth"}`, "head_sha"},
		{"POST", "/check-runs", `{"name":"berth","head_sha":"` + head + `","sumary":"x"}`, `"sumary" is not described`},
		{"POST", "/issues/1/comments", `{"body":7}`, "body"},
		{"GET", "/pulls?stat=open", "", `"stat" is not described`},
		{"GET", "/pulls?state=opened", "", "opened"},
		{"GET", "/pulls?per_page=500", "", "per_page"},
		{"GET", "/pulls/1/files", "", "not served here"},
	}
	var got []string
	for _, c := range cases {
		r, err := http.NewRequest(c.method, base+c.path, strings.NewReader(c.body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "token app")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		resp.Body.Close()
		got = append(got, "")
		v := s.Violations()
		require.Len(t, v, len(got), "%s %s %.80s", c.method, c.path, c.body)
		require.Contains(t, v[len(v)-1], c.want)
	}
	// They were wanted; the check at the end must not fail for them.
	s.ForgetViolations()
}

func TestPagesAndConditionalReads(t *testing.T) {
	t.Parallel()
	s, w := start(t, nil)
	w.commit("b", "a.yaml", "a: 1\n")
	n, err := s.OpenPull("b", "b", "ana")
	require.NoError(t, err)
	for i := range 65 {
		_, err := s.Comment(n, "ana", "comment "+strconv.Itoa(i))
		require.NoError(t, err)
	}
	c := client(t, s, "app")
	var seen []string
	opt := &gh.IssueListCommentsOptions{}
	for {
		list, resp, err := c.Issues.ListComments(ctx, "lab", "estate", n, opt)
		require.NoError(t, err)
		for _, cm := range list {
			seen = append(seen, cm.GetBody())
		}
		if resp.NextPage == 0 {
			break
		}
		require.Len(t, list, 30, "GitHub's page")
		opt.Page = resp.NextPage
	}
	require.Len(t, seen, 65)
	require.Equal(t, "comment 64", seen[64])

	get := func(etag string) *http.Response {
		r, err := http.NewRequest("GET", s.APIURL()+"repos/lab/estate/pulls/1", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer app")
		r.Header.Set("If-None-Match", etag)
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		resp.Body.Close()
		return resp
	}
	a := get("")
	require.Equal(t, 200, a.StatusCode)
	b := get(a.Header.Get("ETag"))
	require.Equal(t, 304, b.StatusCode)
	require.Equal(t, a.Header.Get("X-RateLimit-Remaining"), b.Header.Get("X-RateLimit-Remaining"), "not counted")
	w.commit("b", "a.yaml", "a: 2\n")
	require.Equal(t, 200, get(a.Header.Get("ETag")).StatusCode)
}

// clock is a clock that a test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	c := &clock{t: time.Now()}
	s, w := start(t, func(o *githubtest.Options) {
		o.Now, o.Limits = c.now, githubtest.Limits{PerHour: 12, ContentPerMinute: 3, ContentPerHour: 5}
	})
	w.commit("b", "a.yaml", "a: 1\n")
	n, err := s.OpenPull("b", "b", "ana")
	require.NoError(t, err)
	try := func(method, path, body string) *http.Response {
		r, err := http.NewRequest(method, s.APIURL()+"repos/lab/estate"+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer app")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		resp.Body.Close()
		return resp
	}
	say := func() *http.Response { return try("POST", fmt.Sprintf("/issues/%d/comments", n), `{"body":"x"}`) }
	for range 3 {
		require.Equal(t, 201, say().StatusCode)
	}
	r := say()
	require.Equal(t, 403, r.StatusCode)
	wait, err := strconv.Atoi(r.Header.Get("Retry-After"))
	require.NoError(t, err)
	c.add(time.Duration(wait) * time.Second)
	require.Equal(t, 201, say().StatusCode, "after what it said")
	require.Equal(t, 201, say().StatusCode)
	c.add(2 * time.Minute)
	require.Equal(t, 403, say().StatusCode, "the hour's")
	for range 7 {
		require.Equal(t, 200, try("GET", "", "").StatusCode)
	}
	r = try("GET", "", "")
	require.Equal(t, 403, r.StatusCode, "the primary one")
	require.Equal(t, "0", r.Header.Get("X-RateLimit-Remaining"))
	c.add(time.Hour)
	require.Equal(t, 200, try("GET", "", "").StatusCode)
}

func TestFaults(t *testing.T) {
	t.Parallel()
	s, w := start(t, nil)
	w.commit("b", "a.yaml", "a: 1\n")
	n, err := s.OpenPull("b", "b", "ana")
	require.NoError(t, err)
	c := client(t, s, "app")
	const op = "POST " + repoOps + "/issues/{issue_number}/comments"
	say := func() error {
		_, _, err := c.Issues.CreateComment(ctx, "lab", "estate", n, &gh.IssueComment{Body: gh.String("x")})
		return err
	}
	s.Inject(githubtest.Fault{Op: op, Status: 500})
	s.Inject(githubtest.Fault{Op: op, Status: 502, Carry: true})
	s.Inject(githubtest.Fault{Op: op})
	s.Inject(githubtest.Fault{Op: op, Carry: true})
	s.Inject(githubtest.Fault{Op: op, Delay: time.Millisecond, DelayOnly: true})
	require.Len(t, s.Unused(), 5)
	for i, want := range []struct {
		fails    bool
		comments int
	}{{true, 0}, {true, 1}, {true, 1}, {true, 2}, {false, 3}, {false, 4}} {
		require.Equal(t, want.fails, say() != nil, i)
		require.Len(t, s.Comments(n), want.comments, i)
	}
}

// hook is a webhook's receiver.
type hook struct {
	mu   sync.Mutex
	got  []string // event and id
	sigs []string
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	payload, err := gh.ValidatePayloadFromBody("application/json", bytes.NewReader(body), r.Header.Get("X-Hub-Signature-256"), []byte("s"))
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.got = append(h.got, "forged: "+err.Error())
		return
	}
	if _, err := gh.ParseWebHook(r.Header.Get("X-GitHub-Event"), payload); err != nil {
		h.got = append(h.got, "unreadable: "+err.Error())
		return
	}
	h.got = append(h.got, r.Header.Get("X-GitHub-Event"))
	h.sigs = append(h.sigs, r.Header.Get("X-GitHub-Delivery"))
	w.WriteHeader(202)
}

func (h *hook) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.got = nil }()
	return h.got
}

func TestDeliveries(t *testing.T) {
	t.Parallel()
	h := &hook{}
	receiver := httptest.NewServer(h)
	defer receiver.Close()
	s, w := start(t, nil)
	s.Settle()
	s.SetWebhook(receiver.URL)
	s.Ping()
	s.Settle()
	require.Equal(t, []string{"ping"}, h.take())

	w.commit("b", "a.yaml", "a: 1\n")
	n, err := s.OpenPull("b", "b", "ana")
	require.NoError(t, err)
	head := w.commit("b", "a.yaml", "a: 2\n")
	s.Settle()
	require.Equal(t, []string{"push", "pull_request", "push", "pull_request"}, h.take())

	_, _, err = client(t, s, "app").Checks.CreateCheckRun(ctx, "lab", "estate",
		gh.CreateCheckRunOptions{Name: "berth", HeadSHA: head, Conclusion: gh.String("success")})
	require.NoError(t, err)
	require.NoError(t, s.RerunAll(head, "berth"))
	s.Settle()
	require.Equal(t, []string{"check_run", "check_run", "check_suite"}, h.take(), "created, completed, and asked for again")

	s.SetSchedule(func(d githubtest.Delivery) []githubtest.Attempt { // the other way round, and twice
		if d.Event == "push" {
			return []githubtest.Attempt{{Behind: 1}, {Behind: 1}}
		}
		return []githubtest.Attempt{{}}
	})
	_, err = s.Merge(n, githubtest.Merge, "ana")
	require.NoError(t, err)
	s.Settle()
	require.Equal(t, []string{"pull_request", "push", "push"}, h.take())

	s.SetSchedule(func(githubtest.Delivery) []githubtest.Attempt { return nil }) // lost
	w.commit("c", "c.yaml", "c: 1\n")
	s.Settle()
	require.Empty(t, h.take())

	last := s.Deliveries()[len(s.Deliveries())-1]
	require.Equal(t, 202, last.Status)
	require.NoError(t, s.Redeliver(last.ID))
	s.Settle()
	require.Equal(t, []string{"push"}, h.take())
	require.Equal(t, last.ID, h.sigs[len(h.sigs)-1], "a redelivery has the same id")
	require.Error(t, s.Redeliver("nonsense"))
}

// A pull request follows its branches, whoever moves them.
func TestPullRequestFollowsItsBranches(t *testing.T) {
	t.Parallel()
	s, w := start(t, nil)
	w.commit("gone", "a.yaml", "a: 1\n")
	gone, err := s.OpenPull("gone", "gone", "ana")
	require.NoError(t, err)
	w.git("push", "-q", "origin", ":gone")
	p, ok := s.Pull(gone)
	require.True(t, ok)
	require.False(t, p.Open, "its branch was deleted")
	require.Empty(t, p.MergeCommit)

	w.git("checkout", "-q", "main")
	w.commit("byhand", "b.yaml", "b: 1\n")
	hand, err := s.OpenPull("byhand", "by hand", "ana")
	require.NoError(t, err)
	w.git("push", "-q", "origin", "byhand:main")
	p, _ = s.Pull(hand)
	require.False(t, p.Open)
	require.NotEmpty(t, p.MergeCommit, "merged by a push to main")

	_, err = s.OpenPull("byhand", "again", "ana")
	require.ErrorContains(t, err, "no commits")
	_, err = s.OpenPull("nowhere", "x", "ana")
	require.Error(t, err)

	// A conflict: both sides write the same file.
	w.git("checkout", "-q", "byhand")
	w.commit("left", "c.yaml", "c: left\n")
	left, err := s.OpenPull("left", "left", "ana")
	require.NoError(t, err)
	w.git("checkout", "-q", "byhand")
	w.commit("main", "c.yaml", "c: right\n")
	_, err = s.Merge(left, githubtest.Merge, "ana")
	require.ErrorContains(t, err, "conflicts")
	require.NoError(t, s.ClosePull(left))
	require.Error(t, s.ClosePull(left))

	// The pull request is reopened and renamed.
	require.NoError(t, s.ReopenPull(left))
	require.Error(t, s.ReopenPull(left))
	require.Error(t, s.ReopenPull(hand), "merged")
	require.Error(t, s.ReopenPull(gone), "its branch is gone")
	require.NoError(t, s.Retitle(left, "to the left"))
	pr, _, err := client(t, s, "app").PullRequests.Get(ctx, "lab", "estate", left)
	require.NoError(t, err)
	require.Equal(t, "to the left", pr.GetTitle())
	require.Subset(t, told(s), []string{"pull_request.closed", "pull_request.reopened", "pull_request.edited"})
}
