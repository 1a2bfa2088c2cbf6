package artifact

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"berth/runtimes"
)

// bytesFound describes an existing artifact.
type bytesFound struct {
	digest, mediaType string
	size              int64
}

// lackError is the reason why a comparison is impossible, without text of a server.
type lackError struct {
	state   runtimes.SightState
	reason  runtimes.SightReason
	message string
}

func (e *lackError) Error() string { return e.message }

func unknown(reason runtimes.SightReason, format string, args ...any) error {
	return &lackError{runtimes.SightUnknown, reason, fmt.Sprintf(format, args...)}
}

func absent(format string, args ...any) error {
	return &lackError{runtimes.SightAbsent, runtimes.ReasonAbsent, fmt.Sprintf(format, args...)}
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
	return unknown(runtimes.ReasonTooLarge, "larger than the limit of %d bytes", max)
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
