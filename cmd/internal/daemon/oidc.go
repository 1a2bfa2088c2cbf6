package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"

	"berth/webhooks/api"
)

// oidcConfig is the section api.oidc of berth.yaml.
type oidcConfig struct {
	Issuer     string `json:"issuer"`
	Audience   string `json:"audience"`
	LoginClaim string `json:"login_claim"`
	CA         string `json:"ca"`
	AllowHTTP  bool   `json:"allow_http"`
}

const (
	// providerTimeout bounds one request to the identity provider.
	providerTimeout = 10 * time.Second
	// providerRate and providerBurst bound the requests to the provider: a token with an unknown
	// key makes Berth read the keys again, and strangers can send such tokens.
	providerRate  = 1
	providerBurst = 5
)

// loginForm is the form of logins in role bindings.
var loginForm = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]{0,37}[A-Za-z0-9])?$`)

// identityProvider verifies the tokens of one OpenID Connect provider. It reads the provider's
// description when the first token comes, so that a provider that is down does not stop Berth.
type identityProvider struct {
	config oidcConfig
	client *http.Client

	now func() time.Time

	mu       sync.Mutex
	keys     oidc.KeySet // nil: the provider's description is not read yet
	verifier *oidc.IDTokenVerifier
}

// newIdentityProvider checks the configuration and asks nobody.
func newIdentityProvider(c oidcConfig) (*identityProvider, error) {
	u, err := url.Parse(c.Issuer)
	if err != nil {
		return nil, fmt.Errorf("api.oidc.issuer: %w", err)
	}
	if u.Scheme != "https" && !c.AllowHTTP && !isLoopback(u.Hostname()) {
		return nil, errors.New("api.oidc.issuer is plain HTTP to another machine, where anybody on the network can forge tokens; use https://, or set allow_http")
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: providerTimeout}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("api.oidc.ca: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("api.oidc.ca: %s has no certificate in PEM form", c.CA)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	client := &http.Client{Transport: boundedTransport{transport, rate.NewLimiter(providerRate, providerBurst)}, Timeout: providerTimeout}
	return &identityProvider{config: c, client: client, now: time.Now}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// identify returns the login that a token of the provider names. It returns "" without an error for a
// token of somebody else, and api.ErrProvider if the provider could not be asked.
func (p *identityProvider) identify(ctx context.Context, token string) (string, error) {
	claimed := jwt.RegisteredClaims{} // of a stranger, until the signature is verified
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claimed); err != nil || claimed.Issuer != p.config.Issuer {
		return "", nil
	}
	keys, verifier, err := p.discover()
	if err != nil {
		return "", err
	}
	// The verifier below checks the signature too, but its error hides that of the provider.
	_, err = keys.VerifySignature(ctx, token)
	var unavailable *providerError
	if errors.As(err, &unavailable) {
		return "", fmt.Errorf("%w: %w", api.ErrProvider, err)
	}
	verified, err := verifier.Verify(ctx, token)
	if err != nil {
		return "", err
	}
	claims := map[string]any{}
	if err := verified.Claims(&claims); err != nil {
		return "", err
	}
	login, _ := claims[p.config.LoginClaim].(string)
	if !loginForm.MatchString(login) {
		return "", fmt.Errorf("the token of subject %.100q has no login in its claim %q; let the provider put the person's login at the forge there, or set api.oidc.login_claim", verified.Subject, p.config.LoginClaim)
	}
	return login, nil
}

// discover reads the provider's description once.
func (p *identityProvider) discover() (oidc.KeySet, *oidc.IDTokenVerifier, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys != nil {
		return p.keys, p.verifier, nil
	}
	// The set of keys keeps this context for later reads, so it is not that of a request.
	ctx := oidc.ClientContext(context.Background(), p.client)
	provider, err := oidc.NewProvider(ctx, p.config.Issuer)
	var described struct {
		Keys string `json:"jwks_uri"`
	}
	if err == nil {
		err = provider.Claims(&described)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", api.ErrProvider, err)
	}
	p.keys = oidc.NewRemoteKeySet(ctx, described.Keys)
	p.verifier = oidc.NewVerifier(p.config.Issuer, p.keys, &oidc.Config{ClientID: p.config.Audience, SupportedSigningAlgs: signingMethods(), Now: p.now})
	return p.keys, p.verifier, nil
}

// signingMethods are those of OpenID Connect that sign with a public key. A token with another one is
// refused, whatever the provider supports.
func signingMethods() []string {
	return []string{
		oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
	}
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
	case answer.StatusCode >= 500:
		_ = answer.Body.Close()
		return nil, &providerError{fmt.Errorf("%s answers %s", r.URL, answer.Status)}
	}
	return answer, nil
}
