package artifact

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"berth/runtimes"
)

// refused are addresses that no source may have: those of this machine, link-local
// ones, of cloud metadata services, and translations of other addresses. Private
// addresses are allowed, as a site's registries have them.
var refused = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("100.100.100.200/32"), // metadata of a cloud
	netip.MustParsePrefix("168.63.129.16/32"),   // metadata of a cloud
	netip.MustParsePrefix("fd00:ec2::/32"),      // metadata of a cloud
	netip.MustParsePrefix("::/127"),             // unspecified and loopback
	netip.MustParsePrefix("64:ff9b::/96"),       // an IPv4 address, translated
	netip.MustParsePrefix("64:ff9b:1::/48"),     // the same, locally
	netip.MustParsePrefix("2002::/16"),          // the same, tunnelled
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("ff00::/8"),
}

// addressError: a name resolves to a refused address.
type addressError struct{ addr netip.Addr }

func (e *addressError) Error() string {
	return fmt.Sprintf("the address %s is not allowed for sources: to allow it, add it in berth.yaml, in artifacts.addresses", e.addr)
}

// newTransport returns the transport for sources. It checks the address when it dials,
// after the resolution, so a name server cannot change it in between.
func newTransport(o Options) *http.Transport {
	dial := &net.Dialer{
		Timeout: 10 * time.Second,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("invalid address %q", address)
			}
			addr := ap.Addr().Unmap().WithZone("")
			in := func(p netip.Prefix) bool { return p.Contains(addr) }
			if slices.ContainsFunc(refused, in) && !slices.ContainsFunc(o.Addresses, in) {
				return &addressError{addr}
			}
			return nil
		},
	}
	return &http.Transport{
		Proxy:                  nil, // the address of a source would not be checked
		DialContext:            dial.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // digests are of the stored bytes
		IdleConnTimeout:        time.Second,
		ForceAttemptHTTP2:      true,
	}
}

// guard allows requests to one host only, with its configured scheme, whatever a
// client, a challenge or a redirect asks for. It keeps the last error, as clients
// wrap it in their own text.
type guard struct {
	inner        http.RoundTripper
	scheme, host string
	redirects    bool // follow redirects within the host

	mu  sync.Mutex
	err error
}

func (g *guard) keep(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
	return err
}

// redirectError: a server redirects to another host.
type redirectError struct{ host string }

func (e *redirectError) Error() string {
	return fmt.Sprintf("%s redirects elsewhere, which is not followed: declare a source for the target instead", e.host)
}

func (g *guard) RoundTrip(in *http.Request) (*http.Response, error) {
	if in.URL.Host != g.host || in.Host != "" && in.Host != g.host || in.URL.Scheme != g.scheme && in.Response != nil {
		return nil, g.keep(&redirectError{g.host})
	}
	req := in.Clone(in.Context())
	req.URL.Scheme = g.scheme
	resp, err := g.inner.RoundTrip(req)
	if err == nil && resp.StatusCode >= 300 && resp.StatusCode < 400 && !g.redirects {
		_ = resp.Body.Close()
		err = &redirectError{g.host}
	}
	if err != nil {
		return nil, g.keep(err)
	}
	return resp, nil
}

// failed returns the error of a failed request without text from the server.
func (g *guard) failed(ctx context.Context, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		err = g.err
	}
	return unreachable(ctx, g.host, err)
}

func unreachable(ctx context.Context, host string, err error) error {
	var (
		lack     *lackError
		address  *addressError
		redirect *redirectError
		dns      *net.DNSError
		cert     *tls.CertificateVerificationError
		name     x509.HostnameError
		record   tls.RecordHeaderError
		timeout  net.Error
	)
	switch {
	case errors.As(err, &lack):
		return lack
	case errors.As(err, &address):
		return unknown(runtimes.ReasonAddressRefused, "%s: %s", host, address)
	case errors.As(err, &redirect):
		return unknown(runtimes.ReasonRedirected, "%s", redirect)
	case errors.As(err, &dns):
		return unknown(runtimes.ReasonUnreachable, "the name %s does not resolve", host)
	case errors.As(err, &cert), errors.As(err, &name), errors.As(err, &record):
		return unknown(runtimes.ReasonTLS, "%s has no trusted certificate", host)
	case errors.Is(err, syscall.ECONNREFUSED):
		return unknown(runtimes.ReasonUnreachable, "%s refuses the connection", host)
	case ctx.Err() != nil, errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return unknown(runtimes.ReasonTimeout, "%s timed out", host)
	}
	return unknown(runtimes.ReasonUnreachable, "%s is unreachable, or closed the connection", host)
}
