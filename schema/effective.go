package schema

import (
	"cmp"
	"encoding/json"
	"iter"
	"maps"
	"reflect"
	"slices"
	"time"
)

// Effective is what shall run: Desired after policy. Immutable, and shared:
// between the decisions of one Decider a tenant, a project and a unit for
// which nothing changed are the same values, so that whoever compares two skips
// equal pointers (Differing).
//
// A tenant's own documents, such as its shared runtimes, are those of its project "".
// The platform's are those of the project "" of the tenant "".
type Effective struct {
	Tenants map[string]*EffectiveTenant
	Nodes   map[string]*Node
}

// EffectiveTenant is what shall run of one tenant.
type EffectiveTenant struct {
	Projects map[string]*EffectiveProject
}

// EffectiveProject is what shall run of one project.
type EffectiveProject struct {
	Units     map[string]*EffectiveUnit // by name: instances, or the shared runtimes of a project ""
	Decisions []Decision                // sorted by Key, then Field

	// Noncompliant are the units that exist and that policy refuses, and
	// what becomes of each. Sorted by Key.
	Noncompliant []Noncompliance

	// Bounds are, by the name of the unit, where policy lets members be. A
	// unit that no policy binds to a place has none.
	Bounds map[string]*Bounds

	// Operations are those that documents ask for, by the name of the unit, each list by name.
	// Suspended ones are left out.
	Operations map[string][]*MemberOperation
}

// Bounds is where policy lets members of an instance be, and what becomes of it
// if one that exists is elsewhere. Policy does not know where members are: who
// places them holds them against it.
type Bounds struct {
	Instance *Instance // what it asks for itself
	*Limits
	Fate   Fate      // held, stopping or stopped; for GPUs alone always held
	Day    string    // of stopping and stopped, as in Noncompliance
	Source *Position // as in Noncompliance
}

// Limits are the limits of the layers of policy for the placement of members. Instances
// below the same layers share them.
type Limits struct {
	Regions, SKUs []Allowed // of the layers that say something, from wide to narrow
	GPUs          *Position // of the layer that bounds how many an instance has; nil: none does
	MaxGPUs       int       // how many that are
}

// Allowed is what one layer allows.
type Allowed struct {
	Values []string
	Source Position
}

// Bounds are those of an instance, or nil.
func (e *Effective) Bounds(key Key) *Bounds {
	if e.Unit(key) == nil {
		return nil
	}
	return e.project(key).Bounds[key.Name]
}

// Operations are those that documents ask for on a unit, by name. A nil Effective has none.
func (e *Effective) Operations(key Key) []*MemberOperation {
	if e == nil || e.Unit(key) == nil {
		return nil
	}
	return e.project(key).Operations[key.Name]
}

// SameOperations reports whether two lists ask for the same.
func SameOperations(a, b []*MemberOperation) bool {
	return slices.EqualFunc(a, b, func(x, y *MemberOperation) bool {
		return x == y || x.Key == y.Key && x.UID == y.UID && reflect.DeepEqual(x.Spec, y.Spec)
	})
}

// project is that of a key, or nil.
func (e *Effective) project(key Key) *EffectiveProject {
	if e.Tenants[key.Tenant] == nil {
		return nil
	}
	return e.Tenants[key.Tenant].Projects[key.Project]
}

// Unit is the unit of key, or nil.
func (e *Effective) Unit(key Key) *EffectiveUnit {
	if p := e.project(key); p != nil {
		if u := p.Units[key.Name]; u != nil && u.Key == key {
			return u
		}
	}
	return nil
}

// All are all units, in no order. It walks the whole estate: no decision
// should need it (Differing).
func (e *Effective) All() iter.Seq2[Key, *EffectiveUnit] {
	return func(yield func(Key, *EffectiveUnit) bool) {
		for _, t := range e.Tenants {
			for _, p := range t.Projects {
				for _, i := range p.Units {
					if !yield(i.Key, i) {
						return
					}
				}
			}
		}
	}
}

// Len is how many units there are.
func (e *Effective) Len() int {
	n := 0
	for _, t := range e.Tenants {
		for _, p := range t.Projects {
			n += len(p.Units)
		}
	}
	return n
}

