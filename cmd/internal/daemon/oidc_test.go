package daemon

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"berth/webhooks/api"
)

// people are the users of the provider in these tests.
type people map[string]*storage.User

func (p people) GetUserByID(id string) *storage.User         { return p[id] }
func (p people) GetUserByUsername(name string) *storage.User { return p[name] }
func (people) ExampleClientID() string                       { return "berth" }

const callback = "http://127.0.0.1:9/callback"

// provider runs a real OpenID provider, with the clients berth and other.
func provider(t *testing.T) (issuer string, stop func()) {
	storage.RegisterClients(storage.WebClient("berth", "secret", callback), storage.WebClient("other", "secret", callback))
	server := httptest.NewUnstartedServer(nil)
	issuer = "http://" + server.Listener.Addr().String()
	users := people{"anna": {ID: "anna", Username: "anna", Password: "right"},
		"no login": {ID: "no login", Username: "no login", Password: "right"}}
	log := slog.Default()
	t.Cleanup(func() { slog.SetDefault(log) }) // the provider replaces it
	server.Config.Handler = exampleop.SetupServer(issuer, storage.NewStorage(users), slog.New(slog.DiscardHandler), false)
	server.Start()
	t.Cleanup(server.Close)
	return issuer, server.Close
}

// logIn logs a person in as a browser does, and returns the token for a client.
func logIn(t *testing.T, issuer, client, person string) string {
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	next := func(res *http.Response, err error) *url.URL {
		require.NoError(t, err)
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		require.Equal(t, http.StatusFound, res.StatusCode, "%s", body)
		at, err := res.Location()
		require.NoError(t, err)
		return at
	}
	query := url.Values{"client_id": {client}, "redirect_uri": {callback}, "response_type": {"code"}, "scope": {"openid profile"},
		"state": {"s"}, "nonce": {"n"}}
	login := next(browser.Get(issuer + "/auth?" + query.Encode()))
	request := login.Query().Get("authRequestID")
	back := next(browser.PostForm(issuer+"/login/username", url.Values{"id": {request}, "username": {person}, "password": {"right"}}))
	code := next(browser.Get(back.String())).Query().Get("code")
	require.NotEmpty(t, code)
	r, err := http.NewRequest(http.MethodPost, issuer+"/oauth/token",
		strings.NewReader(url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {callback}}.Encode()))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(client, "secret")
	res, err := browser.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	var got struct {
		IDToken string `json:"id_token"`
	}
	require.NoError(t, json.NewDecoder(res.Body).Decode(&got))
	require.NotEmpty(t, got.IDToken)
	return got.IDToken
}

// The provider's token identifies a person for the configured audience until the token expires. A
// provider that does not answer makes no token invalid.
func TestProviderIdentifiesPeople(t *testing.T) {
	issuer, stop := provider(t)
	config := oidcConfig{Issuer: issuer, Audience: "berth", LoginClaim: "sub"}
	p, err := newIdentityProvider(config)
	require.NoError(t, err)
	anna := logIn(t, issuer, "berth", "anna")
	login, err := p.identify(context.Background(), anna)
	require.NoError(t, err)
	require.Equal(t, "anna", login)

	_, err = p.identify(context.Background(), logIn(t, issuer, "other", "anna"))
	require.ErrorContains(t, err, "audience")
	_, err = p.identify(context.Background(), logIn(t, issuer, "berth", "no login"))
	require.ErrorContains(t, err, "has no login in its claim")
	withoutClaim := config
	withoutClaim.LoginClaim = "preferred_username"
	other, err := newIdentityProvider(withoutClaim)
	require.NoError(t, err)
	_, err = other.identify(context.Background(), anna)
	require.ErrorContains(t, err, `has no login in its claim "preferred_username"`)
	later, err := newIdentityProvider(config)
	require.NoError(t, err)
	later.now = func() time.Time { return time.Now().Add(48 * time.Hour) }
	_, err = later.identify(context.Background(), anna)
	require.ErrorContains(t, err, "expired")

	claims := jwt.MapClaims{"iss": issuer, "aud": "berth", "sub": "anna", "exp": time.Now().Add(time.Hour).Unix()}
	key, err := signingKey()
	require.NoError(t, err)
	forged, err := jwt.NewWithClaims(jwt.SigningMethodRS256, claims).SignedString(key)
	require.NoError(t, err)
	unsigned, err := jwt.NewWithClaims(jwt.SigningMethodNone, claims).SignedString(jwt.UnsafeAllowNoneSignatureType)
	require.NoError(t, err)
	shared, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte("secret"))
	require.NoError(t, err)
	parts := strings.Split(anna, ".")
	for name, token := range map[string]string{"forged": forged, "unsigned": unsigned, "shared secret": shared,
		"no signature": parts[0] + "." + parts[1] + "."} {
		login, err := p.identify(context.Background(), token)
		require.Error(t, err, name)
		require.Empty(t, login, name)
	}
	claims["iss"] = "physics.lattice/ci"
	account, err := jwt.NewWithClaims(jwt.SigningMethodRS256, claims).SignedString(key)
	require.NoError(t, err)
	login, err = p.identify(context.Background(), account)
	require.NoError(t, err, "it is the token of a service account")
	require.Empty(t, login)

	stop()
	login, err = p.identify(context.Background(), anna)
	require.NoError(t, err, "the keys are known")
	require.Equal(t, "anna", login)
	fresh, err := newIdentityProvider(config)
	require.NoError(t, err, "a provider that is down does not stop Berth")
	_, err = fresh.identify(context.Background(), anna)
	require.ErrorIs(t, err, api.ErrProvider)
}

// signingKey is a key that no provider knows. Making one takes a moment.
var signingKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

