package plan

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"berth/schema"
)

// Format is the version of Plan's JSON form.
const Format = "berth.plan/v1"

// Member is one member of an instance on a node. Its name is role-index, such as
// worker-0, and never changes. The index of a removed member may be reused.
type Member struct {
	Name         string       `json:"name"`
	Role         string       `json:"role"`
	ControlPlane bool         `json:"control_plane,omitempty"`
	Node         string       `json:"node"`
	Address      string       `json:"address"`
	SSHPort      int          `json:"ssh_port"`
	Region       string       `json:"region"`
	SKU          string       `json:"sku"`
	CPUs         int          `json:"cpus"`
	Shape        schema.Shape `json:"shape,omitzero"` // as declared; zero: as the host has it
	MemoryMiB    int          `json:"memory_mib"`
	GPUs         []schema.GPU `json:"gpus,omitempty"`   // GPUs of the node that the member has, with devices
	Misfit       bool         `json:"misfit,omitempty"` // does not match the current request; moves when a matching node is free
	Loan         *schema.Loan `json:"loan,omitempty"`   // of a node that a project lends to the unit; nil: it is the unit's own
	Reason       string       `json:"-"`                // reason for this node; displayed, not digested
}

// HasResourcesOf reports whether two members have the same resources. A scheduler cannot change
// those of a member that is in use.
func (m Member) HasResourcesOf(o Member) bool {
	return m.CPUs == o.CPUs && m.Shape == o.Shape && m.MemoryMiB == o.MemoryMiB && slices.Equal(m.GPUs, o.GPUs)
}

// Unit is an instance or a shared runtime with its members: what a runtime creates and
// records.
type Unit struct {
	Effective schema.EffectiveUnit `json:"instance"` // by this name in the records of hosts
	Members   []Member             `json:"members"`  // control plane first, then by role and index
}

// Control returns the member that is the control plane. A nil unit has none.
func (u *Unit) Control() (Member, bool) {
	return u.first(func(m Member) bool { return m.ControlPlane })
}

// Member returns the member of that name. A nil unit has none.
func (u *Unit) Member(name string) (Member, bool) {
	return u.first(func(m Member) bool { return m.Name == name })
}

func (u *Unit) first(is func(Member) bool) (Member, bool) {
	if u != nil {
		if i := slices.IndexFunc(u.Members, is); i >= 0 {
			return u.Members[i], true
		}
	}
	return Member{}, false
}

// Presence is the existence of a unit. Unknown never creates or deletes anything.
type Presence string

// The three values.
const (
	Unknown Presence = "unknown"
	Absent  Presence = "absent"
	Present Presence = "present"
)

// MemberState is the observed state of one member.
type MemberState struct {
	Name   string `json:"name"`
	Node   string `json:"node"`
	State  State  `json:"state"`
	Detail string `json:"detail,omitempty"` // free text; not digested
	// OutOfService is why a Running member takes no jobs, such as a drain by a person; empty: it takes jobs. Not digested.
	OutOfService string `json:"-"`
	// Note is what people should know of the member as it was set up, for its status. It is not digested.
	Note string `json:"-"`
	// References are the names that the runtime gave the member, for Integration. They are not
	// digested, and nil where the runtime does not know them.
	References map[string]string `json:"-"`
	// Scheduler is what the scheduler says about the node. It is not digested.
	Scheduler SchedulerView `json:"-"`
	// HasJobs: the scheduler has running jobs on the node. It is not digested.
	HasJobs bool `json:"-"`
}

// SchedulerView is what the scheduler of a unit says about a node of the unit.
type SchedulerView int

// The views.
const (
	NoView       SchedulerView = iota // the scheduler was not asked, or does not answer
	Responds                          // the node responds to the scheduler
	Unresponsive                      // the node does not respond to the scheduler
)

// State of a member.
type State string

// Running serves. Stopped exists and does not run, on request or by a fault. Hung runs and
// does not answer. Draining finishes its jobs. Partial has joined incompletely. The host
// of a Missing member answers and has nothing of it. The host of an Unreachable member did not answer.
const (
	Running     State = "running"
	Stopped     State = "stopped"
	Hung        State = "hung"
	Draining    State = "draining"
	Partial     State = "partial"
	Missing     State = "missing"
	Unreachable State = "unreachable"
)

