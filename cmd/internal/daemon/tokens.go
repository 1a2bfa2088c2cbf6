package daemon

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"berth/webhooks/api"
	"berth/webhooks/secret"
)

// apiConfig is the section api of berth.yaml: the parts of the read API that are on
// (all but those switched off), the tokens of users, and their identity provider.
type apiConfig struct {
	Catalog        *bool       `json:"catalog"`
	Entitlements   *bool       `json:"entitlements"`
	Instances      *bool       `json:"instances"`
	Artifacts      *bool       `json:"artifacts"`
	SharedRuntimes *bool       `json:"shared_runtimes"`
	Queue          *bool       `json:"queue"`
	Events         *bool       `json:"events"`
	Tokens         []apiToken  `json:"tokens"`
	OIDC           *oidcConfig `json:"oidc"`
	URL            string      `json:"url"`
	Peers          []string    `json:"peers"`
}

type apiToken struct {
	Login string     `json:"login"`
	Token secret.Ref `json:"token"`
}

// off returns the families that are switched off (requirement A16).
func (c *apiConfig) off() []api.Family {
	var off []api.Family
	for i, on := range []*bool{c.Catalog, c.Entitlements, c.Instances, c.Artifacts, c.SharedRuntimes, c.Queue, c.Events} {
		if on != nil && !*on {
			off = append(off, api.Families()[i])
		}
	}
	return off
}

const (
	// minToken is the least length of a person's token: 128 bits in hex.
	minToken = 32
	// tokenAge bounds how long a changed or removed token is still accepted. Reading
	// the files for each request would let strangers cause work.
	tokenAge = time.Second
)

// personTokens are the tokens that berth.yaml names, as their files are now.
type personTokens struct {
	tokens []apiToken
	log    *slog.Logger

	mu      sync.Mutex
	at      time.Time
	known   []api.Person
	trouble string // the error that was logged last
}

// now returns the accepted tokens. One that cannot be read is not accepted.
func (p *personTokens) now() []api.Person {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.at) >= tokenAge {
		logged := p.trouble
		if err := p.read(now); err != nil && p.trouble != logged {
			p.log.Error("token of api.tokens not usable", "error", err)
		}
	}
	return p.known
}

// read reads every token. The error is about the first that is not accepted.
func (p *personTokens) read(now time.Time) (first error) {
	p.at, p.known, p.trouble = now, nil, ""
	owner := map[[sha256.Size]byte]string{}
	for i, t := range p.tokens {
		token, err := t.Token.Read()
		hash := sha256.Sum256([]byte(token))
		switch {
		case err != nil:
			err = fmt.Errorf("api.tokens[%d] of %s: %w", i, t.Login, err)
		case len(token) < minToken:
			err = fmt.Errorf("api.tokens[%d] of %s is shorter than %d characters; make one with openssl rand -hex 32", i, t.Login, minToken)
		case owner[hash] != "":
			err = fmt.Errorf("api.tokens[%d]: %s and %s have the same token; give each their own", i, owner[hash], t.Login)
		default:
			owner[hash] = t.Login
			p.known = append(p.known, api.Person{Login: t.Login, Hash: hash})
		}
		if err != nil && first == nil {
			first, p.trouble = err, err.Error()
		}
	}
	return first
}
