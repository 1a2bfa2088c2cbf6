package schema

import "encoding/json"

// SharedRuntime is one running app that serves several projects: a tenant's own
// (tenant_dedicated, scope tenant) or the platform's (platform_managed, scope
// platform), which of them its place says (TSR). It is a declaration only:
// nothing is deployed for it yet.
type SharedRuntime struct {
	Header
	Spec SharedRuntimeSpec
}

// SharedRuntimeSpec is the spec of a SharedRuntime (the declared part of TSR). The
// reader fills the defaults. It has no runtime_backend: the AppVersion names it.
type SharedRuntimeSpec struct {
	App                 string                  `json:"app"`
	Version             string                  `json:"version"` // name of the AppVersion document
	DisplayName         string                  `json:"display_name"`
	Environment         string                  `json:"environment"` // such as production; a tenant has one shared runtime in each
	DesiredState        DesiredState            `json:"desired_state"`
	OperatingMode       string                  `json:"operating_mode"`                  // always what the place says
	ControlPlaneScope   string                  `json:"control_plane_scope"`             // always what the place says
	OperatorIdentityRef string                  `json:"operator_identity_ref,omitempty"` // a ServiceAccount of the tenant, never of a project; the platform operates its own itself
	PlacementIntent     *PlacementIntent        `json:"placement_intent,omitempty"`
	Roles               map[string]InstanceRole `json:"roles"`
	Config              json.RawMessage         `json:"config,omitempty"`               // the runtime's; canonical JSON object, checked by its definition
	AttachedProjectIDs  []string                `json:"attached_project_ids,omitempty"` // attached without terms of their own; an Attachment states terms
	OnJobs              *OnJobs                 `json:"on_jobs,omitempty"`
	DeletionProtection  bool                    `json:"deletion_protection,omitempty"`
}

// PlacementIntent is where the owner wants its own members. It never names
// nodes: choosing them is the platform's (requirement B10).
type PlacementIntent struct {
	Regions  []string `json:"regions,omitempty"`   // empty: wherever policy allows
	SKUs     []string `json:"skus,omitempty"`      // empty: any that policy allows
	SpreadBy string   `json:"spread_by,omitempty"` // a key of the nodes' topology, such as rack
}

// Attachment lets a project use a shared runtime, on terms. Key.Parent is the
// runtime; Key.Tenant is empty for one of the platform's. It is a declaration
// only: no project is let in by it yet.
type Attachment struct {
	Header
	Spec AttachmentSpec
}

// AttachmentSpec is the spec of an Attachment (TSR).
type AttachmentSpec struct {
	ProjectID          string             `json:"project_id"` // "<tenant>.<project>"; of the runtime's tenant, if it is a tenant's
	ContributionPolicy ContributionPolicy `json:"contribution_policy"`
	SubmissionPolicy   SubmissionPolicy   `json:"submission_policy"`
	PolicyMetadata     json.RawMessage    `json:"policy_metadata,omitempty"`    // the app's own, canonical JSON object; Berth hands it on unread
	BillingPolicyRef   string             `json:"billing_policy_ref,omitempty"` // a name that the billing system knows; Berth does not
}

// ContributionPolicy says whether a project may offer nodes to the runtime.
type ContributionPolicy struct {
	Allow    bool `json:"allow"`               // default false
	MaxNodes int  `json:"max_nodes,omitempty"` // 0: as many as are reserved for the project
}

// SubmissionPolicy limits the jobs of a project. 0 means no limit.
type SubmissionPolicy struct {
	Allow              bool `json:"allow"` // default true
	MaxGPUs            int  `json:"max_gpus,omitempty"`
	MaxRunningJobs     int  `json:"max_running_jobs,omitempty"`
	MaxSubmittedJobs   int  `json:"max_submitted_jobs,omitempty"`
	MaxWalltimeMinutes int  `json:"max_walltime_minutes,omitempty"`
	Priority           int  `json:"priority,omitempty"` // beside the runtime's other projects; more goes first
}

// Contribution offers nodes that are reserved for a project to a shared runtime
// it is attached to. The offer needs the Attachment's contribution_policy. It
// is a declaration only: no node changes hands by it yet.
type Contribution struct {
	Header
	Spec ContributionSpec
}

// ContributionSpec is the spec of a Contribution (requirement D4).
type ContributionSpec struct {
	SharedRuntime     string   `json:"shared_runtime"`
	ControlPlaneScope string   `json:"control_plane_scope"` // whose runtime: tenant (the default) or platform
	Nodes             []string `json:"nodes"`
}
