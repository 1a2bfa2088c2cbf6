package githubtest_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	gh "github.com/google/go-github/v62/github"
	"github.com/stretchr/testify/require"

	"berth/webhooks/github/githubtest"
)

// A pull request from a fork adds a ref and its commits to the repository, and
// nothing else.
func TestForks(t *testing.T) {
	t.Parallel()
	s, w := start(t, nil)
	_, err := s.OpenForkPull("eve", "x", "x")
	require.ErrorContains(t, err, "the fork is missing")
	dir, err := s.Fork("eve")
	require.NoError(t, err)

	w.git("checkout", "-q", "-b", "x")
	w.git("remote", "set-url", "origin", dir)
	first := w.commit("x", "a.yaml", "a: 1\n")
	n, err := s.OpenForkPull("eve", "x", "Add a")
	require.NoError(t, err)
	app := client(t, s, "app")
	pr, _, err := app.PullRequests.Get(ctx, "lab", "estate", n)
	require.NoError(t, err)
	require.Equal(t, first, pr.GetHead().GetSHA())
	require.Equal(t, "eve/estate", pr.GetHead().GetRepo().GetFullName())
	require.True(t, pr.GetHead().GetRepo().GetFork())
	require.NotEqual(t, pr.GetHead().GetRepo().GetID(), pr.GetBase().GetRepo().GetID())
	require.Equal(t, "lab/estate", pr.GetBase().GetRepo().GetFullName())

	second := w.commit("x", "a.yaml", "a: 2\n")
	require.NoError(t, s.Sync())
	p, _ := s.Pull(n)
	require.Equal(t, second, p.Head)
	require.Equal(t, "eve", p.Fork)
	require.Equal(t, []string{"push", "pull_request.opened", "pull_request.synchronize"}, told(s), "a push to a fork sends no push webhook")
	base := strings.Replace(s.CloneURL(), "://", "://git:app@", 1)
	out := w.git("ls-remote", base)
	require.Contains(t, out, second+"\trefs/pull/1/head")
	require.NotContains(t, out, "refs/heads/x")

	run, _, err := app.Checks.CreateCheckRun(ctx, "lab", "estate", gh.CreateCheckRunOptions{Name: "berth", HeadSHA: second})
	require.NoError(t, err)
	require.Empty(t, run.PullRequests, "GitHub names none of a fork")

	merge, err := s.Merge(n, githubtest.Merge, "ana")
	require.NoError(t, err)
	require.Equal(t, merge, w.git("ls-remote", base, "refs/heads/main")[:40])
}