// Observed is the observation of one unit by its runtime.
type Observed struct {
	Key          schema.Key      `json:"key"`
	Presence     Presence        `json:"presence"`
	Remains      bool            `json:"remains,omitempty"`      // Absent, and the host still has the state of the unit
	Reason       string          `json:"reason,omitempty"`       // reason for Unknown: host, operation and output
	NeedsPerson  bool            `json:"needs_person,omitempty"` // Unknown, and no wait changes it: a host key, address or account is wrong
	Complete     bool            `json:"complete,omitempty"`     // creation finished
	Unit         *Unit           `json:"unit,omitempty"`         // last applied unit, from the runtime's record; nil unless Present
	Members      []MemberState   `json:"members,omitempty"`      // existing members, by name
	Drift        []Drift         `json:"drift,omitempty"`
	Jobs         *Jobs           `json:"-"` // nil: not asked for
	RuntimeState json.RawMessage `json:"-"` // the runtime's own facts for status: names, ports, versions

	// Begun are the members that actions begun since may have put on nodes: the status has them until the next observation.
	Begun []BegunMember `json:"begun,omitempty"`
}

// BegunMember is a member that an action may have put on a node.
type BegunMember struct {
	Name         string `json:"name"`
	Role         string `json:"role"`
	ControlPlane bool   `json:"control_plane,omitempty"`
	Node         string `json:"node"`
}

// WithBegun returns the observation with the members that the actions of a plan may put on nodes. An absent unit is unknown from then on.
func (o Observed) WithBegun(p *Plan) Observed {
	for _, a := range p.Actions {
		if p.After == nil || a.Verb != Create && a.Verb != Join {
			continue
		}
		for _, m := range p.After.Members {
			if m.Name == a.Member || a.Verb == Create && m.ControlPlane {
				o.Begun = append(o.Begun, BegunMember{Name: m.Name, Role: m.Role, ControlPlane: m.ControlPlane, Node: m.Node})
			}
		}
	}
	if o.Presence == Absent && len(o.Begun) > 0 {
		o.Presence, o.Reason = Unknown, "its creation has begun, and no observation came after that"
	}
	return o
}

// Verb is the kind of an Action.
type Verb string

// The verbs. Each is idempotent and can be resumed after a crash.
const (
	Create    Verb = "create"    // create the control plane, from nothing or from an incomplete creation
	Configure Verb = "configure" // change the control plane from Before to After
	Join      Verb = "join"      // add a member
	Leave     Verb = "leave"     // remove a member
	Start     Verb = "start"     // start a member that should run
	Stop      Verb = "stop"      // stop all members, keep their state
	Delete    Verb = "delete"    // delete the whole unit

	// The verbs of lost nodes.
	Abandon Verb = "abandon" // take a member out without its host, which is lost
	Clean   Verb = "clean"   // remove what an abandoned member left on its host

	// The verbs of operations. Each carries out one Operation, once.
	Drain    Verb = schema.OpDrain    // the member takes no new jobs; running ones end by on_jobs
	Resume   Verb = schema.OpResume   // take back a drain or a cordon of an operation
	Cordon   Verb = schema.OpCordon   // the member takes no new jobs; running ones go on
	Uncordon Verb = schema.OpUncordon // as Resume
	Restart  Verb = schema.OpRestart  // restart the daemon of the member
	Replace  Verb = schema.OpReplace  // drain the member before it leaves for another node
	Remove   Verb = schema.OpRemove   // drain the member before it leaves for good
	Label    Verb = schema.OpLabel    // set labels of the member at the runtime
	// AbandonUsage lets a unit stop and be deleted without its last usage.
	AbandonUsage Verb = schema.OpAbandonUsage
	AcceptLoss   Verb = schema.OpAccept  // replace the lost data of a host by an empty start
	Hold         Verb = schema.OpHold    // execute no plan of the unit until a release; in no plan
	Release      Verb = schema.OpRelease // end a hold; in no plan
	RetryUnit    Verb = schema.OpRetry   // begin a new attempt of a failed unit; without effect at the runtime
)

