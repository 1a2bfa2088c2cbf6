package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/webhooks"
)

// woken notes what was asked of the loop and of the forge.
type woken []string

func (w *woken) Enqueue(i reconciler.Item) { *w = append(*w, i.String()) }
func (w *woken) ShowAgain(pull int)        { *w = append(*w, fmt.Sprintf("show %d again", pull)) }
func (w *woken) Rerequest(commit string)   { *w = append(*w, "check "+commit+" again") }

func TestWake(t *testing.T) {
	for _, c := range []struct {
		name  string
		event webhooks.Event
		want  woken
	}{
		{"push", webhooks.Event{Kind: webhooks.Push, Repo: "lab/estate", Ref: "refs/heads/main"}, woken{"estate"}},
		{"names are written as people like", webhooks.Event{Kind: webhooks.Push, Repo: "Lab/Estate"}, woken{"estate"}},
		{"pull request", webhooks.Event{Kind: webhooks.PullRequest, Repo: "lab/estate", Number: 7}, woken{"pull 7"}},
		{"rerun", webhooks.Event{Kind: webhooks.Rerequest, Repo: "lab/estate", Number: 7, Commit: "abc"}, woken{"check abc again", "show 7 again", "pull 7"}},
		{"rerun of a fork's", webhooks.Event{Kind: webhooks.Rerequest, Repo: "lab/estate", Commit: "abc"}, woken{"check abc again", "show 0 again", "pulls"}},
		{"what could not be read", webhooks.Event{Kind: webhooks.Unread}, woken{"estate", "pulls"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got woken
			w := waker{repository: "lab/estate", loop: &got, forge: &got, log: slog.New(slog.DiscardHandler)}
			require.NoError(t, w.ours(c.event))
			w.wake(c.event)
			require.Equal(t, c.want, got)
		})
	}
	for _, kind := range []webhooks.Kind{webhooks.Push, webhooks.PullRequest, webhooks.Rerequest} {
		for _, repo := range []string{"lab/other", "other/estate", "lab/estate/", "evil/lab/estate", ""} {
			var got woken
			var log bytes.Buffer
			w := waker{repository: "lab/estate", loop: &got, forge: &got, log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
			require.ErrorIs(t, w.ours(webhooks.Event{Kind: kind, Repo: repo, Number: 7, Delivery: "d-9"}), webhooks.ErrForeign, "%s of %q", kind, repo)
			require.Empty(t, got)
			require.Contains(t, log.String(), "d-9")
		}
	}
}
