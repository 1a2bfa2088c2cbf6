package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"berth/schema"
	"berth/webhooks/api"
)

// oidcConfig is the section api.oidc of berth.yaml.
type oidcConfig struct {
	Issuer     string `json:"issuer"`
	Audience   string `json:"audience"`
	LoginClaim string `json:"login_claim"`
}

const (
	// providerTimeout bounds one request to the identity provider.
	providerTimeout = 10 * time.Second
	// providerRate and providerBurst bound the requests to the provider: a token with an unknown
	// key makes Berth read the keys again, and strangers can send such tokens.
	providerRate  = 1
	providerBurst = 5

	// keysFor is how long keys are used before Berth reads them again, as the provider may have
	// withdrawn one.
	keysFor = 5 * time.Minute
	// keysWithout is how long they are used while the provider does not answer.
	keysWithout = time.Hour
	// keysRetry is the time between two attempts to read them again.
	keysRetry = 30 * time.Second
)

// loginForm is the form of logins (_person of config.cue). The name of a service account has another
// form, so no token can carry it into the log.
var loginForm = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]{0,37}[A-Za-z0-9])?$`)

// identityProvider verifies the tokens of one OpenID Connect provider. It reads the provider's
// description when the first token comes, so that a provider that is down does not stop Berth.
type identityProvider struct {
	config oidcConfig
	client *http.Client
	now    func() time.Time

	discovery singleflight.Group // one request, however many strangers wait for it
	keys      atomic.Pointer[providerKeys]
}

// providerKeys are the keys of a provider.
type providerKeys struct {
	*oidc.RemoteKeySet
	since time.Time
	tried time.Time // of the last attempt to read them again
}

// newIdentityProvider checks the configuration. It sends no request.
func newIdentityProvider(c oidcConfig) (*identityProvider, error) {
	u, err := url.Parse(c.Issuer)
	if err != nil {
		return nil, fmt.Errorf("api.oidc.issuer: %w", err)
	}
	if u.Scheme != "https" && !schema.IsLoopback(u.Hostname()) {
		return nil, errors.New("api.oidc.issuer is plain HTTP to another machine, so every user of the network can forge tokens; use " +
			"https://")
	}
	transport := boundedTransport{http.DefaultTransport, rate.NewLimiter(providerRate, providerBurst)}
	return &identityProvider{config: c, client: &http.Client{Transport: transport, Timeout: providerTimeout}, now: time.Now}, nil
}

// identify returns the login that a token of the provider names. It returns "" without an error for a
// token of another issuer, and api.ErrProvider if the provider does not answer.
func (p *identityProvider) identify(ctx context.Context, token string) (string, error) {
	claimed := jwt.RegisteredClaims{} // not verified yet
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claimed); err != nil || claimed.Issuer != p.config.Issuer {
		return "", nil
	}
	keys, err := p.discover()
	if err != nil {
		return "", fmt.Errorf("%w: %w", api.ErrProvider, err)
	}
	verified, err := p.verify(ctx, keys, token)
	if err != nil {
		return "", err
	}
	claims := map[string]any{}
	if err := verified.Claims(&claims); err != nil {
		return "", err
	}
	login, _ := claims[p.config.LoginClaim].(string)
	if !loginForm.MatchString(login) {
		return "", fmt.Errorf("the token of subject %.100q has no login in its claim %q; let the provider put the person's login at the "+
			"forge there, or set api.oidc.login_claim", verified.Subject, p.config.LoginClaim)
	}
	return login, nil
}

// discover returns the provider's keys. It reads the provider's description if they are unknown or
// older than keysWithout.
func (p *identityProvider) discover() (*providerKeys, error) {
	known := func() *providerKeys {
		if keys := p.keys.Load(); keys != nil && p.now().Sub(keys.since) < keysWithout {
			return keys
		}
		return nil
	}
	if keys := known(); keys != nil {
		return keys, nil
	}
	_, err, _ := p.discovery.Do("", func() (any, error) {
		if known() != nil {
			return nil, nil // another call read them meanwhile
		}
		keys, err := p.readKeys(p.client)
		if err == nil {
			p.keys.Store(keys)
		}
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	return p.keys.Load(), nil
}

// verify verifies a token. One call after keysFor reads the keys again for it, and uses the known
// ones if the provider does not answer.
func (p *identityProvider) verify(ctx context.Context, keys *providerKeys, token string) (*oidc.IDToken, error) {
	now := p.now()
	if now.Sub(keys.since) >= keysFor && now.Sub(keys.tried) >= keysRetry &&
		p.keys.CompareAndSwap(keys, &providerKeys{keys.RemoteKeySet, keys.since, now}) {
		// Tokens with unknown keys cannot use up this limit.
		client := *p.client
		client.Transport = boundedTransport{p.client.Transport.(boundedTransport).next, rate.NewLimiter(providerRate, providerBurst)}
		if next, err := p.readKeys(&client); err == nil {
			verified, err := p.verifyBy(ctx, next, token)
			if !errors.Is(err, api.ErrProvider) {
				p.keys.Store(next)
				return verified, err
			}
		}
	}
	return p.verifyBy(ctx, keys, token)
}

// verifyBy verifies a token by some keys. The error is api.ErrProvider if they had to be read and
// the provider did not answer.
func (p *identityProvider) verifyBy(ctx context.Context, keys *providerKeys, token string) (*oidc.IDToken, error) {
	watched := &watchedKeys{KeySet: keys}
	verifier := oidc.NewVerifier(p.config.Issuer, watched,
		&oidc.Config{ClientID: p.config.Audience, SupportedSigningAlgs: signingMethods(), Now: p.now})
	verified, err := verifier.Verify(ctx, token)
	var unavailable *providerError
	if errors.As(watched.err, &unavailable) {
		return nil, fmt.Errorf("%w: %w", api.ErrProvider, watched.err)
	}
	return verified, err
}

// readKeys reads the provider's description. The set that it returns reads the keys when a token
// needs them.
func (p *identityProvider) readKeys(client *http.Client) (*providerKeys, error) {
	// The set of keys keeps this context for later reads, so it is not that of a request.
	ctx := oidc.ClientContext(context.Background(), client)
	provider, err := oidc.NewProvider(ctx, p.config.Issuer)
	if err != nil {
		return nil, err
	}
	var described struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&described); err != nil {
		return nil, err
	}
	return &providerKeys{oidc.NewRemoteKeySet(ctx, described.Keys), p.now(), p.now()}, nil
}

// signingMethods are those of OpenID Connect that sign with a public key. A token with another method
// is refused, whatever the provider supports.
func signingMethods() []string {
	return []string{
		oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
	}
}

// watchedKeys keeps the error of a verification: a verifier returns only its text.
type watchedKeys struct {
	oidc.KeySet
	err error
}

func (k *watchedKeys) VerifySignature(ctx context.Context, token string) (payload []byte, err error) {
	payload, k.err = k.KeySet.VerifySignature(ctx, token)
	return payload, k.err
}

// boundedTransport refuses requests beyond a rate.
type boundedTransport struct {
	next  http.RoundTripper
	limit *rate.Limiter
}

// providerError means that the provider gave no usable answer.
type providerError struct{ err error }

func (e *providerError) Error() string { return e.err.Error() }
func (e *providerError) Unwrap() error { return e.err }

func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.limit.Allow() {
		return nil, &providerError{errors.New("the provider's keys were read too often; wait a second")}
	}
	answer, err := t.next.RoundTrip(r)
	switch {
	case err != nil:
		return nil, &providerError{err}
	case answer.StatusCode >= 400:
		_ = answer.Body.Close()
		return nil, &providerError{fmt.Errorf("%s answers %s", r.URL, answer.Status)}
	}
	return answer, nil
}
