package schema

import (
	"encoding/json"
	"slices"
)

// Effective is what shall run: Desired after policy. Immutable.
type Effective struct {
	Instances map[Key]*EffectiveInstance
	Nodes     map[string]*Node
	Decisions []Decision // sorted by Key, then Field

	// Noncompliant are the instances that exist and that policy refuses, and
	// what becomes of each. Sorted by Key.
	Noncompliant []Noncompliance
}

// EffectiveInstance is one instance with every default filled and every limit
// applied. It holds no commit id and no file position, so that its JSON is the
// same wherever the same things are declared: it is part of the plan's digest.
type EffectiveInstance struct {
	Key                Key             `json:"key"`
	UID                string          `json:"uid,omitempty"`
	Suspend            bool            `json:"suspend,omitempty"`
	DisplayName        string          `json:"display_name"`
	App                string          `json:"app"`
	Version            string          `json:"version"`
	RuntimeBackend     string          `json:"runtime_backend"`
	OperatingMode      string          `json:"operating_mode"`
	ControlPlaneScope  string          `json:"control_plane_scope"`
	TenantBoundaryMode string          `json:"tenant_boundary_mode"`
	DesiredState       DesiredState    `json:"desired_state"`
	Regions            []string        `json:"regions,omitempty"` // sorted; nil: any
	Roles              []EffectiveRole `json:"roles"`             // control plane first, then by name
	Config             json.RawMessage `json:"config"`            // canonical JSON object, version's parameters under the instance's
	Users              []UnixUser      `json:"users"`             // sorted by name: who may submit work
	OnJobs             *OnJobs         `json:"on_jobs,omitempty"`

	// SharedRuntime carries the instance, which has nothing of its own. No
	// runtime can that yet: Suspend is true with it, so that nobody takes the
	// instance for one to deploy.
	SharedRuntime string `json:"shared_runtime,omitempty"`
}

// EffectiveRole is one role of an instance.
type EffectiveRole struct {
	Name         string      `json:"name"`
	NodeRole     string      `json:"node_role"`
	ControlPlane bool        `json:"control_plane,omitempty"`
	Shareable    bool        `json:"shareable,omitempty"`
	Count        int         `json:"count"`
	SKUs         []string    `json:"skus,omitempty"` // sorted; nil: any
	GPUs         *GPURequest `json:"gpus,omitempty"`
	CPUs         int         `json:"cpus,omitempty"`
	MemoryMiB    int         `json:"memory_mib,omitempty"`
}

// Verdict is what a Decision came to.
type Verdict string

// Allow is recorded where a rule mattered; Deny keeps the instance from being
// planned; Narrow changed a value; Stop refuses as Deny does, and the instance,
// which exists, is planned to be stopped for it.
const (
	Allow  Verdict = "allow"
	Deny   Verdict = "deny"
	Narrow Verdict = "narrow"
	Stop   Verdict = "stop"
)

// Decision is what one rule did to one thing.
type Decision struct {
	Key     Key      `json:"key"`
	Field   string   `json:"field"` // such as spec.roles.worker.gpus
	Verdict Verdict  `json:"verdict"`
	Rule    string   `json:"rule"`   // such as max_gpus_per_instance
	Source  Position `json:"source"` // where the rule stands
	At      Position `json:"at"`     // where the value it met stands
	Before  string   `json:"before,omitempty"`
	After   string   `json:"after,omitempty"`
	Message string   `json:"message"`
}

// Denied says whether policy refuses key, and by which decisions. It rests on
// the order of Decisions, so that asking for every unit is not quadratic.
func (e *Effective) Denied(key Key) []Decision {
	i, _ := slices.BinarySearchFunc(e.Decisions, key, func(d Decision, k Key) int { return d.Key.Compare(k) })
	var ds []Decision
	for ; i < len(e.Decisions) && e.Decisions[i].Key == key; i++ {
		if e.Decisions[i].Verdict == Deny {
			ds = append(ds, e.Decisions[i])
		}
	}
	return ds
}

// Fate is what becomes of an instance that exists and that policy refuses.
type Fate string

// The fates. Complies is said of one that policy refused and no longer does.
const (
	FateHeld     Fate = "held"     // stays as it is, and takes no change that does not comply
	FateStopping Fate = "stopping" // the same until Day begins, UTC; then it is stopped
	FateStopped  Fate = "stopped"  // is stopped, since Day has begun
	FateComplies Fate = "complies"
)

// Noncompliance is an instance that exists and that policy refuses.
type Noncompliance struct {
	Key     Key        `json:"key"`
	Fate    Fate       `json:"fate"`
	Day     string     `json:"day,omitempty"` // "2006-01-02", of stopping and stopped
	Source  *Position  `json:"source"`        // the policy that says what becomes of it; null: none does, so it is held
	Because []Decision `json:"because"`       // the rules that refuse it: where each stands, and the value it met
}
