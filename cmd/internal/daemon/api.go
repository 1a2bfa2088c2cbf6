package daemon

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"berth/webhooks/api"
)

// apiConfig is berth.yaml's api section: what of the read API is on, which is
// all of it but what is said to be off, and who people are.
type apiConfig struct {
	Catalog        *bool      `json:"catalog"`
	Entitlements   *bool      `json:"entitlements"`
	Instances      *bool      `json:"instances"`
	Artifacts      *bool      `json:"artifacts"`
	SharedRuntimes *bool      `json:"shared_runtimes"`
	Tokens         []apiToken `json:"tokens"`
}

type apiToken struct {
	Login string `json:"login"`
	Token secret `json:"token"`
}

// off are the families that are switched off (requirement A16).
func (c *apiConfig) off() []api.Family {
	var off []api.Family
	for i, on := range []*bool{c.Catalog, c.Entitlements, c.Instances, c.Artifacts, c.SharedRuntimes} {
		if on != nil && !*on {
			off = append(off, api.Families()[i])
		}
	}
	return off
}

const (
	// minToken is the least length of a person's token: 128 bits in hex.
	minToken = 32
	// rereadTokens is how long a token that was changed or taken away still
	// counts, at most: a revocation shall be as good as at once.
	rereadTokens = time.Second
)

// people are the tokens of berth.yaml as their files are now, read again now and
// then: reading them for each request would let strangers have work done.
type people struct {
	tokens []apiToken
	log    *slog.Logger

	mu    sync.Mutex
	at    time.Time
	known []api.Person
	wrong string // what was last told of tokens that cannot be taken
}

// now are the tokens that are taken. One that cannot be read is not.
func (p *people) now() []api.Person {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.at) >= rereadTokens {
		told := p.wrong
		if err := p.read(now); err != nil && p.wrong != told {
			p.log.Error("a token of the read API is not taken", "error", err)
		}
	}
	return p.known
}

// read reads every token. The error is about the first that is not taken.
func (p *people) read(now time.Time) (first error) {
	p.at, p.known, p.wrong = now, nil, ""
	owner := map[[sha256.Size]byte]string{}
	for i, t := range p.tokens {
		token, err := t.Token.read()
		hash := sha256.Sum256([]byte(token))
		switch {
		case err != nil:
			err = fmt.Errorf("api.tokens[%d] of %s: %w", i, t.Login, err)
		case len(token) < minToken:
			err = fmt.Errorf("api.tokens[%d] of %s is shorter than %d characters: make one with openssl rand -hex 32", i, t.Login, minToken)
		case owner[hash] != "":
			err = fmt.Errorf("api.tokens[%d]: %s and %s have one token: each needs their own", i, owner[hash], t.Login)
		default:
			owner[hash] = t.Login
			p.known = append(p.known, api.Person{Login: t.Login, Hash: hash})
		}
		if err != nil && first == nil {
			first, p.wrong = err, err.Error()
		}
	}
	return first
}
