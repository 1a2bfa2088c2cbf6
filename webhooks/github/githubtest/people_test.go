package githubtest_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	gh "github.com/google/go-github/v62/github"
	"github.com/stretchr/testify/require"

	"berth/webhooks/github/githubtest"
)

// told lists the events due for delivery so far, with their actions.
func told(s *githubtest.Server) []string {
	s.Settle()
	var out []string
	for _, d := range s.Deliveries() {
		name := d.Event
		if d.Action != "" {
			name += "." + d.Action
		}
		out = append(out, name)
	}
	return out
}

// last is the body of the newest delivery.
func last(t *testing.T, s *githubtest.Server, into any) {
	t.Helper()
	s.Settle()
	all := s.Deliveries()
	require.NoError(t, json.Unmarshal(all[len(all)-1].Body, into))
}

// Users write and edit comments and react to them; each action has its event.
func TestCommentsAndReactions(t *testing.T) {
	t.Parallel()
	now := &clock{t: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	s, w := start(t, func(o *githubtest.Options) { o.Now = now.now })
	app := client(t, s, "app")
	var pulls []int
	for _, b := range []string{"a", "b"} {
		w.git("checkout", "-q", "main")
		w.commit(b, b+".yaml", "x: 1\n")
		n, err := s.OpenPull(b, b, "ana")
		require.NoError(t, err)
		pulls = append(pulls, n)
	}
	var ids []int64
	for i, who := range []string{"ana", "dependabot[bot]", "eve"} {
		now.add(time.Minute)
		id, err := s.Comment(pulls[i%2], who, "/berth plan")
		require.NoError(t, err)
		ids = append(ids, id)
	}
	since := now.now()
	now.add(time.Minute)
	require.NoError(t, s.EditComment(ids[0], "ana", "/berth apply"))
	var edited gh.IssueCommentEvent
	last(t, s, &edited)
	require.Equal(t, "edited", edited.GetAction())
	require.Equal(t, "/berth plan", edited.GetChanges().Body.GetFrom())
	require.True(t, edited.GetIssue().IsPullRequest())

	list := func(o *gh.IssueListCommentsOptions) (got []int64) {
		t.Helper()
		all, _, err := app.Issues.ListComments(ctx, "lab", "estate", 0, o)
		require.NoError(t, err)
		for _, c := range all {
			got = append(got, c.GetID())
		}
		return got
	}
	require.Equal(t, ids, list(nil), "of all pull requests, by id")
	require.Equal(t, []int64{ids[2], ids[0]},
		list(&gh.IssueListCommentsOptions{Since: &since, Sort: gh.String("updated"), Direction: gh.String("asc")}),
		"an edit is an update; the result includes updates in the requested second")
	require.Equal(t, []int64{ids[2], ids[1], ids[0]},
		list(&gh.IssueListCommentsOptions{Sort: gh.String("created"), Direction: gh.String("desc")}))
	list(&gh.IssueListCommentsOptions{Direction: gh.String("desc")})
	require.Len(t, s.Violations(), 1, "GitHub ignores a direction without sort")
	s.ForgetViolations()

	bot, _, err := app.Issues.GetComment(ctx, "lab", "estate", ids[1])
	require.NoError(t, err)
	require.Equal(t, "Bot", bot.GetUser().GetType())
	require.Equal(t, bot.GetCreatedAt(), bot.GetUpdatedAt())

	for i, want := range []int{http.StatusCreated, http.StatusOK} {
		_, resp, err := app.Reactions.CreateIssueCommentReaction(ctx, "lab", "estate", ids[2], "rocket")
		require.NoError(t, err)
		require.Equal(t, want, resp.StatusCode, i)
	}
	require.NoError(t, s.React(ids[2], "ana", "+1"))
	require.NoError(t, s.React(ids[2], "ana", "+1"))
	require.Error(t, s.React(ids[2], "ana", "shrug"))
	require.Equal(t, []githubtest.Reaction{{Login: "berth[bot]", Content: "rocket"}, {Login: "ana", Content: "+1"}},
		s.Comments(pulls[0])[1].Reactions)
	signs, _, err := app.Reactions.ListIssueCommentReactions(ctx, "lab", "estate", ids[2], nil)
	require.NoError(t, err)
	require.Len(t, signs, 2)
	counted, _, err := app.Issues.GetComment(ctx, "lab", "estate", ids[2])
	require.NoError(t, err)
	require.Equal(t, 2, counted.GetReactions().GetTotalCount())
	require.Equal(t, 1, counted.GetReactions().GetRocket())
	require.Equal(t, counted.GetCreatedAt(), counted.GetUpdatedAt(), "a reaction counts as an edit")

	ours, _, err := app.Issues.CreateComment(ctx, "lab", "estate", pulls[0], &gh.IssueComment{Body: gh.String("plan")})
	require.NoError(t, err)
	var created gh.IssueCommentEvent
	last(t, s, &created)
	require.Equal(t, "berth[bot]", created.GetSender().GetLogin(), "an App hears of its own comments")
	require.NoError(t, s.DeleteComment(ours.GetID()))
	require.Equal(t, []string{"issue_comment.created", "issue_comment.deleted"}, told(s)[len(told(s))-2:])

	roles := map[string]string{"max": "maintain", "tim": "triage", "adi": "admin"}
	for login, role := range roles {
		s.SetPermission(login, role)
	}
	for login, want := range map[string]string{"max": "write", "tim": "read", "adi": "admin", "ana": "write", "eve": "none"} {
		p, _, err := app.Repositories.GetPermissionLevel(ctx, "lab", "estate", login)
		require.NoError(t, err)
		require.Equal(t, want, p.GetPermission(), login)
	}
	s.SetPermission("ana", "")
	p, _, err := app.Repositories.GetPermissionLevel(ctx, "lab", "estate", "ana")
	require.NoError(t, err)
	require.Equal(t, "none", p.GetPermission(), "taken away")
	s.DeleteUser("ana")
	_, _, err = app.Repositories.GetPermissionLevel(ctx, "lab", "estate", "ana")
	require.Equal(t, 404, status(t, err))
}

// A check run has three buttons at most, and users can rerun it.
func TestCheckRunRerun(t *testing.T) {
	t.Parallel()
	s, w := start(t, nil)
	head := w.commit("b", "a.yaml", "a: 1\n")
	_, err := s.OpenPull("b", "b", "ana")
	require.NoError(t, err)
	app := client(t, s, "app")
	button := func(id string) *gh.CheckRunAction {
		return &gh.CheckRunAction{Label: id, Description: id, Identifier: id}
	}
	o := gh.CreateCheckRunOptions{Name: "berth/plan", HeadSHA: head, Conclusion: gh.String("success"),
		Actions: []*gh.CheckRunAction{button("a"), button("b"), button("c"), button("d")}}
	_, _, err = app.Checks.CreateCheckRun(ctx, "lab", "estate", o)
	require.Equal(t, 422, status(t, err), "three at most")
	s.ForgetViolations()
	o.Actions = o.Actions[:1]
	_, _, err = app.Checks.CreateCheckRun(ctx, "lab", "estate", o)
	require.NoError(t, err)
	require.NoError(t, s.RerunAll(head, "berth"))
	var all gh.CheckSuiteEvent
	last(t, s, &all)
	require.Equal(t, "rerequested", all.GetAction())
	require.Equal(t, head, all.GetCheckSuite().GetHeadSHA())
	require.Error(t, s.RerunAll(head, "other"))
}
