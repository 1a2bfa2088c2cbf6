package github

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"berth/webhooks/forge"
	"berth/webhooks/secret"
)

// appUser is the user that GitHub wants beside an App's token over HTTP.
const appUser = "x-access-token"

// Tokens are Berth's credentials at GitHub, one for each purpose: the token that
// reports cannot write files, and the token that writes files cannot report.
type Tokens struct {
	Report TokenSource
	Git    TokenSource // nil: the section has no App
	App    TokenSource // the App itself; nil: the section has none
}

// Tokens returns the configured token, or those of the App. Secrets are read when they
// are used; only the App's key is checked here. With an error about the key the tokens
// are usable once the key is right.
func (c *Config) Tokens() (*Tokens, error) {
	if c.App == nil {
		return &Tokens{Report: func(context.Context) (string, error) { return c.Token.Read() }}, nil
	}
	source := func(make func(App) (TokenSource, error)) *appTokens {
		return &appTokens{key: &c.App.Key, make: func(key []byte) (TokenSource, error) {
			return make(App{BaseURL: c.APIURL, ID: c.App.ID, Installation: c.App.Installation, Repo: c.Repository, Key: key})
		}}
	}
	with := func(permissions map[string]string) *appTokens {
		return source(func(a App) (TokenSource, error) {
			a.Permissions = permissions
			return a.Tokens()
		})
	}
	app := source(App.Assertions)
	_, err := app.source()
	return &Tokens{Report: with(Reporting()).token, Git: with(Contents()).token, App: app.token}, err
}

// Access implements forge.Section.
func (c *Config) Access() (forge.Access, error) {
	tokens, err := c.Tokens()
	access := forge.Access{Open: func(o forge.Options) (forge.Client, error) {
		pacer, _ := o.Limiter.(*Pacer)
		f, err := New(Options{
			BaseURL: c.APIURL, Owner: c.Owner, Repo: c.Repository, Estate: o.Estate, Login: c.Login, Report: c.Report,
			Token: tokens.Report, App: tokens.App, Pacer: pacer, Log: o.Log, Registry: o.Registry,
		})
		if err != nil {
			return nil, err
		}
		return f, nil
	}}
	if tokens.Git != nil {
		access.Git = &forge.GitToken{
			User: appUser, Source: "of the App with forge.app.key " + c.App.Key.Place(), Read: tokens.Git,
			IsFor: func(repository string) bool { return isSameServer(c.APIURL, repository) },
		}
	}
	return access, err
}

// appTokens makes tokens with the key that the App's file has now.
type appTokens struct {
	key  *secret.Ref
	make func(key []byte) (TokenSource, error)

	mu     sync.Mutex
	made   string // the key of tokens
	tokens TokenSource
}

func (a *appTokens) source() (TokenSource, error) {
	key, err := a.key.Read()
	if err != nil {
		return nil, fmt.Errorf("forge.app.key: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tokens == nil || a.made != key {
		tokens, err := a.make([]byte(key))
		if err != nil {
			return nil, fmt.Errorf("forge.app.key: %w", err)
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

// isSameServer reports whether a repository is at the host of an API: the same host, or
// github.com for api.github.com.
func isSameServer(api, repository string) bool {
	a, errA := url.Parse(api)
	r, errR := url.Parse(repository)
	if errA != nil || errR != nil || a.Scheme != r.Scheme {
		return false
	}
	return strings.EqualFold(a.Host, r.Host) || strings.EqualFold(a.Host, "api."+r.Host)
}