// Impact is the effect of an action on services, nodes and jobs.
type Impact struct {
	Restarts    []string `json:"restarts,omitempty"` // services that restart, such as "control plane"
	Reconfigure bool     `json:"reconfigure,omitempty"`
	// Interruption is what users notice of Restarts, such as "no job starts for some seconds". Not
	// digested.
	Interruption string   `json:"interruption,omitempty"`
	Drains       []string `json:"drains,omitempty"`    // nodes that drain first
	EndsJobs     bool     `json:"ends_jobs,omitempty"` // cancels jobs that remain at the deadline of the drain
	// Jobs says which jobs the action meets, and what becomes of them. Terms and Preempts say so of
	// the jobs that it does not end, move or wait for.
	Jobs     []JobRule       `json:"jobs,omitempty"`
	Terms    []JobTerms      `json:"terms,omitempty"`
	Preempts []JobPreemption `json:"preempts,omitempty"`
	// Differences are what the action changes at the runtime, with the class of each.
	Differences []Difference `json:"differences,omitempty"`
	Notes       []string     `json:"notes,omitempty"` // what it does that nothing else here says, a phrase each
}

// Difference is a value of the runtime that an action changes.
type Difference struct {
	What  string `json:"what"` // such as a parameter with its file, or "user eve"
	Class Class  `json:"class"`
}

// Class is what it takes to bring a difference into effect.
type Class string

// The classes, in order: a live difference touches no service, a reconfigure makes services
// read their files, a restart starts services again, and a drain empties a node first.
const (
	ClassLive        Class = "live"
	ClassReconfigure Class = "reconfigure"
	ClassRestart     Class = "restart"
	ClassDrain       Class = "needs drain"
)

// Action is one step of a Plan.
type Action struct {
	ID      string     `json:"id"` // hash of the action; a run appends the attempt
	Verb    Verb       `json:"verb"`
	Key     schema.Key `json:"key"`
	Member  string     `json:"member,omitempty"` // for join, leave, start; otherwise all
	Node    string     `json:"node,omitempty"`
	Changes []Change   `json:"changes,omitempty"`
	Reason  string     `json:"reason"`
	Needs   []string   `json:"needs,omitempty"` // IDs of the actions to complete first
	After   []string   `json:"after,omitempty"` // IDs of the actions to try first, whatever they end with
	Impact  Impact     `json:"impact,omitzero"`
	// Operation is what a verb of operations carries out; nil for the other verbs.
	Operation *ActionOperation `json:"operation,omitempty"`
	// Left is the member whose remains a clean removes; nil for the other verbs.
	Left *Member `json:"left,omitempty"`
	// Jobs is the impact on a snapshot of jobs. The impacts of several actions may count
	// the same job: Plan.Jobs counts it once. Not digested; nil: no snapshot.
	Jobs *JobImpact `json:"jobs,omitempty"`
}

