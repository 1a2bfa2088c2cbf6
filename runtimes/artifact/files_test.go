package artifact_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
	"berth/runtimes/artifact"
	"berth/schema"
)

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func httpSource(host string) *schema.ArtifactSource {
	s := source(host, "")
	s.Spec.Type = schema.SourceHTTP
	return s
}

func TestHTTP(t *testing.T) {
	const text = "the bytes of a package"
	var elsewhere *httptest.Server
	mux := http.NewServeMux()
	for path, h := range map[string]http.HandlerFunc{
		"/pkg.tar": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) },
		"/empty":   func(http.ResponseWriter, *http.Request) {},
		"/moved":   func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/pkg.tar", http.StatusFound) },
		"/round":   func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) },
		"/away": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/pkg.tar", http.StatusFound)
		},
		"/gone":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(410) },
		"/private":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) },
		"/forbidden": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) },
		"/broken":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"/part":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(206); _, _ = io.WriteString(w, text[:4]) },
		"/packed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, text)
		},
		"/cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, text)
		},
		"/huge": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "2000000") },
		"/endless": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		},
		"/slow": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "t")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"/headers": func(w http.ResponseWriter, _ *http.Request) {
			for i := range 200 {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1000))
			}
		},
	} {
		mux.Handle(path, h)
	}
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	elsewhere = httptest.NewTLSServer(mux)
	t.Cleanup(elsewhere.Close)
	host := strings.TrimPrefix(server.URL, "https://")
	pool := (&front{Server: server}).roots()
	pool.AddCert(elsewhere.Certificate())
	l := artifact.New(artifact.Options{Addresses: loopback, Roots: pool, MaxBytes: 1 << 20, Timeout: time.Second})

	for _, c := range []struct {
		path   string
		state  runtimes.SightState
		reason runtimes.SightReason
	}{
		{"pkg.tar", runtimes.SightFound, "Found"},
		{"moved", runtimes.SightFound, "Found"},
		{"empty", runtimes.SightDifferent, "DigestMismatch"},
		{"nothing", runtimes.SightAbsent, "Absent"},
		{"gone", runtimes.SightAbsent, "Absent"},
		{"round", runtimes.SightUnknown, "Redirected"},
		{"away", runtimes.SightUnknown, "Redirected"},
		{"private", runtimes.SightUnknown, "Unauthorized"},
		{"forbidden", runtimes.SightUnknown, "Unauthorized"},
		{"broken", runtimes.SightUnknown, "Status"},
		{"part", runtimes.SightUnknown, "Status"},
		{"packed", runtimes.SightUnknown, "Encoded"},
		{"cut", runtimes.SightUnknown, "Unreachable"},
		{"huge", runtimes.SightUnknown, "TooLarge"},
		{"endless", runtimes.SightUnknown, "TooLarge"},
		{"slow", runtimes.SightUnknown, "Timeout"},
		{"headers", runtimes.SightUnknown, "Unreachable"},
	} {
		t.Run(c.path, func(t *testing.T) {
			s := l.Look(t.Context(), httpSource(host), c.path, digestOf(text), "application/x-tar")
			require.Equal(t, c.state, s.State, "%+v", s)
			require.Equal(t, c.reason, s.Reason, "%+v", s)
		})
	}
	s := l.Look(t.Context(), httpSource(host), "pkg.tar", "", "")
	require.Equal(t, runtimes.Sight{State: runtimes.SightFound, Reason: "Found", Digest: digestOf(text), Size: int64(len(text))}, s)

	// Where only a repository of it is shared, no redirect leads out of that.
	for within, reason := range map[string]runtimes.SightReason{"moved": "Redirected", "pkg": "Redirected", "pkg.tar": "Found"} {
		only := httpSource(host)
		only.Spec.Repositories = []string{"moved", within}
		require.Equal(t, reason, l.Look(t.Context(), only, "moved", digestOf(text), "").Reason, within)
	}
	with := httpSource(host)
	with.Spec.Credential = "pull"
	require.Equal(t, runtimes.ReasonCredentialUnused, l.Look(t.Context(), with, "pkg.tar", "", "").Reason)
}

func TestPlainHTTPNeedsTheOperator(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "text") }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	look := func(o artifact.Options) runtimes.Sight {
		o.Addresses = loopback
		return artifact.New(o).Look(t.Context(), httpSource(host), "x", digestOf("text"), "")
	}
	require.Equal(t, runtimes.ReasonTLS, look(artifact.Options{}).Reason)
	require.Equal(t, runtimes.ReasonTLS, look(artifact.Options{PlainHTTP: []string{"127.0.0.1"}}).Reason, "the port is part of it")
	require.Equal(t, runtimes.SightFound, look(artifact.Options{PlainHTTP: []string{host}}).State)
}

