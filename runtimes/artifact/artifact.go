// Package artifact checks artifacts at their sources: OCI registries, HTTP servers and
// directories of this host (requirements A6, B3). It reports existence and digest and
// stores no bytes.
//
// Tenants declare sources, so each source may be hostile. Proxies and redirects to
// other hosts are not used. Plain HTTP, addresses of this machine and metadata
// services of clouds need the operator's permission. Bytes and time are bounded, and
// no message contains text from a server.
//
// A secret is only exchanged for a Token at a registry's token endpoint. The token
// reads one repository and expires. The secret is sent only to hosts that the operator
// listed for it, whatever an estate declares.
//
// The package must not know policy, the loop, Git or a scheduler.
package artifact

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"berth/runtimes"
	"berth/schema"
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

// Look implements runtimes.Artifacts.
func (l *Looker) Look(ctx context.Context, source *schema.ArtifactSource, reference, digest, mediaType string) runtimes.Sight {
	ctx, cancel := context.WithTimeout(ctx, l.o.Timeout)
	defer cancel()
	var found bytesFound
	var err error
	switch source.Spec.Type {
	case schema.SourceOCI:
		found, err = l.oci(ctx, source, reference, digest)
	case schema.SourceHTTP:
		found, err = l.http(ctx, source, reference)
	case schema.SourceFile:
		found, err = l.file(ctx, source, reference)
	default:
		err = unknown("UnknownType", "unknown source type %s", source.Spec.Type)
	}
	return judge(found, err, digest, mediaType)
}

// bytesFound describes an existing artifact.
type bytesFound struct {
	digest, mediaType string
	size              int64
}

// judge compares the artifact with the declared digest and media type.
func judge(f bytesFound, err error, digest, mediaType string) runtimes.Sight {
	var lack *lackError
	s := runtimes.Sight{State: runtimes.SightFound, Reason: "Found", Digest: f.digest, MediaType: f.mediaType, Size: f.size}
	switch {
	case errors.As(err, &lack):
		return runtimes.Sight{State: lack.state, Reason: lack.reason, Message: lack.message}
	case err != nil:
		// Not an error of this package: its text may come from a server.
		return runtimes.Sight{State: runtimes.SightUnknown, Reason: "Failed", Message: "the check failed"}
	case digest != "" && f.digest != digest:
		s.State, s.Reason = runtimes.SightDifferent, "DigestMismatch"
		s.Message = fmt.Sprintf("the digest is %s, want %s: push the registered bytes again, or publish these as another artifact", f.digest, digest)
	case mediaType != "" && f.mediaType != "" && f.mediaType != mediaType:
		s.State, s.Reason = runtimes.SightDifferent, "MediaTypeMismatch"
		s.Message = fmt.Sprintf("the media type is %s, want %s: declare the actual one", f.mediaType, mediaType)
	}
	return s
}

// lackError is the reason why there is nothing to compare, without text of a server.
type lackError struct {
	state           runtimes.SightState
	reason, message string
}

func (e *lackError) Error() string { return e.message }

func unknown(reason, format string, args ...any) error {
	return &lackError{runtimes.SightUnknown, reason, fmt.Sprintf(format, args...)}
}

func absent(format string, args ...any) error {
	return &lackError{runtimes.SightAbsent, "Absent", fmt.Sprintf(format, args...)}
}

// sum reads r and returns digest and size. More than max bytes and the end of ctx are
// errors.
func sum(ctx context.Context, r io.Reader, max int64) (digest string, size int64, err error) {
	h := sha256.New()
	size, err = io.Copy(h, io.LimitReader(&reader{ctx, r}, max+1))
	if err = cmp.Or(err, ctx.Err()); err != nil { // at the end of ctx a truncated body may look complete
		return "", 0, err
	}
	if size > max {
		return "", 0, tooLarge(max)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), size, nil
}

func tooLarge(max int64) error {
	return unknown("TooLarge", "larger than the limit of %d bytes", max)
}

// reader ends with ctx.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// plain reports whether a host uses http.
func (l *Looker) plain(host string) bool { return slices.Contains(l.o.PlainHTTP, host) }

func (l *Looker) scheme(host string) string {
	if l.plain(host) {
		return "http"
	}
	return "https"
}
