package main

import (
	"context"
	"errors"
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

// forgeTokens are who Berth is at the forge, for each purpose apart: what speaks
// with people can write no file, and what writes files can say nothing.
type forgeTokens struct {
	speak github.TokenSource
	git   github.TokenSource // nil: repository.token is used
	app   github.TokenSource // the App itself; nil: there is none
	pacer *github.Pacer      // of who speaks; nil: nobody else is who it is
}

// forgeTokens are those that are configured, or the App's. All secrets are read
// when they are used.
func (c *config) forgeTokens() (*forgeTokens, error) {
	gh := c.GitHub
	if gh.App == nil {
		return &forgeTokens{speak: func(context.Context) (string, error) { return gh.Token.read() }, pacer: c.pacer}, nil
	}
	source := func(make func(github.App) (github.TokenSource, error)) *appTokens {
		return &appTokens{key: &gh.App.Key, make: func(key []byte) (github.TokenSource, error) {
			return make(github.App{BaseURL: gh.APIURL, ID: gh.App.ID, Installation: gh.App.Installation, Repo: gh.Repository, Key: key})
		}}
	}
	may := func(permissions map[string]string) *appTokens {
		return source(func(a github.App) (github.TokenSource, error) {
			a.Permissions = permissions
			return a.Tokens()
		})
	}
	app := source(github.App.Assertions)
	_, err := app.source() // a key that is none is told at the start
	return &forgeTokens{speak: may(github.Reporting()).token, git: may(github.Contents()).token, app: app.token, pacer: c.pacer}, err
}

// sharePacers gives estates that are the same to the forge one pace: its limits
// are for all that they do.
func sharePacers(all []*config) {
	pacers := map[any]*github.Pacer{}
	for _, c := range all {
		if c.GitHub == nil {
			continue
		}
		type app struct {
			api              string
			id, installation int64
		}
		var who any
		if a := c.GitHub.App; a != nil {
			who = app{c.GitHub.APIURL, a.ID, a.Installation}
		} else {
			who = *c.GitHub.Token
		}
		if pacers[who] == nil {
			pacers[who] = github.NewPacer()
		}
		c.pacer = pacers[who]
	}
}

// appTokens makes what an App shows with the key of now.
type appTokens struct {
	key  *secret
	make func(key []byte) (github.TokenSource, error)

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
		tokens, err := a.make([]byte(key))
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
// own, the App's for Git is used where the repository is the forge's; it is shown
// to nobody else.
func (c *config) repositoryAuth(app github.TokenSource) gitrepo.AuthFunc {
	r := &c.Repository
	if r.Token == nil && app != nil && sameForge(c.GitHub.APIURL, r.URL) {
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

// webhookSecrets are those deliveries may be signed with, as they are now. The error
// is of those that cannot be read; the others count all the same.
func (c *config) webhookSecrets() (all [][]byte, err error) {
	add := func(name string, s *secret) {
		value, bad := s.read()
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("github.%s: %w", name, bad))
			return
		}
		all = append(all, []byte(value))
	}
	add("webhook_secret", &c.GitHub.WebhookSecret)
	if c.GitHub.WebhookSecretNext != nil {
		add("webhook_secret_next", c.GitHub.WebhookSecretNext)
	}
	return all, err
}
