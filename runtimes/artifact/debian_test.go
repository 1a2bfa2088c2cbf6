package artifact_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/examples/need"
	"berth/runtimes"
)

// TestDebianRegistry uses Debian's package of the distribution project's registry,
// which verifies signed tokens itself.
func TestDebianRegistry(t *testing.T) {
	need.Programs(t, "docker-registry")
	program, err := exec.LookPath("docker-registry")
	require.NoError(t, err)
	// A short path, as a socket's name has room for no long one.
	dir, err := os.MkdirTemp("", "registry")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	signer, parsed := certificate(t, "issuer")
	issuer := filepath.Join(dir, "issuer.pem")
	require.NoError(t, os.WriteFile(issuer, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: parsed.Raw}), 0o600))

	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Host
			r.SetXForwarded()
		},
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}},
	}
	f := newFront(t, nil)
	f.token = func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "berth" && user != "publisher" || password != canary {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"token": sign(t, signer.PrivateKey.(*ecdsa.PrivateKey), parsed.Raw,
			r.URL.Query()["scope"]), "expires_in": 120})
	}
	tokens := f.Config.Handler
	f.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			tokens.ServeHTTP(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	})
	config := filepath.Join(dir, "config.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: %q}}
http: {net: unix, addr: %q, secret: "for uploads"}
auth: {token: {realm: %q, service: test, issuer: test-issuer, rootcertbundle: %q}}
`, filepath.Join(dir, "data"), socket, f.URL+"/token", issuer), 0o600))
	cmd := exec.CommandContext(t.Context(), program, "serve", config)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "OTEL_TRACES_EXPORTER=none"}
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	conn := await.NoError(t, "the registry", func() (net.Conn, error) { return net.Dial("unix", socket) })
	require.NoError(t, conn.Close())

	digest, size := push(t, f.host()+"/lattice/solver:1.4",
		remote.WithTransport(f.Client().Transport),
		remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: "publisher", Password: canary})))
	l := f.looker()
	look := func(reference, digest string) runtimes.Sight {
		return l.Look(t.Context(), f.source(), reference, digest, imageType)
	}
	found := runtimes.Sight{State: runtimes.SightFound, Reason: "Found", Digest: digest, MediaType: imageType, Size: size}
	require.Equal(t, found, look("lattice/solver:1.4", digest))
	require.Equal(t, found, look("lattice/solver", digest))
	require.Equal(t, runtimes.ReasonDigestMismatch, look("lattice/solver:1.4", other).Reason)
	require.Equal(t, runtimes.SightAbsent, look("lattice/solver:2", digest).State)
	require.Equal(t, runtimes.SightAbsent, look("lattice/none:1", digest).State)

	token, err := l.Token(t.Context(), f.source(), "lattice/solver:1.4")
	require.NoError(t, err)
	for path, want := range map[string]int{
		"GET /v2/lattice/solver/manifests/1.4": 200, "GET /v2/lattice/other/manifests/1.4": 401,
		"POST /v2/lattice/solver/blobs/uploads/": 401,
	} {
		method, at, _ := strings.Cut(path, " ")
		req, err := http.NewRequestWithContext(t.Context(), method, f.URL+at, nil)
		require.NoError(t, err)
		req.Header.Set("Accept", imageType)
		req.Header.Set("Authorization", "Bearer "+string(token.Value))
		resp, err := f.Client().Do(req)
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, want, resp.StatusCode, "the token reads that repository and does nothing else: %s", path)
	}
}

// sign makes a token by the specification of the distribution project.
func sign(t *testing.T, key *ecdsa.PrivateKey, cert []byte, scopes []string) string {
	type access struct {
		Type    string   `json:"type"`
		Name    string   `json:"name"`
		Actions []string `json:"actions"`
	}
	may := []access{}
	for _, s := range scopes {
		if part := strings.Split(s, ":"); len(part) == 3 {
			may = append(may, access{part[0], part[1], strings.Split(part[2], ",")})
		}
	}
	now := time.Now()
	var parts []string
	for _, v := range []any{
		map[string]any{"typ": "JWT", "alg": "ES256", "x5c": []string{base64.StdEncoding.EncodeToString(cert)}},
		map[string]any{"iss": "test-issuer", "sub": "berth", "aud": "test", "jti": "1", "iat": now.Unix(),
			"nbf": now.Add(-time.Minute).Unix(),
			"exp": now.Add(2 * time.Minute).Unix(), "access": may},
	} {
		data, err := json.Marshal(v)
		require.NoError(t, err)
		parts = append(parts, base64.RawURLEncoding.EncodeToString(data))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, ".")))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	require.NoError(t, err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return strings.Join(append(parts, base64.RawURLEncoding.EncodeToString(signature)), ".")
}