// Change is one value that an action changes. Before or After is empty where the
// field is missing.
type Change struct {
	Field  string `json:"field"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Plan is the whole intended change of one unit.
type Plan struct {
	Format string     `json:"format"`
	Key    schema.Key `json:"key"`
	// sha256 hex over actions, After and the structural facts of Before; never a commit, a time or a job count
	Digest   string            `json:"digest"`
	Observed string            `json:"observed"` // digest of the structural observation it was made from
	Before   *Unit             `json:"before,omitempty"`
	After    *Unit             `json:"after,omitempty"` // nil: delete the unit
	Actions  []Action          `json:"actions"`         // an order that satisfies Needs and After
	Blocked  []Blocked         `json:"blocked,omitempty"`
	Later    []Action          `json:"later,omitempty"`  // the leaves of members that wait (CodeUnavailable), in later plans; not digested
	Placed   map[string]string `json:"placed,omitempty"` // member: reason for its node; displayed, not digested
	Jobs     *JobImpact        `json:"jobs,omitempty"`   // of Actions and Later on a snapshot of jobs; not digested; nil: no snapshot
}

// Empty reports that a plan has no action and is not blocked.
func (p *Plan) Empty() bool { return len(p.Actions) == 0 && len(p.Blocked) == 0 }

// Rules is a runtime's knowledge of a change without an observation. Implementations
// are pure.
type Rules interface {
	// Impact of the change of the unit from before to after; nil means absent.
	Impact(verb Verb, member string, before, after *Unit) Impact
}

// OutcomeState is the result of an Action.
type OutcomeState string

// Done was verified by reading back. Failed was tried. Skipped was not tried, because an
// action that it needs failed. Uncertain lost contact during the action. Waiting is
// delayed by jobs, a drain or a fault that a person has to mend, and is retried later.
const (
	Done      OutcomeState = "done"
	Failed    OutcomeState = "failed"
	Skipped   OutcomeState = "skipped"
	Uncertain OutcomeState = "uncertain"
	Waiting   OutcomeState = "waiting"
)

// Outcome is the result of one Action.
type Outcome struct {
	ActionID string        `json:"action_id"`
	Verb     Verb          `json:"verb"`
	Member   string        `json:"member,omitempty"`
	State    OutcomeState  `json:"state"`
	Error    string        `json:"error,omitempty"` // host, operation and output; never a secret
	Duration time.Duration `json:"duration_ns"`
}

// Phase of an instance (requirement A5).
type Phase string

// The phases.
const (
	PhaseRequested Phase = "requested"
	PhaseDeploying Phase = "deploying"
	PhaseRunning   Phase = "running"
	PhaseUpdating  Phase = "updating"
	PhaseStopped   Phase = "stopped"
	PhaseFailed    Phase = "failed"
	PhaseDeleting  Phase = "deleting"
	PhaseDeleted   Phase = "deleted"
)

// Phases are all phases of a unit, in the order of its life.
func Phases() []Phase {
	return []Phase{PhaseRequested, PhaseDeploying, PhaseRunning, PhaseUpdating, PhaseStopped, PhaseFailed, PhaseDeleting, PhaseDeleted}
}

// Retry is the retry state of a failing unit (requirement E6).
type Retry struct {
	Attempts int       `json:"attempts"`
	Next     time.Time `json:"next,omitzero"`
	Reason   string    `json:"reason,omitempty"`
	Terminal bool      `json:"terminal,omitempty"` // no retry until the revision or the plan changes
	Plan     string    `json:"plan,omitempty"`     // digest of the plan that failed
	Actions  int       `json:"actions,omitempty"`  // of that plan; one with fewer does not wait
}

// Status is the status document of one unit on berth/status. It is memory, never
// permission. Placements and retries are read back from it.
type Status struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"` // InstanceStatus or SharedRuntimeStatus
	Key        schema.Key `json:"key"`
	UID        string     `json:"uid,omitempty"` // of its document, if that has one
	Phase      Phase      `json:"phase"`
	EffectiveValues
	Conditions []Condition    `json:"conditions,omitempty"` // sorted by type
	Members    []MemberStatus `json:"members,omitempty"`
	LastApplied
	RuntimeState json.RawMessage `json:"runtime_state,omitempty"`
	Observed     *Observed       `json:"observed,omitempty"` // structural; input for plans of pull requests
	Review       *UnitReview     `json:"review,omitempty"`   // nil: no review pending
	// RequestedBy is the author of the document that created the instance, as the pull
	// request or the signature proves: a login, or the key of a service account. Later
	// changes keep it. Empty: unknown.
	RequestedBy string `json:"requested_by,omitempty"`
	// Attachments of projects to a shared runtime, sorted by project.
	Attachments []AttachmentStatus `json:"attachments,omitempty"`
	// Operations asked for on the unit, sorted by name. A finished one is the memory that it
	// is not done again; it stays as long as its document.
	Operations []Operation `json:"operations,omitempty"`
	// Abandoned members have remains on their hosts. They keep the status of a deleted unit.
	Abandoned []Abandoned `json:"abandoned,omitempty"`
}

// AttachmentPhase is where an attachment is in its life (requirement D2).
type AttachmentPhase string

// The phases. A requested attachment waits for the project, for a document, or for the runtime.
const (
	AttachmentRequested AttachmentPhase = "requested"
	AttachmentAttached  AttachmentPhase = "attached"
	AttachmentFailed    AttachmentPhase = "failed"
	AttachmentDetached  AttachmentPhase = "detached"
)

// AttachmentStatus is the state of one project at a shared runtime.
type AttachmentStatus struct {
	ProjectID string          `json:"project_id"`
	Name      string          `json:"name,omitempty"` // of the Attachment document; "": the project is attached without terms
	Phase     AttachmentPhase `json:"phase"`
	Reason    Reason          `json:"reason,omitempty"`
	Message   string          `json:"message,omitempty"` // why, and which document causes it
}

// EffectiveValues are the values of an instance that its deletion needs after its document
// is gone (requirement B4).
type EffectiveValues struct {
	App               string `json:"app,omitempty"`
	RuntimeBackend    string `json:"runtime_backend,omitempty"`
	OperatingMode     string `json:"operating_mode,omitempty"`
	ControlPlaneScope string `json:"control_plane_scope,omitempty"`
	Operator          string `json:"operator,omitempty"` // service account; "": Berth itself
}

