// Package artifact looks at the bytes of artifacts where they are: at OCI
// registries, at HTTP servers and in directories of this host (requirements A6,
// B3). It says whether they are there and which digest they have, and keeps
// nothing of them.
//
// Sources are named by tenants, so each is taken for hostile: no proxy, no
// redirect to another host, no plain HTTP and no address of this machine or of
// a cloud's metadata service unless the operator names it, bounded bytes and
// time, and nothing that a server answered in any text.
//
// A secret is used for one thing: it is exchanged at a registry's token endpoint
// for a Token, which reads one repository and expires. It is sent to hosts that
// the operator named for it and to no others, whatever an estate declares.
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

// Options say what a Looker may do. All of it is the operator's, none of it
// comes from an estate.
type Options struct {
	Secrets     Secrets             // nil: there are none
	PlainHTTP   []string            // hosts, with their port if they have one, that are asked by http instead of https
	Addresses   []netip.Prefix      // addresses that are refused otherwise: of this machine, link-local, of metadata services
	TokenHosts  map[string][]string // by a registry, the other hosts that give its tokens to those who show nothing
	Directories []string            // directories that sources of type file may name
	MaxBytes    int64               // of an HTTP server's file or of one in a directory: 16 GiB
	Timeout     time.Duration       // for one look: 10 min
	Roots       *x509.CertPool      // nil: the system's
	Now         func() time.Time
}

// Looker implements runtimes.Artifacts.
type Looker struct {
	o      Options
	client *http.Transport
}

var _ runtimes.Artifacts = (*Looker)(nil)

// New makes a Looker.
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
		err = unknown("UnknownType", "no source of type %s is known", source.Spec.Type)
	}
	return judge(found, err, digest, mediaType)
}

// bytesFound is what is there.
type bytesFound struct {
	digest, mediaType string
	size              int64
}

// judge compares what is there with what shall be.
func judge(f bytesFound, err error, digest, mediaType string) runtimes.Sight {
	var lack *lackError
	s := runtimes.Sight{State: runtimes.SightFound, Reason: "Found", Digest: f.digest, MediaType: f.mediaType, Size: f.size}
	switch {
	case errors.As(err, &lack):
		return runtimes.Sight{State: lack.state, Reason: lack.reason, Message: lack.message}
	case err != nil:
		// Not of this package's making: its text may be anybody's.
		return runtimes.Sight{State: runtimes.SightUnknown, Reason: "Failed", Message: "it could not be looked at"}
	case digest != "" && f.digest != digest:
		s.State, s.Reason = runtimes.SightDifferent, "DigestMismatch"
		s.Message = fmt.Sprintf("the bytes there have the digest %s, not %s: push the registered ones again, or publish these as an artifact of their own", f.digest, digest)
	case mediaType != "" && f.mediaType != "" && f.mediaType != mediaType:
		s.State, s.Reason = runtimes.SightDifferent, "MediaTypeMismatch"
		s.Message = fmt.Sprintf("what is there is of the media type %s, not %s: declare that", f.mediaType, mediaType)
	}
	return s
}

// lackError says why there is nothing to compare. Its message is Berth's own.
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

// sum reads all of r and returns digest and size. More than max bytes are an
// error, and so is the end of ctx.
func sum(ctx context.Context, r io.Reader, max int64) (digest string, size int64, err error) {
	h := sha256.New()
	size, err = io.Copy(h, io.LimitReader(&reader{ctx, r}, max+1))
	if err = cmp.Or(err, ctx.Err()); err != nil { // what was cut off by the end of ctx may look like the end
		return "", 0, err
	}
	if size > max {
		return "", 0, tooLarge(max)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), size, nil
}

func tooLarge(max int64) error {
	return unknown("TooLarge", "it is larger than the %d bytes that are looked at", max)
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

// plain says whether a host is asked by http.
func (l *Looker) plain(host string) bool { return slices.Contains(l.o.PlainHTTP, host) }

func (l *Looker) scheme(host string) string {
	if l.plain(host) {
		return "http"
	}
	return "https"
}
