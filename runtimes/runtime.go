package runtimes

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/usage"
)

// Scope says which unit to observe, and where.
type Scope struct {
	Key schema.Key
	// Members are the recorded members of the unit; empty if nothing is recorded.
	Members []plan.Member
	// Candidates are nodes that may have the control plane. They are asked for a unit
	// without a record, so a lost status branch loses nothing.
	Candidates []*schema.Node
	// Instance is the wanted instance, or nil.
	Instance *schema.EffectiveUnit
	// Stamp is the leader that asks. A host that answers refuses earlier leaders from then on. Otherwise a late effect of one could
	// create what this observation reports as absent. The zero value, of a person or a paused daemon, deposes nobody.
	Stamp Stamp
}

// Change is an action to apply, with its context.
type Change struct {
	Plan   *plan.Plan
	Action plan.Action // its ID carries the attempt
	// Stamp is recorded in the host's ledger with every effect.
	Stamp Stamp
	// RecordUsage puts what jobs used onto berth/status, and returns once it is there. A runtime
	// calls it before it removes the only record of these jobs. Nil: nobody keeps it.
	RecordUsage func(ctx context.Context, jobs []usage.Job) error
	// JobsLost tells people of jobs that the scheduler lost in a crash. A runtime calls it before it ends their records. Nil:
	// nobody gets a message.
	JobsLost func(jobs []plan.LostJob)
	// Log has the ids of the instance and the action (requirement A11). Nil: no log.
	Log *slog.Logger
}

// Stamp identifies the cause of an effect.
type Stamp struct {
	Epoch         uint64 `json:"epoch"`            // of the leader; hosts refuse an earlier one
	Leader        string `json:"leader,omitempty"` // its identity; hosts refuse another one in the same epoch
	Commit        string `json:"commit"`
	CorrelationID string `json:"correlation_id"`
	ActionID      string `json:"action_id,omitempty"`
	Verb          string `json:"verb,omitempty"`
	Credential
}

// Credential is the short-lived right to change one unit, under the service account that operates
// the unit. It is empty where a unit names no operator.
type Credential struct {
	Operator   string    `json:"operator,omitempty"`   // service account, or schema.OperatorPlatform
	Credential string    `json:"credential,omitempty"` // random id of this credential
	Expires    time.Time `json:"expires,omitzero"`     // when its effects end
}

// Runtime deploys the units of a backend.
type Runtime interface {
	// Observe returns the state of a unit and has no effect. It answers with Presence
	// Unknown and a Reason rather than guess; an error never means Absent.
	Observe(ctx context.Context, s Scope) plan.Observed
	// Apply does an action and verifies it. It is idempotent per Action.ID and can be
	// resumed after a crash at any point. The error names the host, the operation and
	// its output, without secrets. It is ErrUncertain if contact was lost and the
	// effect is unknown.
	Apply(ctx context.Context, c Change) error
	plan.Rules
}

// Meter reads what jobs used while their unit runs. A Runtime may be one.
type Meter interface {
	// Cluster returns the name that the runtime gives a unit in usage.Job.
	Cluster(key schema.Key) string
	// ReadUsage returns the usage of runs in a range: all of it for ended runs, and that of the days that are over
	// for the others. While accounting lacks ends of jobs, it returns an error: a result misses no run that
	// ended before At. It has no effect.
	ReadUsage(ctx context.Context, s Scope, stamp Stamp, r UsageRange) (UsageReading, error)
	// AccountedDay returns what accounting reports for a day (UTC); false: it has not added up the day
	// yet. It has no effect.
	AccountedDay(ctx context.Context, s Scope, stamp Stamp, day time.Time) (report usage.DayReport, ok bool, err error)
}

// UsageRange says which usage a Meter reads.
type UsageRange struct {
	Since time.Time // on the first day, UTC
	ToNow bool      // also what runs that have not ended used today, until UsageReading.At
}

// UsageReading is an answer of a Meter.
type UsageReading struct {
	Jobs []usage.Job
	At   time.Time // of the runtime's clock
}

// Backend describes a runtime to Berth. Package backends lists all of them.
type Backend interface {
	// Name is the value of AppVersion.spec.runtime_backend.
	Name() string
	// ConfigCUE returns CUE source that defines #Config, the closed definition of
	// an instance's spec.config, and #Parameters, that of a version's
	// manifest.parameters. Both may have defaults.
	ConfigCUE() string
	// ConfigExample returns a YAML file that sets each field of #Parameters to a valid value,
	// for the documentation. Each field at the top begins a line.
	ConfigExample() string
	// CheckConfig is a schema.ConfigCheck.
	CheckConfig(v *schema.AppVersion, config json.RawMessage) schema.ConfigFacts
	// QueueNames returns the names of a unit's queues by its config, merged over the parameters.
	QueueNames(config json.RawMessage) schema.QueueNames
	// Limits maps the name of a limit, as the backend gives it where it refuses a job or says why one waits, to the field of a
	// project's terms on a shared unit that sets it (schema.SubmissionLimits, and guaranteed of its contribution policy).
	// Nil: a backend has none.
	Limits() map[string]string
	// Reference returns a page for the documentation, in Markdown; nil without one.
	Reference() []byte
	// Releases returns the values of AppVersion.spec.version that the runtime knows;
	// nil: every one is allowed.
	Releases() schema.Releases
	// Rules returns the planning rules, which need no host.
	Rules() plan.Rules
	// Profile returns what berth-host allows on a host. The helper calls no other
	// method, so the linker leaves their code out of it.
	Profile() Profile
	// New returns the runtime, which reaches its hosts through hosts.
	New(hosts Hosts, limits Limits) Runtime
}

// Limits bound work on hosts. A zero field has the backend's default.
type Limits struct {
	// Command bounds one command on a host.
	Command time.Duration
	// Ready bounds the start and the end of a daemon, and changes of its database.
	Ready time.Duration
}
