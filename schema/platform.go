package schema

import (
	"cmp"
	"slices"
)

// Site is a place with nodes: one or more regions under one roof (requirement
// E13). Jobs of a unit run at the sites of its members; a job never spans units, and
// Berth does not federate jobs across sites.
type Site struct {
	Header
	Spec SiteSpec
}

// SiteSpec is the spec of a Site.
type SiteSpec struct {
	DisplayName string   `json:"display_name"`
	Description string   `json:"description,omitempty"`
	Regions     []string `json:"regions"`           // a region is of one site
	Contact     string   `json:"contact,omitempty"` // whom to call
	// Paused stops every effect on units with a member at the site; nil: none is stopped.
	Paused  *PauseSpec `json:"paused,omitempty"`
	Drained bool       `json:"drained,omitempty"` // nothing new is placed at the site
}

// Sites returns the sites by name. Do not call it in a loop over nodes.
func (p *Platform) Sites() map[string]*Site {
	out := map[string]*Site{}
	for _, d := range p.Others {
		if s, ok := d.(*Site); ok {
			out[s.Key.Name] = s
		}
	}
	return out
}

// SiteOf returns the site of a region, or nil.
func (p *Platform) SiteOf(region string) *Site {
	for _, d := range p.Others {
		if s, ok := d.(*Site); ok && slices.Contains(s.Spec.Regions, region) {
			return s
		}
	}
	return nil
}

// DefaultRates is the name of the RateCard for use without an attachment that names another one.
const DefaultRates = "default"

// RateCard sets the prices of the use of a runtime (requirement A13). The field
// billing_policy_ref of an attachment has its name.
type RateCard struct {
	Header
	Spec RateCardSpec
}

// RateCardSpec is the spec of a RateCard.
type RateCardSpec struct {
	DisplayName string   `json:"display_name,omitempty"`
	AppliesTo   []string `json:"applies_to,omitempty"` // tenants; empty: everybody
	// Replaces is the name of the card whose prices this one replaces on days from From on (UTC); "":
	// none. Of several that replace a card, the one with the latest From holds.
	Replaces string `json:"replaces,omitempty"`
	From     string `json:"from,omitempty"`
	Currency string `json:"currency"` // ISO 4217
	Prices
	// By has other prices for some jobs; the first one that matches counts.
	By []PricesBy `json:"by,omitempty"`
	// Shared sets the cost of a unit beside its jobs; nil: no cost.
	Shared *SharedCost `json:"shared_cost,omitempty"`
}

// Prices are the prices of one hour of each resource that a job was given.
type Prices struct {
	CPUHour    Price `json:"cpu_hour"`
	MemoryHour Price `json:"memory_gib_hour"`
	// GPUHours are prices by type of GPU; OtherGPU is that of other types, and of jobs whose GPUs have
	// several types.
	GPUHours []GPUPrice `json:"gpu_hours,omitempty"`
	OtherGPU Price      `json:"other_gpu_hour"`
	// BillingHour is the price of an hour of one unit of the weight that the runtime gives a job.
	BillingHour Price `json:"billing_hour"`
}

// PricesBy are the prices of jobs with some names; "": any name.
type PricesBy struct {
	Queue     string `json:"queue,omitempty"`
	Partition string `json:"partition,omitempty"`
	QoS       string `json:"qos,omitempty"`
	Prices
}

// PricesOf returns the prices of a job: of the first item of By whose names are those of the job, else of the card.
func (s *RateCardSpec) PricesOf(queue, partition, qos string) *Prices {
	for i := range s.By {
		b := &s.By[i]
		if (b.Queue == "" || b.Queue == queue) && (b.Partition == "" || b.Partition == partition) && (b.QoS == "" || b.QoS == qos) {
			return &b.Prices
		}
	}
	return &s.Prices
}

// PricesFor reports whether a tenant may be billed by the card. The platform, "", may use all.
func (s *RateCardSpec) PricesFor(tenant string) bool {
	return len(s.AppliesTo) == 0 || tenant == "" || slices.Contains(s.AppliesTo, tenant)
}

// SharedCost sets the cost of a unit beside its jobs, and its payers.
type SharedCost struct {
	Split string `json:"split"` // SplitNone, SplitEqual or SplitByUse
	// ControlPlaneDay is the price of a day (UTC) on which a node of the unit was up, also for a part of
	// it.
	ControlPlaneDay Price `json:"control_plane_day"`
	// IdleCPUHour and IdleGPUHour are prices of an hour of a CPU or GPU of a node that was up and that no
	// job had.
	IdleCPUHour Price `json:"idle_cpu_hour"`
	IdleGPUHour Price `json:"idle_gpu_hour"`
}

// The payers of a SharedCost.
const (
	SplitNone  = "none"   // the owner of the unit
	SplitEqual = "equal"  // the projects of each day, each the same
	SplitByUse = "by_use" // the projects, in proportion to what their jobs cost by the same card
)

// GPUPrice is the price of an hour of a type of GPU.
type GPUPrice struct {
	Type  string `json:"type"`
	Price Price  `json:"price"`
}

// GPUHour returns the price of an hour of a type of GPU.
func (s *Prices) GPUHour(kind string) Price {
	for _, g := range s.GPUHours {
		if g.Type == kind {
			return g.Price
		}
	}
	return s.OtherGPU
}

// QueueMap says which queue people ask for becomes what in the runtime
// (requirement C1). A queue that is not in it is the fallback's, and denied
// without one.
type QueueMap struct {
	Header
	Spec QueueMapSpec
}