// Differing yields, in no order, the units whose value, bounds, operations, decisions or
// noncompliance differ. Nil is an empty Effective. It visits only the projects that are
// not the same pointer.
func Differing(before, after *Effective) iter.Seq[Key] {
	before, after = cmp.Or(before, &Effective{}), cmp.Or(after, &Effective{})
	return func(yield func(Key) bool) {
		for a, b := range Unlike(before.Tenants, after.Tenants) {
			a, b = cmp.Or(a, &EffectiveTenant{}), cmp.Or(b, &EffectiveTenant{})
			for p, q := range Unlike(a.Projects, b.Projects) {
				for _, key := range differingIn(cmp.Or(p, &EffectiveProject{}), cmp.Or(q, &EffectiveProject{})) {
					if !yield(key) {
						return
					}
				}
			}
		}
	}
}

func differingIn(p, q *EffectiveProject) (keys []Key) {
	for name, i := range p.Units {
		if i != q.Units[name] || p.Bounds[name] != q.Bounds[name] || !SameOperations(p.Operations[name], q.Operations[name]) ||
			!slices.Equal(p.about(i.Key), q.about(i.Key)) ||
			!reflect.DeepEqual(p.Noncompliance(i.Key), q.Noncompliance(i.Key)) {
			keys = append(keys, i.Key)
		}
	}
	for name, j := range q.Units {
		if p.Units[name] == nil {
			keys = append(keys, j.Key)
		}
	}
	return keys
}

// Unlike are the values of two maps, by their keys, that are not the same in
// both; nil where one has none.
func Unlike[K comparable, V any](a, b map[K]*V) iter.Seq2[*V, *V] {
	return func(yield func(x, y *V) bool) {
		for k, x := range a {
			if y := b[k]; x != y && !yield(x, y) {
				return
			}
		}
		for k, y := range b {
			if _, both := a[k]; !both && !yield(nil, y) {
				return
			}
		}
	}
}

// Decisions are all that was decided, sorted by Key, then Field. It walks the
// whole estate.
func (e *Effective) Decisions() []Decision {
	var ds []Decision
	for _, t := range e.Tenants {
		ds = append(ds, t.decisions()...)
	}
	sortByKey(ds)
	return ds
}

// Decisions are all that was decided of the tenant, sorted by Key, then Field.
func (t *EffectiveTenant) Decisions() []Decision {
	ds := t.decisions()
	sortByKey(ds)
	return ds
}

func (t *EffectiveTenant) decisions() []Decision {
	var ds []Decision
	for _, p := range t.Projects {
		ds = append(ds, p.Decisions...)
	}
	return ds
}

// sortByKey brings decisions about the same key together, and keeps their order.
func sortByKey(ds []Decision) {
	slices.SortStableFunc(ds, func(a, b Decision) int { return a.Key.Compare(b.Key) })
}

// Noncompliant are the units that exist and that policy refuses, and what
// becomes of each, sorted by Key. It walks all projects.
func (e *Effective) Noncompliant() []Noncompliance {
	var ns []Noncompliance
	for _, t := range e.Tenants {
		for _, p := range t.Projects {
			ns = append(ns, p.Noncompliant...)
		}
	}
	slices.SortFunc(ns, func(a, b Noncompliance) int { return a.Key.Compare(b.Key) })
	return ns
}

// Noncompliance is what becomes of a unit that exists and that policy refuses; nil: it
// complies.
func (e *Effective) Noncompliance(key Key) *Noncompliance { return e.project(key).Noncompliance(key) }

// Noncompliance is as that of Effective. A nil project has none.
func (p *EffectiveProject) Noncompliance(key Key) *Noncompliance {
	if p == nil {
		return nil
	}
	return noncompliance(p.Noncompliant, key)
}

func noncompliance(sorted []Noncompliance, key Key) *Noncompliance {
	if i, ok := slices.BinarySearchFunc(sorted, key, func(n Noncompliance, k Key) int { return n.Key.Compare(k) }); ok {
		return &sorted[i]
	}
	return nil
}

