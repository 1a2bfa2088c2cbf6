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
	"context"
	"errors"
	"fmt"

	"berth/runtimes"
	"berth/schema"
)

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
		err = unknown(runtimes.ReasonUnknownType, "unknown source type %s", source.Spec.Type)
	}
	return judge(found, err, digest, mediaType)
}

// judge compares the artifact with the declared digest and media type.
func judge(f bytesFound, err error, digest, mediaType string) runtimes.Sight {
	var lack *lackError
	s := runtimes.Sight{State: runtimes.SightFound, Reason: runtimes.ReasonFound, Digest: f.digest, MediaType: f.mediaType, Size: f.size}
	switch {
	case errors.As(err, &lack):
		return runtimes.Sight{State: lack.state, Reason: lack.reason, Message: lack.message}
	case err != nil:
		// Not an error of this package: its text may come from a server.
		return runtimes.Sight{State: runtimes.SightUnknown, Reason: runtimes.ReasonFailedCheck, Message: "the check failed"}
	case digest != "" && f.digest != digest:
		s.State, s.Reason = runtimes.SightDifferent, runtimes.ReasonDigestMismatch
		s.Message = fmt.Sprintf("the digest is %s, want %s: push the registered bytes again, or publish these as another artifact",
			f.digest, digest)
	case mediaType != "" && f.mediaType != "" && f.mediaType != mediaType:
		s.State, s.Reason = runtimes.SightDifferent, runtimes.ReasonMediaTypeMismatch
		s.Message = fmt.Sprintf("the media type is %s, want %s: declare the actual one", f.mediaType, mediaType)
	}
	return s
}
