package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"
	"time"

	"berth/schema/authority"
)

// Person is the token of a user at the forge.
type Person struct {
	Login string
	Hash  [sha256.Size]byte // SHA-256 of the token
}

// ErrProvider means that the identity provider does not answer. Test with errors.Is.
var ErrProvider = errors.New("identity provider unavailable")

// errQuiet marks a failure that is not logged.
var errQuiet = errors.New("not logged")

// authenticator identifies callers. Its functions are those of Options.
type authenticator struct {
	estate   string // name of it
	people   func() []Person
	identify func(ctx context.Context, token string) (login string, err error)
	source   Source
	failures *limiter // logged failures of one address
	now      func() time.Time
}

// authenticate identifies the caller by the Authorization header. It loads the view
// only if the header may hold a service account's token: a request without one costs
// almost nothing.
//
// The failures of one address are bounded only to protect the log: a valid token is
// accepted however many invalid ones came from the same address, or a caller behind
// the same proxy could lock everybody out. Against guessing, tokens are long.
func (a *authenticator) authenticate(c *call) *failure {
	headers := c.Header.Values("Authorization")
	if len(headers) == 0 {
		return a.failed(c, &failure{code: codeAuthRequired,
			message: "no credentials: send Authorization: Bearer TOKEN, with a token of `berth token` for a service account, or for a " +
				"person one of the identity provider or of berth.yaml"})
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	switch {
	case len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken:
		return a.failed(c, invalidToken(errors.New("no single bearer token")))
	case a.person(c, token):
		return nil
	case strings.Count(token, ".") != 2:
		return a.failed(c, invalidToken(errors.New("neither the token of a person nor in the form of a service account's")))
	}
	switch login, err := a.identify(c.Context(), token); {
	case errors.Is(err, ErrProvider):
		return a.failed(c, &failure{code: codeNotReady, after: retryAfter, cause: err,
			message: "the identity provider does not answer: try again in a few seconds"})
	case err != nil:
		return a.failed(c, invalidToken(err))
	case login != "":
		c.who = principal{name: login, actor: authority.Actor{Login: login, Proof: authority.ProofToken}}
		return nil
	}
	if notReady := a.source.load(c); notReady != nil {
		return notReady
	}
	if err := a.account(c, token); err != nil {
		return a.failed(c, invalidToken(err))
	}
	return nil
}

// account accepts a token of a service account.
func (a *authenticator) account(c *call, token string) error {
	account, err := Verify(token, a.estate, c.view.Desired, a.now())
	if err == nil {
		c.who = principal{name: Issuer(account.Key), account: account,
			actor: authority.Actor{ServiceAccount: account.Key, Proof: authority.ProofToken}}
	}
	return err
}

// person accepts a token of berth.yaml. It compares all of them, by hash and in
// constant time, so that the time taken reveals nothing.
func (a *authenticator) person(c *call, token string) bool {
	hash, login := sha256.Sum256([]byte(token)), ""
	for _, p := range a.people() {
		if subtle.ConstantTimeCompare(hash[:], p.Hash[:]) == 1 {
			login = p.Login
		}
	}
	if login == "" {
		return false
	}
	c.who = principal{name: login, actor: authority.Actor{Login: login, Proof: authority.ProofToken}}
	return true
}

func invalidToken(cause error) *failure {
	return &failure{code: codeAuthInvalid, cause: cause,
		message: errToken.Error() + ": make a new one for this estate, and check that its account and key are in force"}
}

// failed counts a failed authentication. It returns fail, or without a log line that the address has failed too often.
func (a *authenticator) failed(c *call, fail *failure) *failure {
	if a.failures.allow(remote(c.RemoteAddr), a.now()) {
		return fail
	}
	return &failure{code: codeRate, after: time.Second, cause: errQuiet,
		message: "too many failed authentications: check the token, then wait a second"}
}
