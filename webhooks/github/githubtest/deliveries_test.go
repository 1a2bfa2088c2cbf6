package githubtest_test

import (
	"crypto"
	cryptorand "crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	gh "github.com/google/go-github/v62/github"
	"github.com/stretchr/testify/require"

	"berth/webhooks/github/githubtest"
)

// A failed delivery is in the log, which is paged by cursor, and is delivered again
// with the same id on request.
func TestDeliveryLog(t *testing.T) {
	t.Parallel()
	now := &clock{t: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	s, w := start(t, func(o *githubtest.Options) {
		o.Now, o.Permissions["adi"] = now.now, "admin"
		o.Tokens["adi"] = githubtest.Token{Login: "adi"}
	})
	c := client(t, s, "adi")
	s.Settle()
	hooks, _, err := c.Repositories.ListHooks(ctx, "lab", "estate", nil)
	require.NoError(t, err)
	require.Empty(t, hooks, "a new repository has no webhook")
	var code atomic.Int32
	code.Store(202)
	var ids []string
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ids = append(ids, r.Header.Get("X-GitHub-Delivery"))
		w.WriteHeader(int(code.Load()))
		fmt.Fprint(w, "thanks")
	}))
	defer receiver.Close()
	s.SetWebhook(receiver.URL + "/webhooks/github")
	now.add(time.Hour)
	first := len(s.Deliveries())

	w.commit("b", "a.yaml", "a: 1\n") // arrives
	s.Settle()
	code.Store(503)
	_, err = s.OpenPull("b", "b", "ana") // does not
	require.NoError(t, err)
	s.Settle()
	code.Store(202)
	for _, a := range []githubtest.Attempt{{Fails: true}, {Unheard: true}} {
		s.SetSchedule(func(githubtest.Delivery) []githubtest.Attempt { return []githubtest.Attempt{a} })
		w.commit("b", "a.yaml", fmt.Sprint("a: ", a))
		s.Settle()
	}
	s.SetSchedule(nil)
	require.Len(t, ids, 4, "two of six deliveries failed")

	hooks, _, err = c.Repositories.ListHooks(ctx, "lab", "estate", nil)
	require.NoError(t, err)
	require.Len(t, hooks, 1)
	require.Equal(t, receiver.URL+"/webhooks/github", hooks[0].GetConfig().GetURL())
	_, _, err = client(t, s, "ana").Repositories.ListHooks(ctx, "lab", "estate", nil)
	require.Equal(t, 404, status(t, err), "only who runs the repository sees them")
	hook := hooks[0].GetID()

	var log []*gh.HookDelivery
	opt := &gh.ListCursorOptions{PerPage: 2}
	for {
		page, resp, err := c.Repositories.ListHookDeliveries(ctx, "lab", "estate", hook, opt)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), 2)
		log = append(log, page...)
		if resp.Cursor == "" {
			break
		}
		opt.Cursor = resp.Cursor
	}
	require.Len(t, log, first+6)
	var codes []int
	for _, d := range log[:6] {
		codes = append(codes, d.GetStatusCode())
	}
	require.Equal(t, []int{504, 504, 502, 502, 503, 202}, codes, "the newest first")
	lost := log[4]
	require.Equal(t, "pull_request", lost.GetEvent())
	whole, _, err := c.Repositories.GetHookDelivery(ctx, "lab", "estate", hook, lost.GetID())
	require.NoError(t, err)
	require.Contains(t, string(*whole.Request.RawPayload), `"opened"`)
	require.Equal(t, lost.GetGUID(), whole.Request.GetHeaders()["X-GitHub-Delivery"])
	require.NoError(t, s.Redeliver(lost.GetGUID()))
	s.Settle()
	require.Equal(t, lost.GetGUID(), ids[len(ids)-1])
	page, _, err := c.Repositories.ListHookDeliveries(ctx, "lab", "estate", hook, &gh.ListCursorOptions{PerPage: 1})
	require.NoError(t, err)
	require.True(t, page[0].GetRedelivery())
	require.Equal(t, 202, page[0].GetStatusCode())
	require.NotEqual(t, lost.GetID(), page[0].GetID())

	now.add(72 * time.Hour)
	page, _, err = c.Repositories.ListHookDeliveries(ctx, "lab", "estate", hook, nil)
	require.NoError(t, err)
	require.Len(t, page, 7, "the log covers three days")
	now.add(time.Hour)
	_, _, err = c.Repositories.GetHookDelivery(ctx, "lab", "estate", hook, lost.GetID())
	require.Equal(t, 404, status(t, err))
}

