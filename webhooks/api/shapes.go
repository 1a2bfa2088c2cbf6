package api

import (
	"encoding/json"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
)

// The shapes of answers. Their names are those of ACP's tables and TSR's lists;
// openapi.yaml names the exceptions. A test compares the shapes with openapi.yaml.

// declared is the part of a resource that its document gives.
type declared struct {
	DeclaredIn string            `json:"declared_in,omitempty"` // path in the estate; "" once the document is gone
	Labels     map[string]string `json:"labels,omitempty"`
	Suspended  bool              `json:"suspended"`
	CreatedAt  time.Time         `json:"created_at,omitzero"` // commit of main that created it, UTC; zero: unknown
	UpdatedAt  time.Time         `json:"updated_at,omitzero"` // commit that made its version in force
	Held       *held             `json:"held,omitempty"`      // main has a later version that is held
}

type held struct {
	Reason  schema.HeldReason `json:"reason"`
	Message string            `json:"message"`
}

// followed is the part of a resource that its status gives.
type followed struct {
	Conditions      []plan.Condition `json:"conditions"`
	UpdatedRevision string           `json:"updated_revision,omitempty"` // commit of main last acted on
	CorrelationID   string           `json:"correlation_id,omitempty"`   // of the change last acted on
}

// owned is the owner of an app: the platform, or the tenant whose own app it is.
type owned struct {
	Tier     string `json:"tier"` // platform or tenant
	OrgID    string `json:"org_id,omitempty"`
	Admitted *bool  `json:"admitted,omitempty"` // of a tenant's own app: the platform has admitted it
}

type app struct {
	ID   string `json:"id"` // uid if the document has one, else the slug
	Slug string `json:"slug"`
	owned
	DisplayName string               `json:"display_name"`
	Category    string               `json:"category"`
	Publisher   string               `json:"publisher"`
	Description string               `json:"description,omitempty"`
	Status      schema.CatalogStatus `json:"status"`
	declared
}

type version struct {
	ID      string `json:"id"` // name of the AppVersion document, which instances name
	AppID   string `json:"app_id"`
	AppSlug string `json:"app_slug"`
	owned
	Version        string               `json:"version"`
	RuntimeBackend string               `json:"runtime_backend"`
	Status         schema.CatalogStatus `json:"status"`
	Manifest       schema.Manifest      `json:"manifest"`
	declared
}

// source is an artifact source, without directories of Berth's host and names of
// secrets.
type source struct {
	ID    string `json:"id"`
	Tier  string `json:"tier"` // platform or tenant
	OrgID string `json:"org_id,omitempty"`
	Type  string `json:"type"`
	Host  string `json:"host,omitempty"`
	declared
}

type entitlement struct {
	ID              string         `json:"id"` // uid if the document has one, else the app's slug
	OrgID           string         `json:"org_id"`
	ProjectID       string         `json:"project_id"`
	AppID           string         `json:"app_id"`
	AppSlug         string         `json:"app_slug"`
	Enabled         bool           `json:"enabled"`
	PolicyOverrides schema.Overlay `json:"policy_overrides"`
	declared
}

// instanceIDs names an instance, its owner and its app.
type instanceIDs struct {
	ID           string `json:"id"` // uid if the document has one, else the name
	ResourceName string `json:"resource_name"`
	Name         string `json:"name"`
	OrgID        string `json:"org_id"`
	ProjectID    string `json:"project_id"`
	AppID        string `json:"app_id,omitempty"`
	AppVersionID string `json:"app_version_id,omitempty"` // the same as app_version
	AppSlug      string `json:"app_slug,omitempty"`
	AppVersion   string `json:"app_version,omitempty"`
	DisplayName  string `json:"display_name,omitempty"`
}

// instanceModes are the effective modes of an instance (requirement B4).
type instanceModes struct {
	OperatingMode      string `json:"operating_mode,omitempty"`
	ControlPlaneScope  string `json:"control_plane_scope,omitempty"`
	TenantBoundaryMode string `json:"tenant_boundary_mode,omitempty"`
	RuntimeBackend     string `json:"runtime_backend,omitempty"`
	SharedRuntimeID    string `json:"shared_runtime_id,omitempty"`
}

type instance struct {
	instanceIDs
	instanceModes
	DesiredState           string          `json:"desired_state"` // running, stopped or deleted
	Status                 plan.Phase      `json:"status"`
	FailureReason          string          `json:"failure_reason,omitempty"`
	RequestedBy            string          `json:"requested_by_user_id,omitempty"` // proven author of its document; absent if unknown
	OperatorServiceAccount string          `json:"operator_service_account_id,omitempty"`
	DeletedAt              time.Time       `json:"deleted_at,omitzero"` // end of its deletion
	DeletionProtection     bool            `json:"deletion_protection"`
	Roles                  any             `json:"roles,omitempty"`
	Config                 json.RawMessage `json:"config"`
	RuntimeState           json.RawMessage `json:"runtime_state"`
	// SubmissionLimits are those that the project declares below a shared runtime's.
	SubmissionLimits *schema.SubmissionLimits `json:"submission_limits,omitempty"`
	declared
	followed
}

