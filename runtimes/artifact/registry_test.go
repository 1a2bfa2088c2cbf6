package artifact_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"berth/runtimes"
	"berth/runtimes/artifact"
	"berth/schema"
)

const (
	imageType = "application/vnd.docker.distribution.manifest.v2+json" // of random.Image
	canary    = "canary-4f1d9c-secret"
)

// loopback is allowed in tests only.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// secrets are the operator's secrets.
type secrets map[string]artifact.Credential

func (s secrets) Secret(_ context.Context, name string) (artifact.Credential, error) {
	c, ok := s[name]
	if !ok {
		return c, errors.New("no such secret")
	}
	return c, nil
}

// front is a TLS proxy of a registry that requires tokens by the specification of the
// distribution project: 401 with a challenge, a token endpoint that accepts the
// secret, and a bearer token for one scope.
type front struct {
	*httptest.Server
	t     *testing.T
	realm string // the token endpoint; "": its own
	token http.HandlerFunc
	mint  func(scope string) string // the value of a token

	mu     sync.Mutex
	tokens map[string]string // value → scope
	asked  []string          // what was shown where: "Basic /token", "Bearer /v2/…"
	scopes []string
}

// newFront starts a front for a registry.
func newFront(t *testing.T, behind http.Handler) *front {
	f := &front{t: t, tokens: map[string]string{}}
	f.mint = func(string) string { return fmt.Sprintf("token-%d", len(f.tokens)) }
	f.Server = httptest.NewUnstartedServer(nil)
	f.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		f.mu.Lock()
		f.asked = append(f.asked, strings.TrimSpace(kind+" "+r.URL.Path))
		scope := f.tokens[value]
		f.mu.Unlock()
		if r.URL.Path == "/token" {
			f.token(w, r)
			return
		}
		repo, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/manifests/")
		if kind != "Bearer" || scope != "repository:"+repo+":pull" {
			realm := f.realm
			if realm == "" {
				realm = f.URL + "/token"
			}
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q,service="test"`, realm))
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		behind.ServeHTTP(w, r)
	})
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.StartTLS()
	t.Cleanup(f.Close)
	f.token = f.issue
	return f
}

// issue returns a token for the secret.
func (f *front) issue(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	if user != "berth" || password != canary {
		http.Error(w, "no", http.StatusUnauthorized)
		return
	}
	scope := r.URL.Query().Get("scope")
	f.mu.Lock()
	value := f.mint(scope)
	f.tokens[value] = scope
	f.scopes = append(f.scopes, scope)
	f.mu.Unlock()
	_ = json.NewEncoder(w).Encode(map[string]any{"token": value, "expires_in": 300})
}

func (f *front) host() string { return strings.TrimPrefix(f.URL, "https://") }

func (f *front) saw() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func (f *front) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(f.Certificate())
	return pool
}

// source returns a source of the platform at this registry.
func (f *front) source() *schema.ArtifactSource { return source(f.host(), "pull") }

func source(host, credential string) *schema.ArtifactSource {
	return &schema.ArtifactSource{
		Header: schema.Header{Key: schema.Key{Kind: schema.KindArtifactSource, Name: "registry"}},
		Spec:   schema.ArtifactSourceSpec{Type: schema.SourceOCI, Host: host, Credential: credential},
	}
}

func (f *front) looker(tune ...func(*artifact.Options)) *artifact.Looker {
	o := artifact.Options{
		Secrets:   secrets{"pull": {Username: "berth", Password: canary, Hosts: []string{f.host()}}},
		Addresses: loopback, Roots: f.roots(), Timeout: 20 * time.Second,
	}
	for _, t := range tune {
		t(&o)
	}
	return artifact.New(o)
}

// pushed returns a registry of go-containerregistry on TCP, with an image.
func pushed(t *testing.T, reference string) (h http.Handler, digest string, size int64) {
	t.Helper()
	h = registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	open := httptest.NewServer(h)
	t.Cleanup(open.Close)
	digest, size = push(t, strings.TrimPrefix(open.URL, "http://")+"/"+reference)
	return h, digest, size
}

func push(t *testing.T, to string, options ...remote.Option) (digest string, size int64) {
	t.Helper()
	img, err := random.Image(64, 1)
	require.NoError(t, err)
	ref, err := name.ParseReference(to)
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, img, options...))
	return identity(t, img)
}

func identity(t *testing.T, img v1.Image) (string, int64) {
	t.Helper()
	d, err := img.Digest()
	require.NoError(t, err)
	size, err := img.Size()
	require.NoError(t, err)
	return d.String(), size
}

var other = "sha256:" + strings.Repeat("0", 64)

func TestRegistry(t *testing.T) {
	h, digest, size := pushed(t, "lattice/solver:1.4")
	f := newFront(t, h)
	l := f.looker()
	look := func(reference, digest, mediaType string) runtimes.Sight {
		return l.Look(t.Context(), f.source(), reference, digest, mediaType)
	}

	found := runtimes.Sight{State: runtimes.SightFound, Reason: "Found", Digest: digest, MediaType: imageType, Size: size}
	require.Equal(t, found, look("lattice/solver:1.4", digest, imageType))
	require.Equal(t, found, look("lattice/solver:1.4", "", ""), "a publish intent gets the pushed digest")
	require.Equal(t, found, look("lattice/solver", digest, imageType), "without a tag, by the digest")

	s := look("lattice/solver:1.4", other, imageType)
	require.Equal(t, runtimes.SightDifferent, s.State)
	require.Equal(t, runtimes.ReasonDigestMismatch, s.Reason)
	require.Equal(t, digest, s.Digest)
	s = look("lattice/solver:1.4", digest, "application/vnd.oci.image.index.v1+json")
	require.Equal(t, runtimes.ReasonMediaTypeMismatch, s.Reason)
	require.Equal(t, runtimes.SightDifferent, s.State)

	for _, ref := range []string{"lattice/solver:1.5", "lattice/other:1"} {
		s = look(ref, digest, "")
		require.Equal(t, runtimes.SightAbsent, s.State, "%+v", s)
	}
	require.Equal(t, runtimes.SightAbsent, look("lattice/solver", other, "").State)
	require.Equal(t, runtimes.ReasonNoTag, look("lattice/solver", "", "").Reason)
	require.Equal(t, runtimes.ReasonBadReference, look("Lattice/Solver:1", digest, "").Reason)

	// The secret was shown at the token endpoint and nowhere else, for pulling
	// from that one repository.
	for _, a := range f.saw() {
		kind, path, _ := strings.Cut(a, " ")
		require.Equal(t, path == "/token", kind == "Basic", a)
	}
	for _, s := range f.scopes {
		require.Contains(t, []string{"repository:lattice/solver:pull", "repository:lattice/other:pull"}, s)
	}
}

func TestFailedCheckIsUnknownNotAbsent(t *testing.T) {
	h, digest, _ := pushed(t, "a/b:1")
	status := func(code int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); _, _ = io.WriteString(w, body) })
	}
	for _, c := range []struct {
		name    string
		reason  runtimes.SightReason
		behind  http.Handler
		tune    func(*front)
		options func(*artifact.Options)
		source  func(*schema.ArtifactSource)
	}{
		{name: "somebody else's page", reason: "Status", behind: status(404, "<html>not here</html>")},
		{name: "broken", reason: "Status", behind: status(500, `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`)},
		{name: "forbidden", reason: "Unauthorized", behind: status(403, `{"errors":[{"code":"DENIED"}]}`)},
		{name: "huge", reason: "TooLarge", behind: status(200, strings.Repeat("x", 5<<20))},
		{name: "cut off", reason: "Unreachable", behind: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "{")
		})},
		{name: "hangs", reason: "Timeout", behind: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
			options: func(o *artifact.Options) { o.Timeout = 300 * time.Millisecond }},
		{name: "wrong secret", reason: "Unauthorized", behind: h, options: func(o *artifact.Options) {
			o.Secrets = secrets{"pull": {Username: "berth", Password: "wrong", Hosts: o.Secrets.(secrets)["pull"].Hosts}}
		}},
		{name: "no secret", reason: "SecretRefused", behind: h, options: func(o *artifact.Options) { o.Secrets = secrets{} }},
		{name: "no secrets", reason: "SecretRefused", behind: h, options: func(o *artifact.Options) { o.Secrets = nil }},
		{name: "anonymous", reason: "Unauthorized", behind: h, source: func(s *schema.ArtifactSource) { s.Spec.Credential = "" }},
		{name: "no trust", reason: "TLS", behind: h, options: func(o *artifact.Options) { o.Roots = x509.NewCertPool() }},
		{name: "basic", reason: "NoTokens", behind: h, tune: func(f *front) {
			f.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Basic realm="all of it"`)
				w.WriteHeader(401)
			})
		}},
		{name: "no address of this machine", reason: "AddressRefused", behind: h, options: func(o *artifact.Options) { o.Addresses = nil }},
		{name: "another type", reason: "UnknownType", behind: h, source: func(s *schema.ArtifactSource) { s.Spec.Type = "ftp" }},
		{name: "not the registry's name", reason: "BadReference", behind: h,
			source: func(s *schema.ArtifactSource) { s.Spec.Host = "docker.io" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFront(t, c.behind)
			if c.tune != nil {
				c.tune(f)
			}
			if c.options == nil {
				c.options = func(*artifact.Options) {}
			}
			src := f.source()
			if c.source != nil {
				c.source(src)
			}
			s := f.looker(c.options).Look(t.Context(), src, "a/b:1", digest, "")
			require.Equal(t, runtimes.SightUnknown, s.State, "%+v", s)
			require.Equal(t, c.reason, s.Reason, "%+v", s)
			require.NotEmpty(t, s.Message)
		})
	}
}