// Only intended losses and repetitions happen, and the same random source makes the
// same schedule.
func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	var got []string
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		got = append(got, r.Header.Get("X-GitHub-Delivery"))
	}))
	defer receiver.Close()
	s, _ := start(t, nil)
	s.Settle()
	s.SetWebhook(receiver.URL)
	bad := githubtest.Weather{Lost: 0.2, Doubled: 0.2, Late: 0.4, Fails: 0.1}
	plan := func(seed uint64) (want map[string]int) {
		want = map[string]int{}
		how := githubtest.RandomSchedule(rand.New(rand.NewPCG(seed, 0)), bad)
		s.SetSchedule(func(d githubtest.Delivery) []githubtest.Attempt {
			list := how(d)
			for _, a := range list {
				if !a.Fails {
					want[d.ID]++
				}
			}
			return list
		})
		return want
	}
	shape := func(seed uint64) (lost, doubled, disorder int) {
		want := plan(seed)
		got = nil
		for range 200 {
			s.Ping()
		}
		s.Settle()
		have := map[string]int{}
		for i, id := range got {
			if have[id]++; i > 0 && id < got[i-1] {
				disorder++
			}
		}
		require.Equal(t, want, have)
		for _, n := range have {
			if n > 1 {
				doubled++
			}
		}
		return 200 - len(have), doubled, disorder
	}
	lost, doubled, disorder := shape(1)
	require.Greater(t, lost, 20)
	require.Greater(t, doubled, 10)
	require.Greater(t, disorder, 10)
	l2, d2, o2 := shape(1)
	require.Equal(t, []int{lost, doubled, disorder}, []int{l2, d2, o2})
}

// The App owns the delivery log of its webhook, and the events contain the
// installation.
func TestAppsHook(t *testing.T) {
	t.Parallel()
	key, app := newApp(t)
	app.Permissions = map[string]string{"checks": "write", "contents": "read"}
	s, _ := start(t, func(o *githubtest.Options) { o.App = app })
	s.Ping()
	s.Settle()
	c := client(t, s, assertion(t, key, app.ID, time.Now()))
	log, _, err := c.Apps.ListHookDeliveries(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, "ping", log[0].GetEvent())
	require.Equal(t, app.Installation, log[0].GetInstallationID())
	_, _, err = c.Apps.GetHookDelivery(ctx, log[0].GetID())
	require.NoError(t, err)
	_, _, err = client(t, s, "app").Apps.ListHookDeliveries(ctx, nil)
	require.Equal(t, 401, status(t, err), "it takes the App's own signature")
	hooks, _, err := client(t, s, "app").Repositories.ListHooks(ctx, "lab", "estate", nil)
	require.NoError(t, err)
	require.Empty(t, hooks)

	_, _, err = c.Apps.CreateInstallationToken(ctx, app.Installation,
		&gh.InstallationTokenOptions{Permissions: &gh.InstallationPermissions{Contents: gh.String("write")}})
	require.Equal(t, 422, status(t, err), "more than was granted")
	token, _, err := c.Apps.CreateInstallationToken(ctx, app.Installation,
		&gh.InstallationTokenOptions{Permissions: &gh.InstallationPermissions{Contents: gh.String("read")}})
	require.NoError(t, err)
	_, _, err = client(t, s, token.GetToken()).PullRequests.List(ctx, "lab", "estate", nil)
	require.Equal(t, 403, status(t, err))
}

func newApp(t *testing.T) (*rsa.PrivateKey, *githubtest.App) {
	t.Helper()
	key, err := rsa.GenerateKey(cryptorand.Reader, 2048)
	require.NoError(t, err)
	return key, &githubtest.App{ID: 7, Installation: 70, Slug: "berth", Key: &key.PublicKey}
}

// assertion returns the JWT by which an App authenticates.
func assertion(t *testing.T, key *rsa.PrivateKey, id int64, now time.Time) string {
	t.Helper()
	b64 := base64.RawURLEncoding
	claims := fmt.Sprintf(`{"iss":"%d","iat":%d,"exp":%d}`, id, now.Unix(), now.Add(5*time.Minute).Unix())
	signed := b64.EncodeToString([]byte(`{"alg":"RS256"}`)) + "." + b64.EncodeToString([]byte(claims))
	digest := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(cryptorand.Reader, key, crypto.SHA256, digest[:])
	require.NoError(t, err)
	return signed + "." + b64.EncodeToString(signature)
}
