package runtimes

import (
	"context"

	"berth/schema"
)

// Artifacts checks declared artifacts at their source (requirement A6): whether the
// bytes exist and have the declared digest. It stores none of them.
type Artifacts interface {
	// Look reads the artifact of a reference and compares it with a digest,
	// "sha256:…", and a media type, unless they are empty. The caller has checked
	// that policy allows the source. If the source has repositories (names without
	// {tenant} and {project}), the reference has to be in one of them; no link or
	// redirect is followed out of it.
	Look(ctx context.Context, source *schema.ArtifactSource, reference, digest, mediaType string) Sight
}

// SightState is the state of an artifact at its source.
type SightState string

// The states. A refusal, a truncated answer or an unreachable source is unknown, never
// absent or different.
const (
	SightFound     SightState = "found"     // exists with the declared digest and media type
	SightDifferent SightState = "different" // has another digest or media type
	SightAbsent    SightState = "absent"    // the source says that it does not exist
	SightUnknown   SightState = "unknown"
)

// Sight is the result of Look. Its texts contain nothing from a server's answer, which
// could repeat a secret.
type Sight struct {
	State     SightState
	Reason    string // one word for machines, such as DigestMismatch
	Message   string // for people, with the next step if something is wrong
	Digest    string // "sha256:…" of the bytes; "" unless found or different
	MediaType string // from the source, if Berth knows it
	Size      int64  // in bytes
}
