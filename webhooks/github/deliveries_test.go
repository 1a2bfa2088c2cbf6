package github_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/webhooks"
	"berth/webhooks/forge"
	"berth/webhooks/github"
	"berth/webhooks/github/githubtest"
)

// As the App, and with a token for the repository's webhooks.
func TestDeliveryLogIsRead(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	secret := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	for _, asApp := range []bool{true, false} {
		code := http.StatusAccepted
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		t.Cleanup(receiver.Close)
		b := newBed(t, func(o *githubtest.Options) {
			o.Secret, o.WebhookURL = []byte("s"), receiver.URL+"/webhooks/github"
			o.Permissions = map[string]string{"ana": "admin"}
			o.Tokens["reader"] = githubtest.Token{Login: "bob"}
			if asApp {
				o.App = &githubtest.App{ID: 7, Installation: 70, Slug: "berth", Key: &key.PublicKey}
			}
		})
		f := b.forge(func(o *github.Options) {
			if !asApp {
				o.Token, o.Login = staticToken("pat"), "ana"
				return
			}
			o.App, err = github.App{BaseURL: b.srv.APIURL(), ID: 7, Installation: 70, Repo: "estate", Key: secret,
				Now: b.time.now}.Assertions()
			require.NoError(t, err)
		})
		old := b.pull("old")
		b.srv.Settle()
		require.NoError(t, b.time.sleep(bg(), time.Hour))
		since := b.time.now()
		code = http.StatusServiceUnavailable
		for range 130 { // more than a page
			_, err := b.srv.Comment(old.Number, "ana", "/berth plan")
			require.NoError(t, err)
		}
		b.srv.Settle()
		code = http.StatusAccepted
		require.NoError(t, b.time.sleep(bg(), time.Hour))
		require.NoError(t, b.srv.Redeliver(b.srv.Deliveries()[len(b.srv.Deliveries())-1].ID))
		b.srv.Settle()

		got, err := f.Deliveries(bg(), since)
		require.NoError(t, err)
		sent := b.srv.Deliveries()
		require.Len(t, got, 131)
		for i, d := range got { // the newest first
			want := sent[len(sent)-1-i]
			require.Equal(t, []any{want.ID, "issue_comment", false, false, want.Status},
				[]any{d.ID, d.Event, d.IsIgnored, d.IsRerun, d.Code})
			require.False(t, d.When.Before(since))
		}
		require.Equal(t, got[0].ID, got[1].ID, "redelivered")
		require.Equal(t, []int{202, 503}, []int{got[0].Code, got[1].Code})
		d, err := f.Delivery(bg(), got[1])
		require.NoError(t, err)
		same, err := github.Webhook().Read(got[1].ID, "issue_comment", "application/json", sent[len(sent)-2].Body)
		require.NoError(t, err)
		require.Equal(t, same, d)
		require.Equal(t, webhooks.Command, d.Events[0].Kind)

		all, err := f.Deliveries(bg(), time.Time{})
		require.NoError(t, err)
		require.Greater(t, len(all), len(got))

		wrong := got[1]
		wrong.ID = "another"
		_, err = f.Delivery(bg(), wrong)
		require.ErrorContains(t, err, "no body of another")
		wrong.Entry = nil
		_, err = f.Delivery(bg(), wrong)
		require.ErrorIs(t, err, reconciler.ErrNotFound)

		// A missing permission and a missing webhook are errors.
		reader := b.forge(func(o *github.Options) { o.Token, o.Login = staticToken("reader"), "bob" })
		_, err = reader.Deliveries(bg(), since)
		require.ErrorContains(t, err, "must be allowed to read the repository's webhooks")
		b.srv.SetWebhook(receiver.URL + "/elsewhere")
		if !asApp {
			_, err = f.Deliveries(bg(), since)
			require.ErrorContains(t, err, "no webhook of the repository has a URL that ends with /webhooks/github")
		}
	}
}

// The entries that were read are returned with the error. They say what their events ask for.
func TestEndlessDeliveryLogIsBounded(t *testing.T) {
	t.Parallel()
	pages := 0
	events := []string{"check_run rerequested", "check_suite requested_action", "check_run completed", "star created"}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/hooks") {
			fmt.Fprint(w, `[{"id": 1, "config": {"url": "https://berth.example/webhooks/github"}}]`)
			return
		}
		pages++
		w.Header().Set("Link", fmt.Sprintf(`<%s?cursor=%d>; rel="next"`, r.URL.Path, pages))
		event, action, _ := strings.Cut(events[(pages-1)%len(events)], " ")
		fmt.Fprintf(w, `[{"id": %d, "guid": "g-%d", "event": %q, "action": %q, "delivered_at": "2026-03-01T12:00:00Z"}]`, pages, pages,
			event, action)
	}))
	t.Cleanup(srv.Close)
	f, err := github.New(github.Options{BaseURL: srv.URL + "/", Owner: "lab", Repo: "estate", Login: "ana", Token: staticToken("pat"),
		Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	got, err := f.Deliveries(bg(), time.Time{})
	require.ErrorIs(t, err, forge.ErrLogTooLong)
	require.Positive(t, pages)
	require.Len(t, got, pages)
	require.Equal(t, "g-1", got[0].ID)
	for i, want := range []struct{ isRerun, isIgnored bool }{{true, false}, {true, false}, {false, false}, {false, true}} {
		require.Equal(t, want.isRerun, got[i].IsRerun, events[i])
		require.Equal(t, want.isIgnored, got[i].IsIgnored, events[i])
	}
}
