// Package outgoing sends webhooks: one signed POST to a host that the configuration allows.
//
// It must not know the content of a webhook, or when it is tried again.
package outgoing

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"
)

// Headers of a webhook.
const (
	HeaderSignature = "X-Hub-Signature-256" // sha256= and the HMAC-SHA256 of the body in hexadecimal; absent without a secret
	HeaderDelivery  = "X-Berth-Delivery"    // the same for each try: a receiver that knows it has the webhook already
)

const (
	timeout     = 10 * time.Second // of one POST
	maxAnswer   = 64 << 10         // bytes of an answer that are read, to use the connection again
	dialTimeout = 5 * time.Second
)

// ErrRefused: the same request would be refused again.
var ErrRefused = errors.New("webhook refused")

// Options of a Sender.
type Options struct {
	Hosts     []string                                  // with a port if it is not 443; nothing is sent to others
	Addresses []netip.Prefix                            // private addresses that hosts may have
	Secret    func(name string) (key string, err error) // returns the key of a signature
	Roots     *x509.CertPool                            // nil: those of the system
}

// Sender sends webhooks. It follows no redirect and uses no proxy. It is safe for concurrent use.
type Sender struct {
	o      Options
	client *http.Client
}

// New returns a Sender.
func New(o Options) *Sender {
	s := &Sender{o: o}
	dial := &net.Dialer{Timeout: dialTimeout, ControlContext: s.checkAddress}
	s.client = &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{DialContext: dial.DialContext, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: maxAnswer,
			TLSClientConfig: &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12}, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s
}

// checkAddress refuses an address of this machine or of a private network. It is called after the resolution of the name, so that a
// name server cannot change the address in between.
func (s *Sender) checkAddress(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: invalid address %q", ErrRefused, address)
	}
	addr := ap.Addr().Unmap().WithZone("")
	isAllowed := slices.ContainsFunc(s.o.Addresses, func(p netip.Prefix) bool { return p.Contains(addr) })
	if isPublic(addr) || isAllowed {
		return nil
	}
	return fmt.Errorf("%w: %s is a private address; to allow it, add it to rules.addresses in berth.yaml", ErrRefused, addr)
}

// isPublic reports whether an address is one of the Internet.
func isPublic(a netip.Addr) bool {
	shared, translated := netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("64:ff9b::/16")
	return a.IsGlobalUnicast() && !a.IsPrivate() && !shared.Contains(a) && !translated.Contains(a) &&
		!netip.MustParsePrefix("2002::/16").Contains(a) && !netip.MustParsePrefix("192.0.0.0/24").Contains(a) &&
		!netip.MustParsePrefix("0.0.0.0/8").Contains(a) && !netip.MustParsePrefix("240.0.0.0/4").Contains(a)
}

// Send posts a body to a URL, signed with the named secret; "": unsigned. delivery is the same for each try. The error is
// ErrRefused if another try is of no use.
func (s *Sender) Send(ctx context.Context, to, secret, delivery string, body []byte) error {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "https" || !slices.Contains(s.o.Hosts, u.Host) {
		return fmt.Errorf("%w: %s is not one of rules.hosts in berth.yaml", ErrRefused, hostOf(u))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "berth")
	req.Header.Set(HeaderDelivery, delivery)
	if secret != "" {
		key, err := s.o.Secret(secret)
		if err != nil {
			return err
		}
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write(body)
		req.Header.Set(HeaderSignature, "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	res, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.CopyN(io.Discard, res.Body, maxAnswer)
	switch code := res.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= 500:
		return fmt.Errorf("%s answers %s", u.Host, res.Status)
	default:
		return fmt.Errorf("%w: %s answers %s", ErrRefused, u.Host, res.Status)
	}
}

func hostOf(u *url.URL) string {
	if u == nil {
		return "the URL"
	}
	return u.Host
}