func mustProvider(t *testing.T, issuer string) *identityProvider {
	t.Helper()
	p, err := newIdentityProvider(oidcConfig{Issuer: issuer, Audience: "berth", LoginClaim: "sub"})
	require.NoError(t, err)
	return p
}

// Strangers cannot make Berth read the provider's keys more often than the bound.
func TestProviderIsAskedAtABoundedRate(t *testing.T) {
	var asked int
	var issuer string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; strings.HasSuffix(r.URL.Path, "openid-configuration") {
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": issuer, "jwks_uri": issuer + "/keys"})
			return
		}
		_, _ = w.Write([]byte(`{"keys":[]}`))
	}))
	defer server.Close()
	issuer = server.URL
	p, err := newIdentityProvider(oidcConfig{Issuer: issuer, Audience: "berth", LoginClaim: "sub"})
	require.NoError(t, err)
	p.client.Transport = boundedTransport{http.DefaultTransport, rate.NewLimiter(0, providerBurst)} // the clock does not advance
	key, err := signingKey()
	require.NoError(t, err)
	token, err := jwt.NewWithClaims(jwt.SigningMethodRS256,
		jwt.MapClaims{"iss": issuer, "aud": "berth", "sub": "anna", "exp": time.Now().Add(time.Hour).Unix()}).SignedString(key)
	require.NoError(t, err)
	for range 100 {
		_, err = p.identify(context.Background(), token)
		require.Error(t, err)
	}
	require.Equal(t, providerBurst, asked)
	bound := mustProvider(t, "https://id.example").client.Transport.(boundedTransport).limit
	require.Equal(t, []any{rate.Limit(providerRate), providerBurst}, []any{bound.Limit(), bound.Burst()})
}

// A token of a key that the provider withdrew is refused within minutes. A provider that does not
// answer withdraws nothing for an hour.
func TestWithdrawnKeyIsRefused(t *testing.T) {
	key, err := signingKey()
	require.NoError(t, err)
	var issuer string
	var withdrawn, down, keysDown atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch keys := (jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k1", Algorithm: "RS256", Use: "sig"}}}); {
		case down.Load():
			http.Error(w, "down", http.StatusBadGateway)
		case strings.HasSuffix(r.URL.Path, "openid-configuration"):
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": issuer, "jwks_uri": issuer + "/keys"})
		case keysDown.Load():
			http.Error(w, "down", http.StatusBadGateway)
		case withdrawn.Load():
			_, _ = w.Write([]byte(`{"keys":[]}`))
		default:
			_ = json.NewEncoder(w).Encode(keys)
		}
	}))
	defer server.Close()
	issuer = server.URL
	start := time.Now()
	signed := jwt.NewWithClaims(jwt.SigningMethodRS256,
		jwt.MapClaims{"iss": issuer, "aud": "berth", "sub": "anna", "exp": start.Add(3 * time.Hour).Unix()})
	signed.Header["kid"] = "k1"
	token, err := signed.SignedString(key)
	require.NoError(t, err)
	p := mustProvider(t, issuer)
	p.client.Transport = boundedTransport{http.DefaultTransport, rate.NewLimiter(rate.Inf, 0)}
	at := func(after time.Duration) (string, error) {
		p.now = func() time.Time { return start.Add(after) }
		return p.identify(t.Context(), token)
	}
	accepted := func(after time.Duration) {
		login, err := at(after)
		require.NoError(t, err)
		require.Equal(t, "anna", login)
	}
	accepted(0)
	down.Store(true)
	accepted(59 * time.Minute)
	_, err = at(61 * time.Minute)
	require.ErrorIs(t, err, api.ErrProvider)
	down.Store(false)
	accepted(62 * time.Minute)
	keysDown.Store(true) // and the description is answered
	accepted(68 * time.Minute)
	keysDown.Store(false)
	accepted(69 * time.Minute)
	withdrawn.Store(true)
	accepted(73 * time.Minute)
	_, err = at(74 * time.Minute)
	require.Error(t, err)
	require.NotErrorIs(t, err, api.ErrProvider)
}

// hangingProvider answers each request with an error when the test releases it.
type hangingProvider struct {
	asked atomic.Int32
	hang  chan struct{}
}

func (h *hangingProvider) RoundTrip(*http.Request) (*http.Response, error) {
	h.asked.Add(1)
	<-h.hang
	return &http.Response{StatusCode: http.StatusBadGateway, Status: "502 Bad Gateway", Body: http.NoBody}, nil
}

// While the provider hangs, the calls that wait for its description share one request.
func TestWaitingCallsShareOneRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const issuer = "https://id.example"
		p, provider := mustProvider(t, issuer), &hangingProvider{hang: make(chan struct{})}
		p.client.Transport = boundedTransport{provider, rate.NewLimiter(providerRate, providerBurst)}
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": issuer}).SignedString([]byte("x"))
		require.NoError(t, err)
		var calls errgroup.Group
		for range 20 {
			calls.Go(func() error {
				if _, err := p.identify(context.Background(), token); !errors.Is(err, api.ErrProvider) {
					return fmt.Errorf("not ErrProvider: %w", err)
				}
				return nil
			})
		}
		synctest.Wait() // all of them wait
		close(provider.hang)
		require.NoError(t, calls.Wait())
		require.Equal(t, int32(1), provider.asked.Load())
	})
}

func TestProviderNeedsAProtectedConnection(t *testing.T) {
	for issuer, ok := range map[string]bool{"https://id.example": true, "http://127.0.0.1:80": true, "http://localhost": true,
		"http://id.example": false, "http://localhost.example": false} {
		_, err := newIdentityProvider(oidcConfig{Issuer: issuer, Audience: "berth"})
		require.Equal(t, ok, err == nil, "%s: %v", issuer, err)
	}
}
