package outgoing_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/webhooks/outgoing"
)

// receiver answers with a code, and keeps what it got.
type receiver struct {
	*httptest.Server
	code  int
	times int
	body  string
	from  http.Header
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{code: http.StatusNoContent}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		data, _ := io.ReadAll(req.Body)
		r.times++
		r.body, r.from = string(data), req.Header
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(r.code)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) options() outgoing.Options {
	roots := x509.NewCertPool()
	roots.AddCert(r.Certificate())
	return outgoing.Options{
		Hosts: []string{strings.TrimPrefix(r.URL, "https://")}, Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Roots: roots,
		Secret: func(name string) (string, error) {
			if name != "signing" {
				return "", errors.New("no such secret")
			}
			return "key", nil
		},
	}
}

func TestWebhookIsSigned(t *testing.T) {
	r := newReceiver(t)
	s := outgoing.New(r.options())
	require.NoError(t, s.Send(t.Context(), r.URL+"/x", "signing", "d1", []byte(`{"a":1}`)))
	mac := hmac.New(sha256.New, []byte("key"))
	mac.Write([]byte(r.body))
	require.Equal(t, `{"a":1}`, r.body)
	require.Equal(t, "sha256="+hex.EncodeToString(mac.Sum(nil)), r.from.Get(outgoing.HeaderSignature))
	require.Equal(t, "d1", r.from.Get(outgoing.HeaderDelivery))
	require.NoError(t, s.Send(t.Context(), r.URL+"/x", "", "d2", nil))
	require.Empty(t, r.from.Get(outgoing.HeaderSignature))
	err := s.Send(t.Context(), r.URL+"/x", "other", "d3", nil)
	require.ErrorContains(t, err, "no such secret")
	require.NotErrorIs(t, err, outgoing.ErrRefused, "an operator adds it")
	require.Equal(t, 2, r.times)
}

func TestWebhookGoesToAllowedHostsOnly(t *testing.T) {
	r := newReceiver(t)
	o := r.options()
	require.ErrorIs(t, outgoing.New(outgoing.Options{Roots: o.Roots, Addresses: o.Addresses}).Send(t.Context(), r.URL, "", "d", nil),
		outgoing.ErrRefused)
	require.ErrorIs(t, outgoing.New(o).Send(t.Context(), "http://"+o.Hosts[0], "", "d", nil), outgoing.ErrRefused)
	o.Addresses = nil
	err := outgoing.New(o).Send(t.Context(), r.URL, "", "d", nil)
	require.ErrorIs(t, err, outgoing.ErrRefused)
	require.ErrorContains(t, err, "127.0.0.1 is a private address")
	require.Zero(t, r.times)
}

func TestAnswersDecideOnAnotherTry(t *testing.T) {
	r := newReceiver(t)
	s := outgoing.New(r.options())
	for code, isRefused := range map[int]bool{301: true, 307: true, 400: true, 401: true, 404: true, 408: false, 429: false, 500: false,
		503: false} {
		r.code = code
		err := s.Send(t.Context(), r.URL, "", "d", nil)
		require.Error(t, err, code)
		require.Equal(t, isRefused, errors.Is(err, outgoing.ErrRefused), code)
	}
	require.Equal(t, 9, r.times, "no redirect is followed")
}
