package schema

import (
	"cmp"
	"encoding/json"
	"iter"
	"reflect"
	"slices"
)

// Effective is what shall run: Desired after policy. Immutable, and shared:
// between the decisions of one Decider a tenant, a project and an instance for
// which nothing changed are the same values, so that whoever compares two skips
// equal pointers (Differing).
type Effective struct {
	Tenants map[string]*EffectiveTenant
	Nodes   map[string]*Node
	Own     []Decision // about what the platform itself declares; sorted by Key, then Field

	OwnNoncompliant []Noncompliance // of the platform's shared runtimes; sorted by Key
}

// EffectiveTenant is what shall run of one tenant.
type EffectiveTenant struct {
	Projects map[string]*EffectiveProject
	Own      []Decision // about the tenant's own documents; sorted by Key, then Field

	Noncompliant []Noncompliance // of the tenant's shared runtimes; sorted by Key
}

// EffectiveProject is what shall run of one project.
type EffectiveProject struct {
	Instances map[string]*EffectiveInstance // by name
	Decisions []Decision                    // sorted by Key, then Field

	// Noncompliant are the instances that exist and that policy refuses, and
	// what becomes of each. Sorted by Key.
	Noncompliant []Noncompliance

	// Bounds are, by the name of the instance, where policy lets members be. An
	// instance that no policy binds to a place has none.
	Bounds map[string]*Bounds
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

// Limits are what the layers of policy say of where members may be. Instances
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
	if p := e.project(key); p != nil && key.Kind == KindInstance {
		return p.Bounds[key.Name]
	}
	return nil
}

// project is that of a key, or nil.
func (e *Effective) project(key Key) *EffectiveProject {
	if e.Tenants[key.Tenant] == nil {
		return nil
	}
	return e.Tenants[key.Tenant].Projects[key.Project]
}

// Instance is the instance of key, or nil.
func (e *Effective) Instance(key Key) *EffectiveInstance {
	if p := e.project(key); p != nil && key.Kind == KindInstance {
		return p.Instances[key.Name]
	}
	return nil
}

// All are all instances, in no order. It walks the whole estate: no decision
// should need it (Differing).
func (e *Effective) All() iter.Seq2[Key, *EffectiveInstance] {
	return func(yield func(Key, *EffectiveInstance) bool) {
		for _, t := range e.Tenants {
			for _, p := range t.Projects {
				for _, i := range p.Instances {
					if !yield(i.Key, i) {
						return
					}
				}
			}
		}
	}
}

// Len is how many instances there are.
func (e *Effective) Len() int {
	n := 0
	for _, t := range e.Tenants {
		for _, p := range t.Projects {
			n += len(p.Instances)
		}
	}
	return n
}

// Differing yields, in no order, the instances whose value, bounds, decisions or
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
	for name, i := range p.Instances {
		if i != q.Instances[name] || p.Bounds[name] != q.Bounds[name] || !slices.Equal(p.about(i.Key), q.about(i.Key)) ||
			!reflect.DeepEqual(p.Noncompliance(i.Key), q.Noncompliance(i.Key)) {
			keys = append(keys, i.Key)
		}
	}
	for name, j := range q.Instances {
		if p.Instances[name] == nil {
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
	ds := slices.Clone(e.Own)
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
	ds := slices.Clone(t.Own)
	for _, p := range t.Projects {
		ds = append(ds, p.Decisions...)
	}
	return ds
}

// sortByKey keeps the order of what is about the same: it stands together.
func sortByKey(ds []Decision) {
	slices.SortStableFunc(ds, func(a, b Decision) int { return a.Key.Compare(b.Key) })
}

// Noncompliant are the instances that exist and that policy refuses, and what
// becomes of each, sorted by Key. It walks all projects.
func (e *Effective) Noncompliant() []Noncompliance {
	ns := slices.Clone(e.OwnNoncompliant)
	for _, t := range e.Tenants {
		ns = append(ns, t.Noncompliant...)
		for _, p := range t.Projects {
			ns = append(ns, p.Noncompliant...)
		}
	}
	slices.SortFunc(ns, func(a, b Noncompliance) int { return a.Key.Compare(b.Key) })
	return ns
}

// Noncompliance is what becomes of an instance or a shared runtime that exists and
// that policy refuses; nil: it complies.
func (e *Effective) Noncompliance(key Key) *Noncompliance {
	if key.Kind != KindSharedRuntime {
		return e.project(key).Noncompliance(key)
	}
	if key.Tenant == "" {
		return noncompliance(e.OwnNoncompliant, key)
	}
	if t := e.Tenants[key.Tenant]; t != nil {
		return noncompliance(t.Noncompliant, key)
	}
	return nil
}

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

// EffectiveInstance is one instance with every default filled and every limit
// applied. It holds no commit id and no file position, so that its JSON is the
// same wherever the same documents are declared: it is part of the plan's digest.
type EffectiveInstance struct {
	Key         Key    `json:"key"`
	UID         string `json:"uid,omitempty"`
	Suspend     bool   `json:"suspend,omitempty"`
	SuspendedBy Key    `json:"suspended_by,omitzero"` // the document that says suspend: true, the widest of them; zero: none does
	DisplayName string `json:"display_name"`
	AppSelection
	DesiredState DesiredState    `json:"desired_state"`
	Regions      []string        `json:"regions,omitempty"` // sorted; nil: any
	Roles        []EffectiveRole `json:"roles"`             // control plane first, then by name
	Config       json.RawMessage `json:"config"`            // canonical JSON object, version's parameters under the instance's
	Users        []UnixUser      `json:"users"`             // sorted by name: users who may submit work
	OnJobs       *OnJobs         `json:"on_jobs,omitempty"`

	// SharedRuntime carries the instance, which has nothing of its own. No
	// runtime can that yet: Suspend is true with it, so that nobody takes the
	// instance for one to deploy.
	SharedRuntime string `json:"shared_runtime,omitempty"`
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
// tenant could let run for ever what policy refuses. What a shared runtime is to
// carry stays unchanged, as nobody can stop that.
func (i *EffectiveInstance) Stopped() *EffectiveInstance {
	stopped := *i
	stopped.DesiredState = DesiredStopped
	if i.SharedRuntime == "" {
		stopped.Suspend, stopped.SuspendedBy = false, Key{}
	}
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
	// MaxUnavailable bounds the members that a change may drain or move at once.
	MaxUnavailable MaxUnavailable `json:"max_unavailable,omitzero"`

	// NoGPUs: it asks for none, and policy bounds how many an instance has. A new
	// member goes on no node with some, which it would have besides what is
	// counted. It is no part of what a unit is made of, but of where it may be.
	NoGPUs bool `json:"-"`
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

// About is what was decided about key, sorted by Field; not to be changed.
func (e *Effective) About(key Key) []Decision {
	switch {
	case key.Tenant == "":
		return about(e.Own, key)
	case key.Project != "":
		return e.project(key).about(key)
	case e.Tenants[key.Tenant] != nil:
		return about(e.Tenants[key.Tenant].Own, key)
	}
	return nil
}

func (p *EffectiveProject) about(key Key) []Decision {
	if p == nil {
		return nil
	}
	return about(p.Decisions, key)
}

// about rests on the order of what is sorted by key.
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