// EffectiveUnit is one unit, an instance or a shared runtime, with every default filled and
// every limit applied. It holds no commit id and no file position, so that its JSON is the
// same wherever the same documents are declared: it is part of the plan's digest.
type EffectiveUnit struct {
	Key         Key    `json:"key"`
	UID         string `json:"uid,omitempty"`
	Suspend     bool   `json:"suspend,omitempty"`
	SuspendedBy Key    `json:"suspended_by,omitzero"` // the document that says suspend: true, the widest of them; zero: none does
	DisplayName string `json:"display_name"`
	AppSelection
	DesiredState DesiredState    `json:"desired_state"`
	Regions      []string        `json:"regions,omitempty"` // sorted; nil: any
	Roles        []EffectiveRole `json:"roles"`             // control plane first, then by name
	Config       json.RawMessage `json:"config"`            // canonical JSON object, version's parameters under the unit's
	Users        []UnixUser      `json:"users"`             // sorted by name: users with permission to submit work
	OnJobs       *OnJobs         `json:"on_jobs,omitempty"`

	// Operator is the service account under which Berth changes the unit, such as physics.lhc/ci or
	// physics/department, or OperatorPlatform; "": the unit names none, and Berth acts itself.
	Operator string `json:"operator,omitempty"`

	// SharedRuntime has the members that the instance uses: the instance is the view of one
	// project, and has none of its own.
	SharedRuntime string `json:"shared_runtime,omitempty"`
	EffectiveSharing
}

// OperatorPlatform operates the platform's shared runtimes.
const OperatorPlatform = "platform"

// EffectiveSharing says which projects share a unit, on which terms, and what they lend to it.
// That of an instance is empty.
type EffectiveSharing struct {
	Attachments []EffectiveAttachment `json:"attachments,omitempty"` // of projects that have accepted; sorted by ProjectID
	Lent        []LentNode            `json:"lent,omitempty"`        // sorted by Node
}

// EffectiveAttachment has the terms on which a project uses a unit: the narrower of those
// that the owner of the unit and the project declare. A limit of 0 means no limit.
type EffectiveAttachment struct {
	ProjectID string   `json:"project_id"`
	Name      string   `json:"name"`             // of the Attachment document
	Users     []string `json:"users,omitempty"`  // names among the unit's users, sorted: the members of the project
	Closed    bool     `json:"closed,omitempty"` // takes no new jobs; those that run or wait go on
	// Suspend: an applied attachment stays unchanged, and a new one is not made.
	Suspend bool `json:"suspend,omitempty"`
	SubmissionLimits
	Priority   int         `json:"priority,omitempty"`
	Share      int         `json:"share"` // of the unit, in proportion to those of the other projects
	Guaranteed Amount      `json:"guaranteed,omitzero"`
	Preemption *Preemption `json:"preemption,omitempty"` // of jobs beyond Guaranteed; nil: they are requeued at once
	OnJobs     *OnJobs     `json:"on_jobs,omitempty"`    // when the project is detached
}

// LentNode is a node that a project lends to a unit. It becomes a member of its own.
type LentNode struct {
	Node string `json:"node"`
	Role string `json:"role"`
	Loan
}

// Loan says who lends a node, until when, and what becomes of the jobs on it when it returns.
type Loan struct {
	ProjectID string  `json:"project_id"`
	Until     string  `json:"until,omitempty"` // day, "2006-01-02" in UTC, with whose begin the node returns; "": open
	OnJobs    *OnJobs `json:"on_jobs,omitempty"`
}

// AppSelection is the version of an app that an instance runs, and the product mode in
// which it runs.
type AppSelection struct {
	App                string `json:"app"`
	Version            string `json:"version"`
	SoftwareVersion    string `json:"software_version,omitempty"` // spec.version of the AppVersion, such as 22.05.8
	RuntimeBackend     string `json:"runtime_backend"`
	OperatingMode      string `json:"operating_mode"`
	ControlPlaneScope  string `json:"control_plane_scope"`
	TenantBoundaryMode string `json:"tenant_boundary_mode"`
}

