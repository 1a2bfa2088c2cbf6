package runtimes

import (
	"context"

	"berth/schema"
)

// Artifacts looks at the bytes behind what an estate declares, at the source
// they went to (requirement A6): whether they are there, and are what they
// shall be. It keeps none of them.
type Artifacts interface {
	// Look looks at what a source has by a reference. A digest, "sha256:…", and a
	// media type say what it shall be; empty ones ask for nothing. Whether the
	// source may be used at all is for policy to say, before. Where the source has
	// repositories, names without {tenant} and {project}, the reference is in one of
	// them, and nothing outside it is looked at, whatever leads there.
	Look(ctx context.Context, source *schema.ArtifactSource, reference, digest, mediaType string) Sight
}

// SightState is what is known of an artifact's bytes.
type SightState string

// The states. What cannot be told is unknown, never absent and never different:
// a refusal, an answer that is cut off, a source that is not there.
const (
	SightFound     SightState = "found"     // they are there, and are what was asked for
	SightDifferent SightState = "different" // others are there
	SightAbsent    SightState = "absent"    // the source says that there are none
	SightUnknown   SightState = "unknown"
)

// Sight is what Look saw. Its texts are Berth's own words: nothing that a server
// answered stands in them, so that none can make it repeat a secret.
type Sight struct {
	State     SightState
	Reason    string // one word for machines, such as DigestMismatch
	Message   string // for people; what to do where something is wrong
	Digest    string // "sha256:…" of the bytes that are there; "" unless found or different
	MediaType string // as the source says it, where it is one that Berth knows
	Size      int64  // in bytes
}
