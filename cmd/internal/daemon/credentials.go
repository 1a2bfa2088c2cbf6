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

// paces are those of a process: estates that are the same to the forge have one,
// whenever they come to be that, as its limits are for all that they do. Each is
// kept in a file in the first estate's cache, so that a restart goes on with it;
// what is lost with that costs time and nothing else.
type paces struct {
	dir string
	log *slog.Logger

	mu sync.Mutex
	by map[string]*github.Pacer // by who it is
}

func newPaces(dir string, log *slog.Logger) *paces {
	return &paces{dir: dir, log: log, by: map[string]*github.Pacer{}}
}

// of is the pace of who speaks for an estate; nil: nobody does.
func (p *paces) of(c *config) *github.Pacer {
	who := c.speaker()
	if who == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by[who] == nil {
		path := filepath.Join(p.dir, fmt.Sprintf("pace-%.8x.json", sha256.Sum256([]byte(who))))
		pacer, err := github.OpenPacer(path, time.Now(), func(err error) {
			p.log.Warn("the pace at the forge cannot be kept: a restart may go beyond its limits", "of", who, "error", err)
		})
		switch {
		case errors.Is(err, fs.ErrNotExist):
			p.log.Info("nothing tells what went out to the forge before: begins at half of its limits", "of", who, "file", path)
		case err != nil:
			p.log.Warn("what tells what went out to the forge before cannot be read: begins slowly", "of", who, "error", err)
		}
		p.by[who] = pacer
	}
	return p.by[who]
}

// speaker is who the estate is to the forge, as far as that can be told from the
// configuration; "" is nobody.
func (c *config) speaker() string {
	switch gh := c.GitHub; {
	case gh == nil:
		return ""
	case gh.App != nil:
		return fmt.Sprintf("App %d, installation %d at %s", gh.App.ID, gh.App.Installation, gh.APIURL)
	default:
		return fmt.Sprintf("the token in %s%s at %s", gh.Token.File, gh.Token.Env, gh.APIURL)
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
			return gitrepo.Credentials{User: user, Token: token, Source: "of the App with github.app.key " + c.GitHub.App.Key.place()}, err
		}
	}
	return c.gitAuth("repository.token", r.URL, r.Username, r.Token)
}

// gitAuth is a key for an ssh URL, and the token of a field for others.
func (c *config) gitAuth(field, to, user string, token *secret) gitrepo.AuthFunc {
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
		value, err := token.read()
		if err != nil {
			err = fmt.Errorf("%s: %w", field, err)
		}
		if value == "" {
			return gitrepo.Credentials{User: user}, err
		}
		return gitrepo.Credentials{User: user, Token: value, Source: field + " in " + token.place()}, nil
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