// Stopped is i as policy stops it. That goes before what suspends it: else a
// tenant could let run for ever what policy refuses.
func (i *EffectiveUnit) Stopped() *EffectiveUnit {
	stopped := *i
	stopped.DesiredState = DesiredStopped
	stopped.Suspend, stopped.SuspendedBy = false, Key{}
	return &stopped
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
	DiskGiB      int         `json:"disk_gib,omitempty"` // of the node's, together with the members that share it
	// NodeLabels are labels that the node of a member has in its metadata.
	NodeLabels map[string]string `json:"node_labels,omitempty"`
	// MaxUnavailable bounds the members that a change may drain or move at once.
	MaxUnavailable MaxUnavailable `json:"max_unavailable,omitzero"`
	OnNodeLost     *OnNodeLost    `json:"on_node_lost,omitempty"` // nil: wait
	// MissingGraceSeconds is as in InstanceRole; see MissingGrace.
	MissingGraceSeconds *int `json:"missing_grace_seconds,omitempty"`

	// NoGPUs: it asks for none, and policy bounds how many an instance has. A new
	// member goes on no node with GPUs, which it would get in addition to the
	// counted ones. It affects the placement of a unit, not its content.
	NoGPUs bool `json:"-"`
	// SpreadBy is the topology key over whose values new members are spread; "": they go near the
	// other members. It affects the placement of a unit, not its content.
	SpreadBy string `json:"-"`
	// Lent is the node of a member that a project lends; nil: the member is the unit's own.
	Lent *LentNode `json:"-"`
}

// MissingGrace is how long the host of a worker has nothing of it before Berth makes it again.
func (r EffectiveRole) MissingGrace() time.Duration {
	if r.MissingGraceSeconds == nil {
		return DefaultMissingGrace
	}
	return time.Duration(*r.MissingGraceSeconds) * time.Second
}

// Content returns the unit as hosts and statuses have it: without what affects only its placement.
func (u *EffectiveUnit) Content() EffectiveUnit {
	content := *u
	content.Roles = slices.Clone(u.Roles)
	for i := range content.Roles {
		content.Roles[i].NoGPUs, content.Roles[i].SpreadBy, content.Roles[i].Lent = false, "", nil
	}
	return content
}

// MissingLabels returns the labels that the role asks of a node with labels and that it lacks, in order.
func (r EffectiveRole) MissingLabels(labels map[string]string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(r.NodeLabels)) {
		if value, has := labels[name]; !has || value != r.NodeLabels[name] {
			out = append(out, Label(name, r.NodeLabels[name]))
		}
	}
	return out
}

// Label is a label in messages.
func Label(name, value string) string { return name + ": " + value }

// Verdict is the result of a Decision.
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

// RuleTwoSided is the rule of a Decision that gives an attachment the narrower of two terms.
const RuleTwoSided = "two_sided_terms"

// Decision is the effect of one rule on one value.
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

// Denied says whether policy refuses key, and by which decisions.
func (e *Effective) Denied(key Key) []Decision {
	var ds []Decision
	for _, d := range e.About(key) {
		if d.Verdict == Deny {
			ds = append(ds, d)
		}
	}
	return ds
}

// About returns the decisions about key, sorted by Field; not to be changed.
func (e *Effective) About(key Key) []Decision { return e.project(key).about(key) }

func (p *EffectiveProject) about(key Key) []Decision {
	if p == nil {
		return nil
	}
	return about(p.Decisions, key)
}

// about requires decisions sorted by key.
func about(ds []Decision, key Key) []Decision {
	from, _ := slices.BinarySearchFunc(ds, key, func(d Decision, k Key) int { return d.Key.Compare(k) })
	to := from
	for to < len(ds) && ds[to].Key == key {
		to++
	}
	return ds[from:to:to]
}

// Fate is what becomes of an instance that exists and that policy refuses.
type Fate string

// The fates. FateComplies is of an instance that policy refused and no longer does.
const (
	FateHeld     Fate = "held"     // keeps running, and takes no change that does not comply
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

// QuotaUse is what a project or a tenant uses of a quota.
type QuotaUse struct {
	Owner  string   `json:"owner"` // such as physics or physics.lhc
	Rule   string   `json:"rule"`  // key of the policy, such as max_gpus_per_tenant
	What   string   `json:"what"`  // such as GPUs
	Was    int      `json:"was"`   // before the change
	Used   int      `json:"used"`  // after it
	Most   int      `json:"most"`
	Source Position `json:"source"` // of the quota
}