// Neither a registry's answer nor an estate sends the secret to another host.
func TestSecretIsSentToItsHostsOnly(t *testing.T) {
	h, digest, _ := pushed(t, "a/b:1")
	var mu sync.Mutex
	var stolen []string
	thief := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		stolen = append(stolen, r.URL.Path)
		_, _ = io.WriteString(w, `{"token":"x"}`)
	}))
	t.Cleanup(thief.Close)
	// By a name: an address alone is refused by the library already.
	elsewhere := strings.Replace(thief.URL, "127.0.0.1", "localhost", 1)

	for _, c := range []struct {
		name   string
		reason runtimes.SightReason
		tune   func(*front)
		tenant string
		hosts  []string // of the secret; nil: the registry's
	}{
		{name: "a realm elsewhere", reason: "RealmRefused", tune: func(f *front) { f.realm = elsewhere + "/token" }},
		{name: "a realm without TLS", reason: "RealmRefused",
			tune: func(f *front) { f.realm = strings.Replace(f.URL, "https", "http", 1) + "/token" }},
		{name: "a realm with a user", reason: "RealmRefused",
			tune: func(f *front) { f.realm = strings.Replace(f.URL, "https://", "https://x@", 1) + "/token" }},
		{name: "a token endpoint that redirects", reason: "Redirected", tune: func(f *front) {
			f.token = func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, elsewhere+"/token", http.StatusTemporaryRedirect)
			}
		}},
		{name: "a token endpoint that redirects to itself", reason: "Redirected", tune: func(f *front) {
			f.token = func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "/v2/", http.StatusTemporaryRedirect)
			}
		}},
		{name: "a registry that redirects", reason: "Redirected", tune: func(f *front) {
			f.Config.Handler = http.RedirectHandler(elsewhere+"/v2/", http.StatusFound)
		}},
		{name: "a source at another host", reason: "SecretRefused", tune: func(*front) {}, hosts: []string{"registry.example"}},
		{name: "another tenant's source", reason: "SecretRefused", tune: func(*front) {}, tenant: "biology"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFront(t, h)
			c.tune(f)
			pool := f.roots()
			pool.AddCert(thief.Certificate())
			l := f.looker(func(o *artifact.Options) {
				o.Roots = pool
				cred := o.Secrets.(secrets)["pull"]
				cred.Tenants = []string{"physics"}
				if c.hosts != nil {
					cred.Hosts = c.hosts
				}
				o.Secrets = secrets{"pull": cred}
			})
			src := f.source()
			src.Key.Tenant = c.tenant
			s := l.Look(t.Context(), src, "a/b:1", digest, "")
			require.Equal(t, runtimes.SightUnknown, s.State, "%+v", s)
			require.Equal(t, c.reason, s.Reason, "%+v", s)
			require.NotContains(t, fmt.Sprintf("%+v", s), "localhost")
			for _, a := range f.saw() {
				if kind, path, _ := strings.Cut(a, " "); kind == "Basic" {
					require.Equal(t, "/token", path)
				}
			}
		})
	}
	require.Empty(t, stolen, "nothing went there")

	// The operator may name the token endpoint's host, and the tenant.
	f := newFront(t, h)
	pool := f.roots()
	realm := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.issue(w, r) }))
	cert, ca := certificate(t, "localhost")
	realm.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	realm.StartTLS()
	t.Cleanup(realm.Close)
	pool.AddCert(ca)
	at := strings.Replace(strings.TrimPrefix(realm.URL, "https://"), "127.0.0.1", "localhost", 1)
	f.realm = "https://" + at + "/token"
	l := f.looker(func(o *artifact.Options) {
		o.Roots = pool
		o.Secrets = secrets{"pull": {Username: "berth", Password: canary, Tenants: []string{"physics"}, Hosts: []string{f.host(), at}}}
	})
	src := f.source()
	src.Key.Tenant = "physics"
	require.Equal(t, runtimes.SightFound, l.Look(t.Context(), src, "a/b:1", digest, "").State)
}

