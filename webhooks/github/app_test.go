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

	"berth/webhooks/github"
	"berth/webhooks/github/githubtest"
)

// TestAppTokens runs a Forge for hours on tokens that last one.
func TestAppTokens(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	b := newBed(t, func(o *githubtest.Options) {
		o.App = &githubtest.App{ID: 7, Installation: 70, Slug: "berth", Key: &key.PublicKey}
	})
	app := github.App{BaseURL: b.srv.APIURL(), ID: 7, Installation: 70, Repo: "estate", Now: b.time.now, Key: pkcs1, Permissions: github.Reporting()}
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