// LastApplied says what was applied to a unit last, and how that ended.
type LastApplied struct {
	Revision      string `json:"revision,omitempty"`       // commit of the configuration
	Digest        string `json:"digest,omitempty"`         // of the plan
	CorrelationID string `json:"correlation_id,omitempty"` // of the change
	FailureReason string `json:"failure_reason,omitempty"`
	Attempt       int    `json:"attempt"` // number of applied plans of the unit: part of Action.ID at the host
	Retry         *Retry `json:"retry,omitempty"`
	// BegunOn is the day (UTC) on which the unit was observed complete after it was not. Its usage
	// begins then. "": it never was.
	BegunOn string `json:"begun_on,omitempty"`
	// Made: hosts have the unit. It ends when its deletion begins.
	Made bool `json:"made,omitempty"`
}

// MemberStatus is a member in a status: its node and its state.
type MemberStatus struct {
	Member
	State  State  `json:"state"`
	Placed string `json:"placed,omitempty"` // reason for this node
	// OutOfService is that of the last observation.
	OutOfService string `json:"out_of_service,omitempty"`
	Note         string `json:"note,omitempty"` // what the runtime noted of it
	// MissingSince is the time of the first observation in which its host had nothing of it; zero: it was not missing in the last one.
	MissingSince time.Time `json:"missing_since,omitzero"`
	// Integration is nil while the unit has no runtime.
	Integration *Integration `json:"integration,omitempty"`
}

// Integration says which scheduler has the allocation of a member, and by which names
// (requirement A17). Berth records it for billing and other systems, and never reads it.
type Integration struct {
	SchedulerType string            `json:"scheduler_type,omitempty"` // runtime_backend of the unit
	Adapter       string            `json:"adapter,omitempty"`        // package that talks to the scheduler
	References    map[string]string `json:"references,omitempty"`     // opaque; what the runtime observed last
}

// DeletedInstance is the event log's record of a deleted instance.
type DeletedInstance struct {
	Key               schema.Key
	ID                string // ID in events and in the API
	App               string
	OperatingMode     string
	ControlPlaneScope string
	RuntimeBackend    string
	RequestedBy       string
	Revision          string // commit of the configuration that deleted it
	CorrelationID     string
	DeletedAt         time.Time // UTC; time when the deletion completed
}

// Event is a domain event in the standard envelope (requirement A8).
type Event struct {
	EventID       string          `json:"event_id"` // hash of resource and transition: the same transition has the same id
	EventType     string          `json:"event_type"`
	OccurredAt    time.Time       `json:"occurred_at"`
	Version       string          `json:"version"`
	CorrelationID string          `json:"correlation_id"`
	Payload       json.RawMessage `json:"payload"`
}

// PlacedEvent is an event with its place in the event log of berth/status.
type PlacedEvent struct {
	Event
	Place string // never changes, and no other event has it
}

// FirstPlace is the place before the first event of every log.
const FirstPlace = "0-0-0"

// Errors of reading the event log from a place on. Test with errors.Is.
var (
	// ErrNoPlace: the text is not the place of an event in this log.
	ErrNoPlace = errors.New("not a place in the event log")
	// ErrFarPlace: more events follow than are read at once.
	ErrFarPlace = errors.New("too far back in the event log")
)

// Settled reports whether a unit's status changes only after a change of the declaration
// or of the observation.
func (s *Status) Settled() bool {
	switch s.Phase {
	case PhaseDeleted:
		return true
	case PhaseDeleting:
		return s.Retry != nil && s.Retry.Terminal
	}
	if s.Review != nil && s.Review.Stale != nil {
		return false // a user may approve the plan, or the observation may change
	}
	return s.Condition(ConditionReconciling).Is(ConditionFalse)
}

// RolledOut reports whether a change of a unit has come to its end: the unit is settled, or it is Ready and Berth only brings
// back workers that are missing.
func (s *Status) RolledOut() bool {
	if s.Review != nil && s.Review.Stale != nil {
		return false
	}
	return s.Settled() || s.Condition(ConditionReady).Is(ConditionTrue)
}

// Condition returns the condition of a type, or nil if the status has none.
func (s *Status) Condition(typ ConditionType) *Condition {
	if s == nil {
		return nil
	}
	return conditionOf(s.Conditions, typ)
}