// Anonymous tokens come from another host only with the operator's permission, which
// does not allow sending a secret there.
func TestTokenHostsAreForAnonymousTokens(t *testing.T) {
	h, digest, _ := pushed(t, "a/b:1")
	f := newFront(t, h)
	var mu sync.Mutex
	var shown []string
	realm := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		shown = append(shown, r.Header.Get("Authorization"))
		mu.Unlock()
		f.mu.Lock()
		f.tokens["anybody"] = r.URL.Query().Get("scope")
		f.mu.Unlock()
		_, _ = io.WriteString(w, `{"token":"anybody"}`)
	}))
	cert, ca := certificate(t, "localhost")
	realm.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	realm.StartTLS()
	t.Cleanup(realm.Close)
	// By a name: an address alone is refused by the library already.
	at := strings.Replace(strings.TrimPrefix(realm.URL, "https://"), "127.0.0.1", "localhost", 1)
	f.realm = "https://" + at + "/token"
	look := func(credential string, hosts map[string][]string) runtimes.Sight {
		pool := f.roots()
		pool.AddCert(ca)
		l := f.looker(func(o *artifact.Options) { o.Roots, o.TokenHosts = pool, hosts })
		return l.Look(t.Context(), source(f.host(), credential), "a/b:1", digest, "")
	}
	for _, c := range []struct {
		credential, advice string
		hosts              map[string][]string
	}{
		{"", "in artifacts.token_hosts, below " + f.host(), nil},
		{"", "in artifacts.token_hosts, below " + f.host(), map[string][]string{"other.example": {at}}},
		{"pull", "in artifacts.secrets, ", map[string][]string{f.host(): {at}}},
	} {
		s := look(c.credential, c.hosts)
		require.Equal(t, runtimes.ReasonRealmRefused, s.Reason, "%+v", s)
		require.Contains(t, s.Message, c.advice)
		require.NotContains(t, s.Message, at, "that name is the server's")
	}
	require.Empty(t, shown)
	s := look("", map[string][]string{f.host(): {at}})
	require.Equal(t, runtimes.SightFound, s.State, "%+v", s)
	require.Equal(t, []string{""}, shown)
}

