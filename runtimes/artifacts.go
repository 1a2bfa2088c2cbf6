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
	Reason    SightReason
	Message   string // for people, with the next step if something is wrong
	Digest    string // "sha256:…" of the bytes; "" unless found or different
	MediaType string // from the source, if Berth knows it
	Size      int64  // in bytes
}

// SightReason is the cause of a state, one word for machines. It is the reason of the condition
// Verified.
type SightReason string

// The reasons. All but the first four go with the state unknown.
const (
	ReasonFound             SightReason = "Found"             // The bytes exist, as declared.
	ReasonAbsent            SightReason = "Absent"            // The source says that the bytes do not exist.
	ReasonDigestMismatch    SightReason = "DigestMismatch"    // The bytes have another digest.
	ReasonMediaTypeMismatch SightReason = "MediaTypeMismatch" // The bytes have another media type.

	ReasonSourceRefused  SightReason = "SourceRefused"  // No source is declared, or policy does not allow it.
	ReasonUnknownType    SightReason = "UnknownType"    // This version of Berth does not know the type of the source.
	ReasonBadReference   SightReason = "BadReference"   // The reference is not valid for the source.
	ReasonOutside        SightReason = "Outside"        // The reference is in no repository of the source.
	ReasonNoTag          SightReason = "NoTag"          // The reference has neither a tag nor a digest.
	ReasonAddressRefused SightReason = "AddressRefused" // berth.yaml does not allow the address of the source.
	ReasonUnreachable    SightReason = "Unreachable"    // The source does not answer.
	ReasonTLS            SightReason = "TLS"            // The source has no trusted certificate.
	ReasonTimeout        SightReason = "Timeout"        // The source does not answer in time.
	ReasonStatus         SightReason = "Status"         // The source answers with an unexpected status.
	ReasonRedirected     SightReason = "Redirected"     // The source redirects to another place.
	ReasonEncoded        SightReason = "Encoded"        // The source sends the file with a content encoding.
	ReasonTooLarge       SightReason = "TooLarge"       // The file, the manifest or an answer is larger than the limit.
	ReasonFailedCheck    SightReason = "Failed"         // The check failed.

	ReasonUnauthorized     SightReason = "Unauthorized"     // The source requires a login, or refuses the one of the credential.
	ReasonCredentialUnused SightReason = "CredentialUnused" // The source has a credential that its type does not use.
	ReasonSecretRefused    SightReason = "SecretRefused"    // The secret of the credential is not usable.
	ReasonRealmRefused     SightReason = "RealmRefused"     // berth.yaml does not list the host that issues the tokens.
	ReasonNoTokens         SightReason = "NoTokens"         // The registry issues no tokens.

	ReasonDirectoryRefused SightReason = "DirectoryRefused" // berth.yaml does not allow the directory of the source.
	ReasonEmpty            SightReason = "Empty"            // The directory of the source is empty.
	ReasonUnreadable       SightReason = "Unreadable"       // The file or its directory is unreadable.
	ReasonNoFile           SightReason = "NoFile"           // The reference is not a plain file.
	ReasonLinked           SightReason = "Linked"           // The path contains a link.
)
