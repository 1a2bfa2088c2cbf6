package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"

	"berth/reconciler/gitrepo"
	"berth/webhooks/github"
)

// appUser is the user GitHub wants beside an App's token over HTTP.
const appUser = "x-access-token"

// forgeTokens are the tokens for the forge's API: the one that is configured,
// or the App's. All secrets are read when they are used.
func (c *config) forgeTokens() (github.TokenSource, error) {
	gh := c.GitHub
	if gh.App == nil {
		return func(context.Context) (string, error) { return gh.Token.read() }, nil
	}
	app := &appTokens{key: &gh.App.Key, app: github.App{
		BaseURL: gh.APIURL, ID: gh.App.ID, Installation: gh.App.Installation, Repo: gh.Repository,
	}}
	_, err := app.source() // a key that is none is told at the start
	return app.token, err
}

// appTokens makes an App's tokens with the key of now.
type appTokens struct {
	app github.App
	key *secret

	mu     sync.Mutex
	made   string // the key tokens are made with
	tokens github.TokenSource
}

func (a *appTokens) source() (github.TokenSource, error) {
	key, err := a.key.read()
	if err != nil {
		return nil, fmt.Errorf("github.app.key: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tokens == nil || a.made != key {
		app := a.app
		app.Key = []byte(key)
		tokens, err := app.Tokens()
		if err != nil {
			return nil, fmt.Errorf("github.app.key: %w", err)
		}
		a.made, a.tokens = key, tokens
	}
	return a.tokens, nil
}

func (a *appTokens) token(ctx context.Context) (string, error) {
	tokens, err := a.source()
	if err != nil {
		return "", err
	}
	return tokens(ctx)
}

// repositoryAuth says who Berth is at the repository. Without a token of its
// own, an App's is used where the repository is the forge's; it is shown to
// nobody else.
func (c *config) repositoryAuth(app github.TokenSource) gitrepo.AuthFunc {
	r := &c.Repository
	if r.Token == nil && c.GitHub != nil && c.GitHub.App != nil && sameForge(c.GitHub.APIURL, r.URL) {
		return func(ctx context.Context) (gitrepo.Credentials, error) {
			token, err := app(ctx)
			user := r.Username
			if user == "" {
				user = appUser
			}
			return gitrepo.Credentials{User: user, Token: token}, err
		}
	}
	return c.gitAuth(r.URL, r.Username, r.Token)
}

// gitAuth is a key for an ssh URL, and a token for others.
func (c *config) gitAuth(to, user string, token *secret) gitrepo.AuthFunc {
	if strings.HasPrefix(to, "ssh://") {
		return func(context.Context) (gitrepo.Credentials, error) {
			key, err := os.ReadFile(c.Repository.SSHKey)
			return gitrepo.Credentials{User: user, SSHKey: key}, err
		}
	}
	return func(context.Context) (gitrepo.Credentials, error) {
		value, err := token.read()
		return gitrepo.Credentials{User: user, Token: value}, err
	}
}

// sameForge says whether a repository is where the API is: on the same host, or
// on github.com for api.github.com.
func sameForge(api, repository string) bool {
	a, errA := url.Parse(api)
	r, errR := url.Parse(repository)
	if errA != nil || errR != nil || a.Scheme != r.Scheme {
		return false
	}
	return strings.EqualFold(a.Host, r.Host) || strings.EqualFold(a.Host, "api."+r.Host)
}

// webhookSecrets are those deliveries may be signed with, as they are now.
func (c *config) webhookSecrets() ([][]byte, error) {
	first, err := c.GitHub.WebhookSecret.read()
	if err != nil {
		return nil, fmt.Errorf("github.webhook_secret: %w", err)
	}
	out := [][]byte{[]byte(first)}
	if c.GitHub.WebhookSecretNext != nil {
		next, err := c.GitHub.WebhookSecretNext.read()
		if err != nil {
			return nil, fmt.Errorf("github.webhook_secret_next: %w", err)
		}
		out = append(out, []byte(next))
	}
	return out, nil
}
