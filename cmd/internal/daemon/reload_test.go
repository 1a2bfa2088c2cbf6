package daemon

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/cmd/internal/labtest"
)

// edited returns a configuration with some fields changed; nil removes a field.
func edited(t testing.TB, path string, more map[string]any) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	c := map[string]any{}
	require.NoError(t, yaml.Unmarshal(data, &c))
	for field, v := range more {
		if c[field] = v; v == nil {
			delete(c, field)
		}
	}
	data, err = yaml.Marshal(c)
	require.NoError(t, err)
	return data
}

// replace puts a file in another's place, as editors and Kubernetes do.
func replace(t testing.TB, path string, data []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", data, 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// A changed configuration is applied, however its file was replaced. An invalid one
// is reported with its line, and the accepted one stays in use.
func TestConfigurationIsReloaded(t *testing.T) {
	t.Parallel()
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	k := newKept(t, "north", listen, map[string]any{"listen": listen, "workers": 2})
	// As Kubernetes mounts it: a link to a link that is pointed elsewhere.
	mount := filepath.Join(k.dir, "mount")
	generation := func(name string, data []byte) {
		require.NoError(t, os.MkdirAll(filepath.Join(mount, name), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(mount, name, "berth.yaml"), data, 0o600))
		require.NoError(t, os.Symlink(name, filepath.Join(mount, "..data.new")))
		require.NoError(t, os.Rename(filepath.Join(mount, "..data.new"), filepath.Join(mount, "..data")))
	}
	generation("..one", edited(t, k.path, nil))
	plain := k.path
	k.path = filepath.Join(mount, "berth.yaml")
	require.NoError(t, os.Symlink("..data/berth.yaml", k.path))
	s := attend(k, listen)
	e := s.only()
	workers := func(n int) {
		t.Helper()
		s.eventually("gone on with", func() bool { return e.config.Load().Workers == n && s.estates.ready() == nil })
		require.Zero(t, s.metric("berth_config_refused", "north"))
	}
	refusals := 0.0
	refused := func(words string) {
		t.Helper()
		s.eventually("refused: "+words, func() bool {
			return s.metric("berth_config_reloads_total", "refused") > refusals && strings.Contains(s.said.String(), words)
		})
		refusals = s.metric("berth_config_reloads_total", "refused")
		require.Equal(t, 1.0, s.metric("berth_config_refused", "north"))
		require.NoError(t, s.estates.ready())
	}
	workers(2)

	generation("..two", edited(t, plain, map[string]any{"workers": 3}))
	workers(3)

	// From here on it is a regular file: replaced by renaming, and overwritten.
	replace(t, k.path, edited(t, plain, map[string]any{"workers": 4}))
	workers(4)
	d := e.running.Load()
	data := edited(t, plain, map[string]any{"workers": 5, "nonsense": true})
	require.NoError(t, os.WriteFile(k.path, data, 0o600))
	refused("nonsense")
	require.Same(t, d, e.running.Load(), "the daemon was restarted")
	require.NoError(t, os.WriteFile(k.path, data[:len(data)/3], 0o600)) // half of it
	refused("")
	require.NoError(t, os.Remove(k.path))
	refused("no such file")
	require.NoError(t, os.WriteFile(k.path, edited(t, plain, map[string]any{"workers": 6}), 0o600))
	workers(6)

	// Fields that need a restart, and missing secrets.
	for field, v := range map[string]any{"listen": "127.0.0.1:1", "estate": "south", "forge": nil} {
		replace(t, k.path, edited(t, plain, map[string]any{field: v, "workers": 7}))
		refused(field + " cannot change while Berth runs")
	}
	replace(t, k.path, edited(t, plain, map[string]any{"workers": 7, "api": map[string]any{"tokens": []any{
		map[string]any{"login": "eve", "token": map[string]string{"file": filepath.Join(k.dir, "nowhere")}}}}}))
	refused("nowhere")
	// The missing file appears later, without a change to the configuration.
	late := filepath.Join(t.TempDir(), "late")
	replace(t, k.path, edited(t, plain, map[string]any{"workers": 9, "api": map[string]any{"tokens": []any{
		map[string]any{"login": "eve", "token": map[string]string{"file": late}}}}}))
	refused(late)
	require.NoError(t, os.WriteFile(late, []byte(strings.Repeat("x", 40)), 0o600))
	workers(9)
	replace(t, k.path, edited(t, plain, map[string]any{"workers": 6}))
	workers(6)
	refusals = s.metric("berth_config_reloads_total", "refused") // one more reload, caused by the missing file
	// A valid configuration that cannot be started is rolled back.
	inTheWay := filepath.Join(k.dir, "in-the-way")
	require.NoError(t, os.WriteFile(inTheWay, nil, 0o600))
	replace(t, k.path, edited(t, plain,
		map[string]any{"workers": 7, "memory_runtime": map[string]any{"directory": inTheWay, "backends": []string{"slurm"}}}))
	s.eventually("left again", func() bool {
		return strings.Contains(s.said.String(), "valid configuration failed to start") && e.config.Load().Workers == 6 &&
			s.estates.ready() == nil
	})
	require.Equal(t, 1.0, s.metric("berth_config_refused", "north"))

	// The read API comes and goes.
	api := func() int {
		resp, err := http.Get("http://" + listen + "/api/v1/openapi.yaml")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, 401, api())
	replace(t, k.path, edited(t, plain, map[string]any{"workers": 8, "api": nil}))
	workers(8)
	require.Equal(t, 404, api())

	s.reread <- syscall.SIGHUP // a receiver is ready
}

// A signal reloads the configurations, also where the file system reports no change.
func TestSignalReloadsConfigurations(t *testing.T) {
	t.Parallel()
	k := newKept(t, "north", "", map[string]any{"workers": 2})
	s, err := New([]string{k.path}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	r, err := newReloader(s)
	require.NoError(t, err)
	signals, ended := make(chan os.Signal), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- r.handleSignals(ctx, signals) }()
	signals <- syscall.SIGHUP // without a change
	replace(t, k.path, edited(t, k.path, map[string]any{"workers": 3}))
	signals <- syscall.SIGHUP // the first has been handled
	next := <-s.all[0].next
	require.Equal(t, 3, next.Workers)
	require.Same(t, next, s.all[0].file.accepted.Load())
	cancel()
	require.NoError(t, <-ended)
	require.Empty(t, s.all[0].next)
	require.Equal(t, 1.0, testutil.ToFloat64(r.reloads.WithLabelValues("north", "taken")))
}

// A value shared by several estates changes in all of them at once, or in none.
func TestSharedValuesChangeTogether(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := func(n int64) map[string]string {
		f := map[string]string{"cert": filepath.Join(dir, fmt.Sprint(n, ".crt")), "key": filepath.Join(dir, fmt.Sprint(n, ".key"))}
		cert, key := pair(t, n)
		require.NoError(t, os.WriteFile(f["cert"], cert, 0o600))
		require.NoError(t, os.WriteFile(f["key"], key, 0o600))
		return f
	}
	one, two, three := files(1), files(2), files(3)
	a, b := newKept(t, "north", "", map[string]any{"tls": one, "workers": 2}),
		newKept(t, "south", "", map[string]any{"tls": one, "workers": 2})
	s, err := New([]string{a.path, b.path}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	r, err := newReloader(s)
	require.NoError(t, err)
	say := func(k *kept, tls map[string]string, workers int) {
		replace(t, k.path, edited(t, k.path, map[string]any{"tls": tls, "workers": workers}))
	}
	expect := func(cert map[string]string, serial int64, workers [2]int, refused [2]float64) {
		t.Helper()
		r.reload()
		for i, e := range s.all {
			require.Equal(t, cert["cert"], e.file.accepted.Load().TLS.Cert, i)
			require.Equal(t, workers[i], e.file.accepted.Load().Workers, i)
			require.Equal(t, refused[i], testutil.ToFloat64(e.file.refused), i)
		}
		require.Equal(t, serial, r.certificate.current.Load().Leaf.SerialNumber.Int64())
	}
	expect(one, 1, [2]int{2, 2}, [2]float64{0, 0})
	say(a, two, 3)
	expect(one, 1, [2]int{2, 2}, [2]float64{1, 0}) // and not yet in the other
	say(b, two, 3)
	expect(two, 2, [2]int{3, 3}, [2]float64{0, 0})
	say(b, three, 4)
	expect(two, 2, [2]int{3, 3}, [2]float64{0, 1})
	say(a, one, 4)
	expect(two, 2, [2]int{3, 3}, [2]float64{1, 1})
	say(a, two, 5) // an invalid configuration does not block another one
	expect(two, 2, [2]int{5, 3}, [2]float64{0, 1})
}

// pair is a certificate for 127.0.0.1 and its key, PEM.
func pair(t testing.TB, serial int64) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"berth.example"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// HTTPS uses the current certificate. A certificate that does not match its key is
// refused, and a server does not start with one.
func TestCertificatesAreReloaded(t *testing.T) {
	t.Parallel()
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	dir := t.TempDir()
	files := map[string]string{"cert": filepath.Join(dir, "tls.crt"), "key": filepath.Join(dir, "tls.key")}
	cert, key := pair(t, 1)
	require.NoError(t, os.WriteFile(files["cert"], cert, 0o600))
	require.NoError(t, os.WriteFile(files["key"], key, 0o600))
	k := newKept(t, "north", listen, map[string]any{"listen": listen, "tls": files})
	s := attend(k, listen)
	shown := func() int64 {
		conn, err := tls.Dial("tcp", listen, &tls.Config{InsecureSkipVerify: true}) // the test's own certificate
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.Handshake())
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	require.Equal(t, int64(1), shown())
	_, err = tls.Dial("tcp", listen, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11})
	require.Error(t, err)
	if resp, err := http.Get("http://" + listen + "/health"); err == nil {
		require.Equal(t, 400, resp.StatusCode, "the API answered without TLS")
		require.NoError(t, resp.Body.Close())
	}
	d := s.only().running.Load()
	for serial := int64(2); serial < 5; serial++ {
		cert, key := pair(t, serial)
		replace(t, files["cert"], cert) // and for a moment the key is another's
		s.eventually("not taken up", func() bool {
			return strings.Count(s.said.String(), "invalid certificate ignored") >= int(serial)-1
		})
		require.Equal(t, serial-1, shown())
		replace(t, files["key"], key)
		s.eventually("taken up", func() bool { return shown() == serial })
	}
	require.Same(t, d, s.only().running.Load(), "the daemon was restarted")

	replace(t, files["key"], []byte("no key"))
	other, err := New([]string{k.path}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.ErrorContains(t, other.Serve(t.Context(), nil), files["key"])
	for field, path := range files {
		broken := filepath.Join(dir, field+".yaml")
		require.NoError(t, os.WriteFile(broken, edited(t, k.path, map[string]any{"tls": map[string]string{field: path}}), 0o600))
		_, err := ReadConfig(broken)
		require.ErrorContains(t, err, "tls.", "one of the two")
	}
}
