package schema

import (
	"encoding/json"
	"slices"
)

// SharedRuntime is one running app that serves several projects: a tenant's own
// (tenant_dedicated, scope tenant) or the platform's (platform_managed, scope
// platform), which of them its place says (TSR).
type SharedRuntime struct {
	Header
	Spec SharedRuntimeSpec
}

// SharedRuntimeSpec is the spec of a SharedRuntime (the declared part of TSR). The
// reader fills the defaults. It has no runtime_backend: the AppVersion names it.
type SharedRuntimeSpec struct {
	App               string       `json:"app"`
	Version           string       `json:"version"` // name of the AppVersion document
	DisplayName       string       `json:"display_name"`
	Environment       string       `json:"environment"` // such as production; a tenant has one shared runtime in each
	DesiredState      DesiredState `json:"desired_state"`
	OperatingMode     string       `json:"operating_mode"`      // always what the place says
	ControlPlaneScope string       `json:"control_plane_scope"` // always what the place says
	// a ServiceAccount of the tenant, never of a project; the platform operates its own itself
	OperatorIdentityRef string                  `json:"operator_identity_ref,omitempty"`
	PlacementIntent     *PlacementIntent        `json:"placement_intent,omitempty"`
	Roles               map[string]InstanceRole `json:"roles"`
	// the runtime's; canonical JSON object, checked by its definition
	Config             json.RawMessage `json:"config,omitempty"`
	AttachedProjectIDs []string        `json:"attached_project_ids,omitempty"` // listed as requested until an Attachment states terms
	BillingPolicyRef   string          `json:"billing_policy_ref,omitempty"`   // name of the RateCard of its shared cost; "": DefaultRates
	OnJobs             *OnJobs         `json:"on_jobs,omitempty"`
	DeletionProtection bool            `json:"deletion_protection,omitempty"`
}

// PlacementIntent is where the owner wants its own members. It never names
// nodes: choosing them is the platform's (requirement B10).
type PlacementIntent struct {
	Regions  []string `json:"regions,omitempty"`   // empty: wherever policy allows
	SKUs     []string `json:"skus,omitempty"`      // empty: any that policy allows
	SpreadBy string   `json:"spread_by,omitempty"` // a key of the nodes' topology, such as rack
}

// Attachment lets a project use a shared runtime, on terms. Key.Parent is the
// runtime; Key.Tenant is empty for one of the platform's. The project accepts the terms with an
// Instance that names the runtime.
type Attachment struct {
	Header
	Spec AttachmentSpec
}

// AttachmentSpec is the spec of an Attachment (TSR).
type AttachmentSpec struct {
	ProjectID          string             `json:"project_id"` // "<tenant>.<project>"; of the runtime's tenant, if it is a tenant's
	ContributionPolicy ContributionPolicy `json:"contribution_policy"`
	SubmissionPolicy   SubmissionPolicy   `json:"submission_policy"`
	// the app's own, canonical JSON object; Berth hands it on unread
	PolicyMetadata   json.RawMessage `json:"policy_metadata,omitempty"`
	BillingPolicyRef string          `json:"billing_policy_ref,omitempty"` // name of the RateCard of its jobs; "": DefaultRates
	// of running jobs of the project when it is detached; nil: as the runtime's
	OnJobs *OnJobs `json:"on_jobs,omitempty"`
}

// ContributionPolicy limits the nodes that a project may lend to the runtime, and sets its gain.
type ContributionPolicy struct {
	Allow    bool `json:"allow"`               // default false
	MaxNodes int  `json:"max_nodes,omitempty"` // 0: as many as are reserved for the project
	MaxGPUs  int  `json:"max_gpus,omitempty"`  // of all its nodes together; 0: no limit

	Until      string      `json:"until,omitempty"`      // day, UTC, with whose begin all its nodes return; "": open
	OnJobs     *OnJobs     `json:"on_jobs,omitempty"`    // of jobs on a node that returns; nil: as the runtime's
	Guaranteed Amount      `json:"guaranteed,omitzero"`  // what the jobs of the project get, whoever uses it
	Preemption *Preemption `json:"preemption,omitempty"` // of the project's jobs beyond Guaranteed, for the guarantees of others
}

