package github_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/webhooks/github"
	"berth/webhooks/github/githubtest"
)

// A Forge runs for hours on tokens that last one hour.
func TestAppTokensAreRenewedBeforeExpiry(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	b := newBed(t, func(o *githubtest.Options) {
		o.App = &githubtest.App{ID: 7, Installation: 70, Slug: "berth", Key: &key.PublicKey}
	})
	app := github.App{BaseURL: b.srv.APIURL(), ID: 7, Installation: 70, Repo: "estate", Now: b.time.now, Key: pkcs1,
		Permissions: github.Reporting()}
	tokens, err := app.Tokens()
	require.NoError(t, err)

	pr := b.pull("two-workers")
	f := b.forge(func(o *github.Options) { o.Token = tokens })
	for hour := range 3 {
		require.NoError(t, show(f, pr, verdict(fmt.Sprint(hour), hour)))
		require.NoError(t, b.time.sleep(bg(), time.Hour))
	}
	require.Len(t, b.srv.Checks(pr.Head), 3)
	made := 0
	for _, r := range b.srv.Requests() {
		if strings.HasSuffix(r.Op, "/access_tokens") {
			made++
			require.Equal(t, 201, r.Status)
		}
	}
	require.Equal(t, 3, made, "one for each hour")

	// Many at once get one.
	b.srv.Forget()
	app.Key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	tokens, err = app.Tokens()
	require.NoError(t, err)
	var wg sync.WaitGroup
	got := make(chan string, 8)
	for range 8 {
		wg.Go(func() {
			token, err := tokens(bg())
			if err == nil {
				got <- token
			}
		})
	}
	wg.Wait()
	close(got)
	first := <-got
	require.NotEmpty(t, first)
	for token := range got {
		require.Equal(t, first, token)
	}
	require.Len(t, b.srv.Requests(), 1)

	for name, change := range map[string]func(*github.App){
		"another App":          func(a *github.App) { a.ID = 8 },
		"another installation": func(a *github.App) { a.Installation = 71 },
		"a clock gone wrong":   func(a *github.App) { a.Now = func() time.Time { return time.Unix(0, 0) } },
		"another repository":   func(a *github.App) { a.Repo = "other" },
	} {
		wrong := app
		change(&wrong)
		source, err := wrong.Tokens()
		require.NoError(t, err, name)
		_, err = source(bg())
		require.ErrorContains(t, err, "check the App's", name)
	}
	for name, change := range map[string]func(*github.App){
		"no key":      func(a *github.App) { a.Key = nil },
		"half a key":  func(a *github.App) { a.Key = a.Key[:200] },
		"no id":       func(a *github.App) { a.ID = 0 },
		"no base URL": func(a *github.App) { a.BaseURL = "" },
		"no repo":     func(a *github.App) { a.Repo = "" },
		"no limit":    func(a *github.App) { a.Permissions = nil },
	} {
		wrong := app
		change(&wrong)
		_, err := wrong.Tokens()
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), string(pkcs1[60:100]), name)
	}
}

// appBed is a bed with a forge on an App's tokens, which has one token already.
func appBed(t *testing.T) (*bed, *github.Forge, reconciler.PullRequest) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	b := newBed(t, func(o *githubtest.Options) {
		o.App = &githubtest.App{ID: 7, Installation: 70, Slug: "berth", Key: &key.PublicKey}
	})
	tokens, err := github.App{
		BaseURL: b.srv.APIURL(), ID: 7, Installation: 70, Repo: "estate", Now: b.time.now, Permissions: github.Reporting(),
		Key: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
	}.Tokens()
	require.NoError(t, err)
	pr := b.pull("two-workers")
	f := b.forge(func(o *github.Options) { o.Token = tokens })
	_, err = f.Pull(bg(), pr.Number)
	require.NoError(t, err)
	b.srv.Forget()
	return b, f, pr
}

const opToken = "POST /app/installations/{installation_id}/access_tokens"

// Without a token no request is sent, and the failure counts neither as an
// uncertain write nor as one to retry.
func TestTokenLimitStopsRequests(t *testing.T) {
	t.Parallel()
	b, f, pr := appBed(t)
	require.NoError(t, b.time.sleep(bg(), time.Hour))
	b.srv.Inject(githubtest.Fault{Op: opToken, Status: 429, Header: map[string]string{"Retry-After": "300"}})
	start := b.time.now()
	for _, ask := range []func() error{
		func() error { return show(f, pr, verdict("k", 0)) },
		func() error { _, err := f.Pull(bg(), pr.Number); return err },
	} {
		var limit *github.LimitError
		require.ErrorAs(t, ask(), &limit)
		require.Equal(t, start.Add(5*time.Minute), limit.Until)
		require.Len(t, b.srv.Requests(), 1, "the one for a token")
		require.Equal(t, start, b.time.now())
	}
	require.NoError(t, b.time.sleep(bg(), 5*time.Minute))

	// Limits without a stated end last longer each time; another error is not a limit.
	for _, wait := range []time.Duration{time.Minute, 2 * time.Minute} {
		b.srv.Inject(githubtest.SecondaryLimit(403, 0))
		_, err := f.Pull(bg(), pr.Number)
		var limit *github.LimitError
		require.ErrorAs(t, err, &limit)
		require.Equal(t, wait, limit.Until.Sub(b.time.now()))
		require.NoError(t, b.time.sleep(bg(), wait))
	}
	for _, fault := range []githubtest.Fault{{Op: opToken, Status: 500}, {Op: opToken}} {
		b.srv.Forget()
		b.srv.Inject(fault)
		require.Error(t, show(f, pr, verdict("k", 0)))
		require.Len(t, b.srv.Requests(), 1)
	}
	require.NoError(t, show(f, pr, verdict("k", 0)))
}

func TestRefusedTokenIsReplacedOnce(t *testing.T) {
	t.Parallel()
	b, f, pr := appBed(t)
	ops := func() (out []string) {
		for _, r := range b.srv.Requests() {
			out = append(out, r.Op)
		}
		b.srv.Forget()
		return out
	}
	for _, op := range []string{opChecks, opNewCheck} {
		b.srv.Inject(githubtest.Fault{Op: op, Status: 401, Message: "Bad credentials"})
		pr = b.pull(strings.ToLower(strings.Fields(op)[0]))
		b.srv.Forget()
		require.NoError(t, f.Report(bg(), pr.Head, verdict("k", 0)))
		want := []string{opChecks, opToken, opChecks, opNewCheck}
		if op == opNewCheck {
			want = []string{opChecks, opNewCheck, opToken, opNewCheck}
		}
		require.Equal(t, want, ops())
		require.Len(t, b.srv.Checks(pr.Head), 1)
	}
	b.srv.Inject(githubtest.Fault{Op: opPull, Status: 401, Message: "Bad credentials", Times: 2})
	_, err := f.Pull(bg(), pr.Number)
	require.ErrorContains(t, err, "token")
	require.Equal(t, []string{opPull, opToken, opPull}, ops())
}