// The dialled address is checked, not the answer of a name server.
func TestRefusedAddressesAreNotDialled(t *testing.T) {
	for _, host := range []string{
		"127.0.0.1:1", "localhost:1", "[::1]:1", "0.0.0.0:1", "[::]:1", "169.254.169.254", "[::ffff:169.254.169.254]:80",
		"[fd00:ec2::254]:80",
		"[fe80::1]:80", "100.100.100.200", "168.63.129.16", "[64:ff9b::a9fe:a9fe]:80", "[2002:a9fe:a9fe::1]:80", "224.0.0.1",
		"255.255.255.255",
	} {
		for _, typ := range []string{schema.SourceOCI, schema.SourceHTTP} {
			src := httpSource(host)
			src.Spec.Type = typ
			s := artifact.New(artifact.Options{PlainHTTP: []string{host}}).Look(t.Context(), src, "a/b:1", digestOf(""), "")
			require.Equal(t, runtimes.SightUnknown, s.State, "%s: %+v", host, s)
			require.Contains(t, []runtimes.SightReason{runtimes.ReasonAddressRefused, runtimes.ReasonBadReference}, s.Reason, "%s %s: %+v",
				typ, host, s)
			if typ == schema.SourceHTTP {
				require.Equal(t, runtimes.ReasonAddressRefused, s.Reason, "%s: %+v", host, s)
				require.Contains(t, s.Message, "artifacts.addresses")
			}
		}
	}
	// One that the operator names is dialled; nobody listens there.
	l := artifact.New(artifact.Options{Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	require.Equal(t, runtimes.ReasonUnreachable, l.Look(t.Context(), httpSource("127.0.0.1:1"), "x", "", "").Reason)
}

func TestFile(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "mirror")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "debian"), 0o755))
	put := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o644)) }
	put(filepath.Join(dir, "debian", "pkg.tar"), "bytes")
	put(filepath.Join(dir, "huge"), strings.Repeat("x", 2000))
	put(filepath.Join(top, "secret"), "bytes")
	for link, to := range map[string]string{
		"inside": "debian/pkg.tar", "outside": "../secret", "absolute": filepath.Join(top, "secret"), "up": "..", "loop": "loop",
		"passwd": "/etc/passwd",
	} {
		require.NoError(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	empty := filepath.Join(top, "empty")
	require.NoError(t, os.Mkdir(empty, 0o755))

	l := artifact.New(artifact.Options{Directories: []string{dir, empty, filepath.Join(top, "none")}, MaxBytes: 1000})
	look := func(dir, reference string) runtimes.Sight {
		src := source("", "")
		src.Spec = schema.ArtifactSourceSpec{Type: schema.SourceFile, Directory: dir}
		return l.Look(t.Context(), src, reference, digestOf("bytes"), "application/x-tar")
	}
	for _, c := range []struct {
		dir, path string
		state     runtimes.SightState
		reason    runtimes.SightReason
	}{
		{dir, "debian/pkg.tar", runtimes.SightFound, "Found"},
		{filepath.Join(dir, "debian"), "pkg.tar", runtimes.SightFound, "Found"},
		{dir, "inside", runtimes.SightFound, "Found"},
		{dir, "debian/other.tar", runtimes.SightAbsent, "Absent"},
		{dir, "outside", runtimes.SightUnknown, "Unreadable"},
		{dir, "absolute", runtimes.SightUnknown, "Unreadable"},
		{dir, "passwd", runtimes.SightUnknown, "Unreadable"},
		{dir, "up/secret", runtimes.SightUnknown, "Unreadable"},
		{dir, "../secret", runtimes.SightUnknown, "Unreadable"},
		{dir, "loop", runtimes.SightUnknown, "Unreadable"},
		{dir, "debian", runtimes.SightUnknown, "NoFile"},
		{dir, "pipe", runtimes.SightUnknown, "NoFile"},
		{dir, "huge", runtimes.SightUnknown, "TooLarge"},
		{empty, "x", runtimes.SightUnknown, "Empty"},
		{filepath.Join(top, "none"), "x", runtimes.SightUnknown, "Unreachable"},
		{top, "secret", runtimes.SightUnknown, "DirectoryRefused"},
		{dir + "-other", "x", runtimes.SightUnknown, "DirectoryRefused"},
	} {
		t.Run(c.path, func(t *testing.T) {
			s := look(c.dir, c.path)
			require.Equal(t, c.state, s.State, "%+v", s)
			require.Equal(t, c.reason, s.Reason, "%+v", s)
		})
	}

	// Where only a repository of it is shared, nothing leads out of that.
	for link, to := range map[string]string{"debian/out": "../huge", "debian/near": "pkg.tar", "linked": "debian", "debian/down": "."} {
		require.NoError(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "debian", "new"), 0o755))
	for _, c := range []struct {
		repository, path string
		reason           runtimes.SightReason
	}{
		{"debian", "debian/pkg.tar", "Found"},
		{"debian", "debian/near", "Found"},
		{"debian", "debian/down/pkg.tar", "Found"},
		{"debian", "debian/out", "Unreadable"},
		{"debian", "debian/../huge", "Unreadable"},
		{"debian", "debian/none", "Absent"},
		{"debian", "huge", "Outside"},
		{"debian", "debian", "Outside"},
		{"linked", "linked/pkg.tar", "Linked"},
		{"linked/new", "linked/new/x", "Linked"},
		{"debian/new", "debian/new/x", "Absent"},
		{"none", "none/pkg.tar", "Absent"},
		{"pipe", "pipe/x", "Unreadable"},
	} {
		src := source("", "")
		src.Spec = schema.ArtifactSourceSpec{Type: schema.SourceFile, Directory: dir, Repositories: []string{c.repository}}
		s := l.Look(t.Context(), src, c.path, digestOf("bytes"), "")
		require.Equal(t, c.reason, s.Reason, "%+v: %+v", c, s)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "debian", "pkg.tar"), []byte("others"), 0o644))
	require.Equal(t, runtimes.SightDifferent, look(dir, "debian/pkg.tar").State)
}