// Amount is a part of a runtime. 0 means none of a resource.
type Amount struct {
	GPUs int `json:"gpus,omitempty"`
	CPUs int `json:"cpus,omitempty"`
}

// Preemption says what happens to a job that ends for another.
type Preemption struct {
	Mode         string `json:"mode"`                    // PreemptRequeue or PreemptCancel
	GraceSeconds int    `json:"grace_seconds,omitempty"` // between the signal to the job and its end
}

// The modes of Preemption.
const (
	PreemptRequeue = "requeue"
	PreemptCancel  = "cancel"
)

// SubmissionPolicy says whether and how a project may submit jobs.
type SubmissionPolicy struct {
	Allow bool `json:"allow"` // default true
	SubmissionLimits
	Priority int `json:"priority,omitempty"` // beside the runtime's other projects; more goes first
	Share    int `json:"share"`              // of the runtime, in proportion to those of the other projects; default 1
}

// SubmissionLimits limit the jobs of a project. 0 means no limit.
type SubmissionLimits struct {
	MaxGPUs            int      `json:"max_gpus,omitempty"` // of its running jobs together
	MaxCPUs            int      `json:"max_cpus,omitempty"`
	MaxGPUsPerJob      int      `json:"max_gpus_per_job,omitempty"`
	MaxCPUsPerJob      int      `json:"max_cpus_per_job,omitempty"`
	MaxRunningJobs     int      `json:"max_running_jobs,omitempty"`
	MaxSubmittedJobs   int      `json:"max_submitted_jobs,omitempty"` // running and waiting
	MaxWalltimeMinutes int      `json:"max_walltime_minutes,omitempty"`
	Queues             []string `json:"queues,omitempty"` // nil: every queue of the runtime
}

// Narrower returns the narrower of two limits in each field. ok is false if both name queues and
// have none in common: the project can then submit no job.
func (l SubmissionLimits) Narrower(o SubmissionLimits) (_ SubmissionLimits, ok bool) {
	less := func(a, b int) int {
		if a == 0 || b != 0 && b < a {
			return b
		}
		return a
	}
	out := SubmissionLimits{
		MaxGPUs: less(l.MaxGPUs, o.MaxGPUs), MaxCPUs: less(l.MaxCPUs, o.MaxCPUs),
		MaxGPUsPerJob: less(l.MaxGPUsPerJob, o.MaxGPUsPerJob), MaxCPUsPerJob: less(l.MaxCPUsPerJob, o.MaxCPUsPerJob),
		MaxRunningJobs: less(l.MaxRunningJobs, o.MaxRunningJobs), MaxSubmittedJobs: less(l.MaxSubmittedJobs, o.MaxSubmittedJobs),
		MaxWalltimeMinutes: less(l.MaxWalltimeMinutes, o.MaxWalltimeMinutes), Queues: l.Queues,
	}
	switch {
	case len(o.Queues) == 0:
	case len(l.Queues) == 0:
		out.Queues = o.Queues
	default:
		common := slices.DeleteFunc(slices.Clone(l.Queues), func(q string) bool { return !slices.Contains(o.Queues, q) })
		if len(common) == 0 {
			return out, false // an empty list would mean every queue
		}
		out.Queues = common
	}
	return out, true
}

// Contribution lends nodes that are reserved for a project to a shared runtime
// it is attached to. It needs the Attachment's contribution_policy.
type Contribution struct {
	Header
	Spec ContributionSpec
}

// ContributionSpec is the spec of a Contribution (requirement D4).
type ContributionSpec struct {
	SharedRuntime     string   `json:"shared_runtime"`
	ControlPlaneScope string   `json:"control_plane_scope"` // whose runtime: tenant (the default) or platform
	Nodes             []string `json:"nodes"`
	Role              string   `json:"role,omitempty"`  // of the runtime's app; "": the only one besides control planes
	Until             string   `json:"until,omitempty"` // day, UTC, with whose begin the nodes return; "": that of the Attachment
}
