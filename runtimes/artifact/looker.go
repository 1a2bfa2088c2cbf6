package artifact

import (
	"crypto/x509"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"berth/runtimes"
)

// Options limit a Looker. They come from the operator, not from an estate.
type Options struct {
	Secrets     Secrets             // nil: none
	PlainHTTP   []string            // hosts, with a port if they have one, that use http instead of https
	Addresses   []netip.Prefix      // allowed addresses of this machine, link-local ones, and those of metadata services
	TokenHosts  map[string][]string // by registry, other hosts that issue its tokens without a secret
	Directories []string            // allowed directories for sources of type file
	MaxBytes    int64               // of a file; default 16 GiB
	Timeout     time.Duration       // for one call of Look; default 10 min
	Roots       *x509.CertPool      // nil: the system's
	Now         func() time.Time
}

// Looker implements runtimes.Artifacts.
type Looker struct {
	o      Options
	client *http.Transport
}

var _ runtimes.Artifacts = (*Looker)(nil)

// New returns a Looker.
func New(o Options) *Looker {
	if o.MaxBytes == 0 {
		o.MaxBytes = 16 << 30
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Looker{o: o, client: newTransport(o)}
}

// plain reports whether a host uses http.
func (l *Looker) plain(host string) bool { return slices.Contains(l.o.PlainHTTP, host) }

func (l *Looker) scheme(host string) string {
	if l.plain(host) {
		return "http"
	}
	return "https"
}
