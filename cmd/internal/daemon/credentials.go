package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"berth/reconciler/gitrepo"
	"berth/webhooks/github"
	"berth/webhooks/secret"
)

// appUser is the user that GitHub wants beside an App's token over HTTP.
const appUser = "x-access-token"

// forgeTokens are Berth's credentials at the forge, one for each purpose: the token
// that reports cannot write files, and the token that writes files cannot report.
type forgeTokens struct {
	report github.TokenSource
	git    github.TokenSource // nil: repository.token is used
	app    github.TokenSource // the App itself; nil: none is configured
}

// forgeTokens returns the configured token, or those of the App. Secrets are read
// when they are used; only the App's key is checked here.
func (c *Config) forgeTokens() (*forgeTokens, error) {
	gh := c.GitHub
	if gh.App == nil {
		return &forgeTokens{report: func(context.Context) (string, error) { return gh.Token.Read() }}, nil
	}
	source := func(make func(github.App) (github.TokenSource, error)) *appTokens {
		return &appTokens{key: &gh.App.Key, make: func(key []byte) (github.TokenSource, error) {
			return make(github.App{BaseURL: gh.APIURL, ID: gh.App.ID, Installation: gh.App.Installation, Repo: gh.Repository, Key: key})
		}}
	}
	with := func(permissions map[string]string) *appTokens {
		return source(func(a github.App) (github.TokenSource, error) {
			a.Permissions = permissions
			return a.Tokens()
		})
	}
	app := source(github.App.Assertions)
	_, err := app.source()
	return &forgeTokens{report: with(github.Reporting()).token, git: with(github.Contents()).token, app: app.token}, err
}

// limiters are the rate limiters of a process. Estates with the same identity at the
// forge share one, as the forge's limits cover all that they do. The state of each is
// kept in a file in the first estate's cache, so that a restart continues with it.
type limiters struct {
	dir string
	log *slog.Logger

	mu         sync.Mutex
	byIdentity map[string]*github.Pacer
}

func newLimiters(dir string, log *slog.Logger) *limiters {
	return &limiters{dir: dir, log: log, byIdentity: map[string]*github.Pacer{}}
}

// of returns the rate limiter of an estate; nil: no forge is configured.
func (l *limiters) of(c *Config) *github.Pacer {
	identity := c.forgeIdentity()
	if identity == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.byIdentity[identity]; p != nil {
		return p
	}
	path := filepath.Join(l.dir, fmt.Sprintf("pace-%.8x.json", sha256.Sum256([]byte(identity))))
	p, err := github.OpenPacer(path, time.Now(), func(err error) {
		l.log.Warn("rate-limit state not saved; a restart may exceed the forge's limits", "identity", identity, "error", err)
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		l.log.Info("no saved rate-limit state; starting at half the forge's limits", "identity", identity, "file", path)
	case err != nil:
		l.log.Warn("rate-limit state unreadable; starting at the minimum rate", "identity", identity, "error", err)
	}
	l.byIdentity[identity] = p
	return p
}

// forgeIdentity names the credential that the estate shows to the forge, or "".
func (c *Config) forgeIdentity() string {
	switch gh := c.GitHub; {
	case gh == nil:
		return ""
	case gh.App != nil:
		return fmt.Sprintf("App %d, installation %d at %s", gh.App.ID, gh.App.Installation, gh.APIURL)
	default:
		return fmt.Sprintf("the token in %s%s at %s", gh.Token.File, gh.Token.Env, gh.APIURL)
	}
}

// appTokens makes tokens with the key that the App's file has now.
type appTokens struct {
	key  *secret.Ref
	make func(key []byte) (github.TokenSource, error)

	mu     sync.Mutex
	made   string // the key of tokens
	tokens github.TokenSource
}

func (a *appTokens) source() (github.TokenSource, error) {
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

// repositoryAuth returns the credential for the estate's repository. Without a token
// of its own, it is the App's token for Git, if the repository is at that forge; the
// token is sent nowhere else.
func (c *Config) repositoryAuth(app github.TokenSource) gitrepo.AuthFunc {
	r := &c.Repository
	if r.Token == nil && app != nil && sameForge(c.GitHub.APIURL, r.URL) {
		return func(ctx context.Context) (gitrepo.Credentials, error) {
			token, err := app(ctx)
			user := r.Username
			if user == "" {
				user = appUser
			}
			return gitrepo.Credentials{User: user, Token: token, Source: "of the App with forge.app.key " + c.GitHub.App.Key.Place()}, err
		}
	}
	return c.gitAuth("repository.token", r.URL, r.Username, r.Token)
}

// gitAuth returns the SSH key for an ssh URL, and the token of a field for others.
func (c *Config) gitAuth(field, to, user string, token *secret.Ref) gitrepo.AuthFunc {
	if strings.HasPrefix(to, "ssh://") {
		return func(context.Context) (gitrepo.Credentials, error) {
			key, err := os.ReadFile(c.Repository.SSHKey)
			if err != nil {
				err = fmt.Errorf("repository.ssh_key: %w", err)
			}
			return gitrepo.Credentials{User: user, SSHKey: key, Source: "repository.ssh_key in " + c.Repository.SSHKey}, err
		}
	}
	return func(context.Context) (gitrepo.Credentials, error) {
		value, err := token.Read()
		if err != nil {
			err = fmt.Errorf("%s: %w", field, err)
		}
		if value == "" {
			return gitrepo.Credentials{User: user}, err
		}
		return gitrepo.Credentials{User: user, Token: value, Source: field + " in " + token.Place()}, nil
	}
}

// sameForge reports whether a repository is at the host of an API: the same host, or
// github.com for api.github.com.
func sameForge(api, repository string) bool {
	a, errA := url.Parse(api)
	r, errR := url.Parse(repository)
	if errA != nil || errR != nil || a.Scheme != r.Scheme {
		return false
	}
	return strings.EqualFold(a.Host, r.Host) || strings.EqualFold(a.Host, "api."+r.Host)
}

// webhookSecrets returns the secrets that may sign deliveries, as they are now. The
// error is about those that cannot be read; the others are valid.
func (c *Config) webhookSecrets() (all [][]byte, err error) {
	add := func(name string, s *secret.Ref) {
		value, bad := s.Read()
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("forge.%s: %w", name, bad))
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
