package schema

// ArtifactSource is a place that bytes come from: the platform's, for
// everybody, or a tenant's, for itself (requirement B3). Policy says which
// hosts may be used; the source only names one. Berth checks that declared
// artifacts exist; it moves no bytes.
type ArtifactSource struct {
	Header
	Spec ArtifactSourceSpec
}

// The types of artifact sources.
const (
	SourceOCI  = "oci"
	SourceHTTP = "http"
	SourceFile = "file"
)

// ArtifactSourceSpec is the spec of an ArtifactSource.
type ArtifactSourceSpec struct {
	Type      string `json:"type"`                // oci, http or file
	Host      string `json:"host,omitempty"`      // with its port where it is not the usual one; for oci and http
	Directory string `json:"directory,omitempty"` // absolute path on Berth's host, for type file; sources of the platform only
	// for oci: name of a secret, which is exchanged for tokens that expire; berth.yaml says where secrets live, whose they are and for
	// which hosts
	Credential string `json:"credential,omitempty"`
	// Repositories are where tenants' artifacts may be in a source of the
	// platform's: a repository, or a directory, and all below it, each part a name,
	// {tenant} or {project}. Without them a credential, and all of a source of type
	// file, is for what the platform's own versions are made from. Only this
	// field opens a source to the users who can declare artifacts.
	Repositories []string `json:"repositories,omitempty"`
}

// ArtifactStatus is how far an Artifact has come (ACP).
type ArtifactStatus string

// The states of an Artifact. One without a status is a publish intent.
const (
	ArtifactRegistered ArtifactStatus = "registered"
	ArtifactPromoted   ArtifactStatus = "promoted"
	ArtifactDeprecated ArtifactStatus = "deprecated"
	ArtifactRetired    ArtifactStatus = "retired"
)

// Artifact is something a project publishes for an app. Its bytes go to the
// source, never through Berth (requirement A6). Without status and digest it is
// a publish intent: it says what will be pushed where; with both it is
// registered, once the bytes were seen, and later promoted, deprecated and
// retired (ArtifactTransition).
type Artifact struct {
	Header
	Spec ArtifactSpec
}

// ArtifactSpec is the spec of an Artifact (ACP app-artifacts).
type ArtifactSpec struct {
	App         string         `json:"app"`
	DisplayName string         `json:"display_name,omitempty"`
	Source      string         `json:"source"`    // an ArtifactSource of the tenant, else of the platform
	Reference   string         `json:"reference"` // within the source: repository and tag, or path
	MediaType   string         `json:"media_type"`
	Digest      string         `json:"digest,omitempty"` // "sha256:…"
	Status      ArtifactStatus `json:"status,omitempty"`
}

// ManifestArtifact is one artifact of an app's version.
type ManifestArtifact struct {
	Source    string `json:"source"` // an ArtifactSource: of a tenant's own version one of the tenant, else of the platform
	Reference string `json:"reference"`
	MediaType string `json:"media_type"`
	Digest    string `json:"digest"` // "sha256:…": the bytes that run are the bytes that were checked
}