// QueueMapSpec is the spec of a QueueMap. Of the maps of one app the most
// specific holds: a project's, then a tenant's, then everybody's.
type QueueMapSpec struct {
	App           string         `json:"app"`
	AppliesTo     []string       `json:"applies_to,omitempty"` // tenants and projects as tenant.project; empty: everybody
	Queues        []QueueMapping `json:"queues"`
	FallbackQueue string         `json:"fallback_queue,omitempty"` // one of queues
	Mode          string         `json:"mode"`                     // ModePassthrough, ModeStubPolicy or ModeRealPolicy
	// Contract is the text of the boundary's contract that the mode was chosen by: version+digest.
	Contract string    `json:"contract,omitempty"`
	Runbook  string    `json:"runbook,omitempty"` // how to go back from ModeRealPolicy: a README.md of the platform or a link
	Rollback *Rollback `json:"rollback,omitempty"`
}

// Rollback names the owner and the last day of a mode that is for an incident (requirement C5).
type Rollback struct {
	Owner     string `json:"owner"`
	Reason    string `json:"reason"`
	ExpiresAt string `json:"expires_at"` // last day, UTC
	FollowUp  string `json:"follow_up"`  // task that removes the rollback
	Runbook   string `json:"runbook"`
}

// QueueMapping is one line of a QueueMap, with the names of the boundary
// contract's mapping.
type QueueMapping struct {
	Queue              string `json:"queue"`
	Partition          string `json:"partition"`
	Account            string `json:"account,omitempty"`
	QOS                string `json:"qos,omitempty"`
	MaxWalltimeMinutes int    `json:"max_walltime_minutes,omitempty"` // 0: the partition's
}

// HookRule does something when something happens, the same each time
// (requirement E8).
type HookRule struct {
	Header
	Spec HookRuleSpec
}

// HookRuleSpec is the spec of a HookRule. Each of Then has exactly one field.
type HookRuleSpec struct {
	DisplayName     string       `json:"display_name,omitempty"`
	Apps            []string     `json:"apps,omitempty"`       // empty: every app
	AppliesTo       []string     `json:"applies_to,omitempty"` // tenants and projects as tenant.project; empty: everybody
	When            HookWhen     `json:"when"`
	Then            []HookEffect `json:"then"`
	CooldownSeconds int          `json:"cooldown_seconds"` // least time between two firings about one object
}

// HookWhen is the trigger of a HookRule: exactly one of its fields.
type HookWhen struct {
	Event           string           `json:"event,omitempty"` // a type of event, such as apps.instance.failed
	Threshold       *HookThreshold   `json:"threshold,omitempty"`
	RepeatedFailure *RepeatedFailure `json:"repeated_failure,omitempty"`
	Absence         *HookAbsence     `json:"absence,omitempty"`
	Condition       *HookCondition   `json:"condition,omitempty"`
}

// HookCondition is a condition of a unit or a node that has a status for a while.
type HookCondition struct {
	Type       string `json:"type"`
	Status     string `json:"status"`
	ForSeconds int    `json:"for_seconds"`
}

// Kinds are those of the resources that have such conditions. Ready is that of units: nodes have events of their own.
func (c *HookCondition) Kinds() []Kind {
	if c.Type == "CapacityDiffers" || c.Type == "ClockDiffers" {
		return []Kind{KindNode}
	}
	return []Kind{KindInstance, KindSharedRuntime}
}

// Statuses are those that such a condition can have. Conditions of faults are there or not.
func (c *HookCondition) Statuses() []string {
	switch c.Type {
	case "Degraded", "DriftDetected", "OnHold":
		return []string{"True"}
	case "WithinQuota":
		return []string{"False"}
	case "Ready":
		return []string{"True", "False", "Unknown"}
	}
	return []string{"True", "False"}
}

// HookAbsence is an event that one object does not have within a while after another one.
type HookAbsence struct {
	Event         string `json:"event"`
	After         string `json:"after,omitempty"` // begins the wait; empty: Event
	WithinSeconds int    `json:"within_seconds"`
}

// Begin is the type of the event that begins the wait.
func (a *HookAbsence) Begin() string { return cmp.Or(a.After, a.Event) }

// HookThreshold is a metric above or below a value for a while: exactly one of
// Above and Below.
type HookThreshold struct {
	Metric     string `json:"metric"`
	Above      *int   `json:"above,omitempty"`
	Below      *int   `json:"below,omitempty"`
	ForSeconds int    `json:"for_seconds"`
}

// RepeatedFailure is one object failing Count times within a while.
type RepeatedFailure struct {
	Count         int `json:"count"`
	WithinSeconds int `json:"within_seconds"`
}

// HookEffect is one effect of a HookRule: exactly one of its fields.
type HookEffect struct {
	Alert   *HookAlert   `json:"alert,omitempty"`
	Webhook *HookWebhook `json:"webhook,omitempty"`
	Action  *HookAction  `json:"action,omitempty"`
}

// HookAlert informs people.
type HookAlert struct {
	Severity string `json:"severity"` // info, warning or critical
	Summary  string `json:"summary"`
}

// HookWebhook informs a program.
type HookWebhook struct {
	URL    string `json:"url"`
	Secret string `json:"secret,omitempty"` // name of the secret that signs the body
}

// HookAction asks for an operation on the unit that the rule fired for, or on each member on that node.
type HookAction struct {
	Operation string `json:"operation"` // drain, cordon, restart, replace or retry
}