// The queue really merges its pull requests on top of each other. The required
// checks on these merges decide.
func TestMergeQueue(t *testing.T) {
	t.Parallel()
	s, w := start(t, func(o *githubtest.Options) { o.Required = []string{"berth/validate", "berth/plan"} })
	app := client(t, s, "app")
	check := func(commit, name, conclusion string) {
		t.Helper()
		_, _, err := app.Checks.CreateCheckRun(ctx, "lab", "estate",
			gh.CreateCheckRunOptions{Name: name, HeadSHA: commit, Conclusion: gh.String(conclusion)})
		require.NoError(t, err)
	}
	pass := func(commit string) {
		check(commit, "berth/validate", "success")
		check(commit, "berth/plan", "neutral")
	}
	var pulls []int
	for _, b := range []string{"a", "b", "c"} {
		w.git("checkout", "-q", "main")
		head := w.commit(b, b+".yaml", "x: 1\n")
		n, err := s.OpenPull(b, b, "ana")
		require.NoError(t, err)
		_, err = s.Enqueue(n)
		require.ErrorContains(t, err, "have not passed")
		pass(head)
		pulls = append(pulls, n)
	}
	main := w.git("rev-parse", "main")
	var groups []githubtest.Group
	for _, n := range pulls {
		g, err := s.Enqueue(n)
		require.NoError(t, err)
		groups = append(groups, g)
	}
	require.Equal(t, main, groups[0].Base)
	require.Equal(t, groups[0].Head, groups[1].Base)
	require.Equal(t, "refs/heads/gh-readonly-queue/main/pr-1-"+main, groups[0].Ref)
	require.Equal(t, groups[0].Head, w.git("ls-remote", "origin", groups[0].Ref)[:40])
	_, err := s.Enqueue(pulls[0])
	require.ErrorContains(t, err, "is in the queue")

	pass(groups[1].Head) // not its turn
	require.Len(t, s.Queue(), 3)
	pass(groups[0].Head) // now both
	require.Equal(t, groups[1].Head, w.git("ls-remote", "origin", "refs/heads/main")[:40])
	for _, n := range pulls[:2] {
		p, _ := s.Pull(n)
		require.False(t, p.Open)
		require.Equal(t, groups[n-1].Head, p.MergeCommit)
	}
	require.Empty(t, w.git("ls-remote", "origin", groups[0].Ref))
	require.Equal(t, groups[2:], s.Queue(), "the group contains the earlier merge")

	// Main moves past the queue: the group is invalid and is rebuilt.
	w.git("fetch", "-q", "origin", "main")
	w.git("checkout", "-q", "-B", "main", "FETCH_HEAD")
	w.commit("main", "d.yaml", "d: 1\n")
	again := s.Queue()[0]
	require.NotEqual(t, groups[2], again)
	require.Equal(t, w.git("rev-parse", "main"), again.Base)
	check(again.Head, "berth/validate", "success")
	check(again.Head, "berth/plan", "failure")
	require.Empty(t, s.Queue(), "thrown out")
	p, _ := s.Pull(pulls[2])
	require.True(t, p.Open)

	// By a push, and with a status beside the check.
	_, err = s.Enqueue(pulls[2])
	require.NoError(t, err)
	w.git("checkout", "-q", "c")
	head := w.commit("c", "c.yaml", "x: 2\n")
	require.Empty(t, s.Queue(), "its head moved")
	pass(head)
	_, _, err = app.Repositories.CreateStatus(ctx, "lab", "estate", head,
		&gh.RepoStatus{State: gh.String("pending"), Context: gh.String("berth/plan")})
	require.NoError(t, err)
	_, err = s.Enqueue(pulls[2])
	require.ErrorContains(t, err, "have not passed", "a check and a status of one name: both are required")

	var reasons []string
	s.Settle()
	for _, d := range s.Deliveries() {
		if d.Event == "merge_group" || d.Action == "dequeued" {
			var e struct{ Reason string }
			require.NoError(t, json.Unmarshal(d.Body, &e))
			reasons = append(reasons, strings.TrimSuffix(d.Action+" "+e.Reason, " "))
		}
	}
	require.Equal(t, []string{
		"checks_requested", "checks_requested", "checks_requested", "dequeued MERGE", "destroyed merged", "dequeued MERGE",
		"destroyed merged",
		"destroyed invalidated", "checks_requested", "dequeued CI_FAILURE", "destroyed dequeued",
		"checks_requested", "dequeued UNKNOWN_REMOVAL_REASON", "destroyed dequeued",
	}, reasons)
}

// TestNarrowTokens: a token does what its permissions say and no more.
func TestNarrowTokens(t *testing.T) {
	t.Parallel()
	s, w := start(t, func(o *githubtest.Options) {
		o.Tokens["report"] = githubtest.Token{Login: "berth", App: true,
			Permissions: map[string]string{"checks": "write", "pull_requests": "read"}}
		o.Tokens["fetch"] = githubtest.Token{Login: "berth", App: true, Permissions: map[string]string{"contents": "read"}}
	})
	head := w.commit("b", "a.yaml", "a: 1\n")
	n, err := s.OpenPull("b", "b", "ana")
	require.NoError(t, err)
	report, fetch := client(t, s, "report"), client(t, s, "fetch")
	_, _, err = report.Checks.CreateCheckRun(ctx, "lab", "estate", gh.CreateCheckRunOptions{Name: "berth", HeadSHA: head})
	require.NoError(t, err)
	_, _, err = report.PullRequests.Get(ctx, "lab", "estate", n)
	require.NoError(t, err)
	_, _, err = report.Issues.CreateComment(ctx, "lab", "estate", n, &gh.IssueComment{Body: gh.String("x")})
	require.Equal(t, 403, status(t, err))
	_, _, err = fetch.PullRequests.Get(ctx, "lab", "estate", n)
	require.Equal(t, 403, status(t, err))
	url := func(token string) string { return strings.Replace(s.CloneURL(), "://", "://git:"+token+"@", 1) }
	require.Error(t, exec.Command("git", "ls-remote", url("report")).Run())
	require.NoError(t, exec.Command("git", "ls-remote", url("fetch")).Run())
	push := exec.Command("git", "-C", w.dir, "push", "-q", url("fetch"), "HEAD:refs/heads/other")
	require.Error(t, push.Run(), "it may only read")
}