// placement is the node of a member, and its share of it.
type placement struct {
	Node            string       `json:"node"`
	Region          string       `json:"region"`
	SKU             string       `json:"sku"`
	CPUs            int          `json:"cpus"`
	MemoryMiB       int          `json:"memory_mib"`
	GPUs            []memberGPUs `json:"gpus,omitempty"`
	SourceProjectID string       `json:"source_project_id,omitempty"` // project that lends the node (requirement D4)
	SourceUntil     string       `json:"source_until,omitempty"`      // day, UTC, with whose begin the node returns; absent: open
	PlacementReason string       `json:"placement_reason,omitempty"`
}

type member struct {
	ID              string `json:"id"` // role and index, such as worker-0
	AppInstanceID   string `json:"app_instance_id,omitempty"`
	SharedRuntimeID string `json:"shared_runtime_id,omitempty"`
	OrgID           string `json:"org_id"`
	ProjectID       string `json:"project_id,omitempty"`
	AppSlug         string `json:"app_slug,omitempty"`
	Role            string `json:"role"`
	ControlPlane    bool   `json:"control_plane"`
	Status          string `json:"status"` // "unknown" before the first observation
	placement
	plan.Integration
}

type memberGPUs struct {
	Type  string `json:"type"`
	Count int    `json:"count"`
}

type operation struct {
	ID              string            `json:"id"` // uid if the document has one, else the name
	OrgID           string            `json:"org_id"`
	ProjectID       string            `json:"project_id,omitempty"`
	AppInstanceID   string            `json:"app_instance_id,omitempty"`
	SharedRuntimeID string            `json:"shared_runtime_id,omitempty"`
	MemberID        string            `json:"member_id,omitempty"`
	Operation       string            `json:"operation"`
	TargetLabels    map[string]string `json:"target_labels,omitempty"`
	Reason          string            `json:"reason"`
	Status          string            `json:"status"`
	operated
	declared
	followed
}

// operated is the part of an operation that its status gives. Its names are those of the detail.
type operated struct {
	RequestedBy string    `json:"requested_by,omitempty"`
	Result      string    `json:"result,omitempty"` // why it waits, or what came of it
	RequestedAt time.Time `json:"requested_at,omitzero"`
	StartedAt   time.Time `json:"started_at,omitzero"`
	FinishedAt  time.Time `json:"finished_at,omitzero"`
}

type artifact struct {
	ID          string `json:"id"`
	OrgID       string `json:"org_id"`
	ProjectID   string `json:"project_id"`
	AppSlug     string `json:"app_slug"`
	DisplayName string `json:"display_name,omitempty"`
	Source      string `json:"source"`
	Reference   string `json:"reference"`
	MediaType   string `json:"media_type"`
	Digest      string `json:"digest,omitempty"`
	Status      string `json:"status"` // intent before it is registered
	declared
	followed
}

// runtimeIDs names a shared runtime, its owner, its app and its modes.
type runtimeIDs struct {
	ID                string `json:"id"`
	ResourceName      string `json:"resource_name"`
	Owner             string `json:"owner"`  // tenant or platform
	OrgID             string `json:"org_id"` // "": the platform
	AppSlug           string `json:"app_slug"`
	AppVersion        string `json:"app_version"`
	DisplayName       string `json:"display_name"`
	Environment       string `json:"environment"`
	OperatingMode     string `json:"operating_mode"`
	ControlPlaneScope string `json:"control_plane_scope"`
	RuntimeBackend    string `json:"runtime_backend"`
	// TenantBoundaryMode is effective: absent while the runtime is held.
	TenantBoundaryMode string `json:"tenant_boundary_mode,omitempty"`
}

type sharedRuntime struct {
	runtimeIDs
	DesiredState        string                  `json:"desired_state"`
	Status              string                  `json:"status"`
	FailureReason       string                  `json:"failure_reason,omitempty"`
	OperatorIdentityRef string                  `json:"operator_service_account_id,omitempty"`
	PlacementIntent     *schema.PlacementIntent `json:"placement_intent,omitempty"`
	Roles               any                     `json:"roles"`
	Config              json.RawMessage         `json:"config"`
	AttachedProjectIDs  []string                `json:"attached_project_ids"` // with terms or without
	Attachments         []attachedProject       `json:"attachments"`          // by project
	BillingPolicyRef    string                  `json:"billing_policy_ref,omitempty"`
	DeletionProtection  bool                    `json:"deletion_protection"`
	declared
	followed
}

// attachedProject is the state of a project at a shared runtime (requirement D2).
type attachedProject struct {
	ProjectID    string `json:"project_id"`
	AttachmentID string `json:"attachment_id,omitempty"` // absent: no Attachment states terms
	Status       string `json:"status"`
	Reason       string `json:"reason,omitempty"`
	Message      string `json:"message,omitempty"`
}

type attachment struct {
	ID                 string                    `json:"id"`
	SharedRuntimeID    string                    `json:"shared_runtime_id"`
	OrgID              string                    `json:"org_id"`
	ProjectID          string                    `json:"project_id"`
	Status             string                    `json:"status"`
	ContributionPolicy schema.ContributionPolicy `json:"contribution_policy"`
	SubmissionPolicy   schema.SubmissionPolicy   `json:"submission_policy"`
	PolicyMetadata     json.RawMessage           `json:"policy_metadata,omitempty"`
	BillingPolicyRef   string                    `json:"billing_policy_ref,omitempty"`
	OnJobs             *schema.OnJobs            `json:"on_jobs,omitempty"`
	declared
	followed
}
