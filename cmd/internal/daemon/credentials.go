package daemon

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"berth/reconciler/gitrepo"
	"berth/webhooks/forge"
	"berth/webhooks/secret"
)

// limiters are the rate limiters of a process. Estates with the same identity at the
// forge share one, as the forge's limits cover all that they do. The state of each is
// kept in a file in the first estate's cache, so that a restart continues with it.
type limiters struct {
	dir string
	log *slog.Logger

	mu         sync.Mutex
	byIdentity map[string]forge.Limiter
}

func newLimiters(dir string, log *slog.Logger) *limiters {
	return &limiters{dir: dir, log: log, byIdentity: map[string]forge.Limiter{}}
}

// of returns the rate limiter of an estate; nil: no forge is configured.
func (l *limiters) of(c *Config) forge.Limiter {
	if c.Forge == nil {
		return nil
	}
	identity := c.Forge.Identity()
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.byIdentity[identity]; p != nil {
		return p
	}
	path := filepath.Join(l.dir, fmt.Sprintf("pace-%.8x.json", sha256.Sum256([]byte(identity))))
	p, err := c.kind.OpenLimiter(path, time.Now(), func(err error) {
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

// repositoryAuth returns the credential for the estate's repository. Without a token
// of its own, it is the forge's token for Git, if the repository is at that forge; the
// token is sent nowhere else.
func (c *Config) repositoryAuth(gitToken *forge.GitToken) gitrepo.AuthFunc {
	r := &c.Repository
	if r.Token == nil && gitToken != nil && gitToken.IsFor(r.URL) {
		return func(ctx context.Context) (gitrepo.Credentials, error) {
			token, err := gitToken.Read(ctx)
			return gitrepo.Credentials{User: cmp.Or(r.Username, gitToken.User), Token: token, Source: gitToken.Source}, err
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

// webhookSecrets returns the secrets that may sign deliveries, as they are now. The
// error is about those that cannot be read; the others are valid.
func (c *Config) webhookSecrets() (all [][]byte, err error) {
	for _, s := range c.forgeWebhookSecrets() {
		value, bad := s.Read()
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", s.Field, bad))
			continue
		}
		all = append(all, []byte(value))
	}
	return all, err
}
