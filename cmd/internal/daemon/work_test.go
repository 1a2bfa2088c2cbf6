package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/webhooks"
	"berth/webhooks/github"
)

// woken records the requests to the loop and to the forge.
type woken []string

func (w *woken) Enqueue(i reconciler.Item) { *w = append(*w, i.String()) }
func (w *woken) ShowAgain(pull int)        { *w = append(*w, fmt.Sprintf("show %d again", pull)) }
func (w *woken) Rerequest(commit string)   { *w = append(*w, "check "+commit+" again") }

func TestDeliveriesStartWork(t *testing.T) {
	c := &Config{Forge: &github.Config{Owner: "lab", Repository: "estate", Login: "berth-lab[bot]"}}
	for _, tc := range []struct {
		name   string
		events []webhooks.Event
		want   woken
	}{
		{"push", []webhooks.Event{{Kind: webhooks.Push, Repo: "lab/estate", Ref: "refs/heads/main"}}, woken{"estate"}},
		{"names are written as people like", []webhooks.Event{{Kind: webhooks.Push, Repo: "Lab/Estate"}}, woken{"estate"}},
		{"pull request", []webhooks.Event{{Kind: webhooks.PullRequest, Repo: "lab/estate", Number: 7}}, woken{"pull 7"}},
		{"rerun", []webhooks.Event{{Kind: webhooks.Rerequest, Repo: "lab/estate", Number: 7, Commit: "abc"}},
			woken{"check abc again", "until abc is shown", "show 7 again", "pull 7"}},
		{"rerun of a fork's", []webhooks.Event{{Kind: webhooks.Rerequest, Repo: "lab/estate", Commit: "abc"}},
			woken{"check abc again", "until abc is shown", "show 0 again", "pulls"}},
		{"rerun of two", []webhooks.Event{{Kind: webhooks.Rerequest, Repo: "lab/estate", Number: 9, Commit: "abc"},
			{Kind: webhooks.Rerequest, Repo: "lab/estate", Number: 7, Commit: "abc"}},
			woken{"check abc again", "until abc is shown", "show 7 again", "pull 7", "check abc again", "until abc is shown",
				"show 9 again", "pull 9"}},
		{"a group of the merge queue",
			[]webhooks.Event{{Kind: webhooks.MergeGroup, Repo: "lab/estate", Ref: "refs/heads/gh-readonly-queue/main/pr-7-abc",
				Commit: "abc"}}, woken{"group refs/heads/gh-readonly-queue/main/pr-7-abc"}},
		{"what could not be read", []webhooks.Event{{Kind: webhooks.Unread}}, woken{"estate", "pulls"}},
		{"nothing", nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got woken
			d := webhooks.Delivery{ID: "d-9", Sender: "ana", Events: tc.events}
			require.NoError(t, c.concerns(d, slog.New(slog.DiscardHandler)))
			for _, w := range workOf(d) {
				(&dispatcher{&got, &got, func(w work) { got = append(got, "until "+w.Commit+" is shown") }}).start(w)
			}
			require.Equal(t, tc.want, got)
		})
	}
	for _, kind := range []webhooks.Kind{webhooks.Push, webhooks.PullRequest, webhooks.Rerequest, webhooks.Command, webhooks.MergeGroup} {
		for _, repo := range []string{"lab/other", "other/estate", "lab/estate/", "evil/lab/estate", ""} {
			var log bytes.Buffer
			err := c.concerns(webhooks.Delivery{ID: "d-9", Events: []webhooks.Event{{Kind: kind, Repo: repo, Number: 7}}},
				slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
			require.ErrorIs(t, err, webhooks.ErrForeign, "%s of %q", kind, repo)
			require.Contains(t, log.String(), "d-9")
		}
	}
}

// Berth's own writes do not start work, or it would trigger itself forever. A user's
// writes with the token that Berth also uses do start work.
func TestOwnWritingIsIgnored(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for login, own := range map[string]bool{"berth-lab[bot]": true, "ana": false, "": false} {
		c := &Config{Forge: &github.Config{Owner: "lab", Repository: "estate", Login: login}}
		for _, kind := range []webhooks.Kind{webhooks.PullRequest, webhooks.Rerequest, webhooks.Command} {
			err := c.concerns(webhooks.Delivery{Sender: login, Events: []webhooks.Event{{Kind: kind, Repo: "lab/estate", Number: 7}}}, log)
			require.Equal(t, own, errors.Is(err, webhooks.ErrOwn), "%s by %q", kind, login)
		}
		require.NoError(t, c.concerns(webhooks.Delivery{Sender: login, Events: []webhooks.Event{{Kind: webhooks.Push, Repo: "lab/estate"}}},
			log))
		require.NoError(t, c.concerns(webhooks.Delivery{Sender: "olga",
			Events: []webhooks.Event{{Kind: webhooks.Command, Repo: "lab/estate"}}}, log))
	}
}

// A request to rerun checks is done once both checks were reported after the last
// such request, for every requester.
func TestRerunsAreDoneOnceReported(t *testing.T) {
	var done woken
	r := newReruns()
	ask := func(pull int, commit, as string) {
		r.request(work{Do: reconciler.TaskPull, Pull: pull, Commit: commit}, func() { done = append(done, as) })
	}
	show := func(commit string, checks ...string) {
		for _, c := range checks {
			r.reporting(commit, c)()
		}
	}
	both := []string{plan.CheckValidate, plan.CheckPlan}
	show("abc", both...)
	ask(7, "abc", "first")
	show("other", both...)
	show("abc", plan.CheckPlan, plan.CheckPlan)
	require.Empty(t, done)
	begun := r.reporting("abc", plan.CheckValidate)
	ask(7, "abc", "second")
	ask(9, "abc", "of another pull request")
	begun() // it was shown as it had been asked for before
	show("abc", plan.CheckPlan)
	require.Empty(t, done)
	show("abc", both...)
	require.ElementsMatch(t, woken{"second", "of another pull request"}, done)
	require.Empty(t, r.byCommit)
	ask(7, "abc", "third")
	r.drop("abc")
	show("abc", both...)
	require.Len(t, done, 2)
	require.Empty(t, r.byCommit)
}