// certificate returns a self-signed certificate for a name.
func certificate(t *testing.T, name string) (tls.Certificate, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, parsed
}

// echo answers with the credentials of the request in every part of the answer.
func echo(shown *string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, password, ok := r.BasicAuth(); ok {
			*shown = password
		}
		w.Header().Set("Content-Type", "text/"+*shown)
		w.Header().Set("Docker-Content-Digest", *shown)
		w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q", *shown))
		switch r.URL.Query().Get("how") {
		case "redirect":
			http.Redirect(w, r, "https://"+*shown+".example/", http.StatusFound)
		case "garbage":
			_, _ = io.WriteString(w, *shown)
		case "untold":
			_, _ = fmt.Fprintf(w, `{"refresh_token":%q}`, *shown)
		default:
			w.WriteHeader(403)
			_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, *shown, *shown)
		}
	}
}

// Neither an error nor a Sight nor a printed value contains the secret or a token.
func TestSecretIsInNoResult(t *testing.T) {
	h, digest, _ := pushed(t, "a/b:1")
	clean := func(t *testing.T, what ...any) {
		t.Helper()
		for _, w := range what {
			for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
				require.NotContains(t, fmt.Sprintf(format, w), canary)
				require.NotContains(t, fmt.Sprintf(format, w), fmt.Sprintf("%x", canary))
			}
			data, err := json.Marshal(w)
			require.NoError(t, err)
			require.NotContains(t, string(data), canary)
			var log strings.Builder
			slog.New(slog.NewTextHandler(&log, nil)).Info("told", "what", w)
			slog.New(slog.NewJSONHandler(&log, nil)).Info("told", "what", w)
			require.NotContains(t, log.String(), canary)
		}
	}
	f := newFront(t, h)
	f.mint = func(string) string { return canary + "-token" }
	l := f.looker()
	require.Equal(t, runtimes.SightFound, l.Look(t.Context(), f.source(), "a/b:1", digest, "").State)
	before := time.Now()
	token, err := l.Token(t.Context(), f.source(), "a/b:1")
	require.NoError(t, err)
	require.Equal(t, "a/b", token.Repository)
	require.Equal(t, canary+"-token", string(token.Value))
	require.WithinDuration(t, before.Add(5*time.Minute), token.Expires, 10*time.Second)
	clean(t, token, *token, token.Value, artifact.Credential{Password: canary})

	for _, how := range []string{"", "redirect", "garbage", "untold"} {
		f := newFront(t, h)
		var shown string
		f.token = echo(&shown)
		f.realm = f.URL + "/token?how=" + how
		s := f.looker().Look(t.Context(), f.source(), "a/b:1", digest, imageType)
		require.Equal(t, runtimes.SightUnknown, s.State)
		require.Equal(t, canary, shown, "it was shown there")
		clean(t, s)
		_, err := f.looker().Token(t.Context(), f.source(), "a/b:1")
		require.Error(t, err)
		clean(t, err)
	}

	// And one that takes the token, and repeats it.
	for _, code := range []int{200, 302, 403, 404} {
		f := newFront(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for _, h := range []string{"Content-Type", "Docker-Content-Digest", "Location"} {
				w.Header().Set(h, "x/"+canary)
			}
			w.WriteHeader(code)
			_, _ = fmt.Fprintf(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":%q}]}`, canary)
		}))
		clean(t, f.looker().Look(t.Context(), f.source(), "a/b:1", digest, imageType))
	}
}
