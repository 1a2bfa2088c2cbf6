package runtimes

import (
	"context"
	"log/slog"

	"berth/reconciler/plan"
	"berth/schema"
)

// Scope tells a runtime which unit to look at, and where.
type Scope struct {
	Key schema.Key
	// Members is where the unit is remembered to be; empty if nothing is.
	Members []plan.Member
	// Candidates are nodes a control plane could be on. They are asked for
	// units that nobody remembers, so that a lost status branch loses nothing.
	Candidates []*schema.Node
	// Instance is what shall run, or nil.
	Instance *schema.EffectiveInstance
}

// Change is one action to apply, with all it rests on.
type Change struct {
	Plan   *plan.Plan
	Action plan.Action // its ID carries the attempt
	// Stamp goes into the host's ledger with every effect.
	Stamp Stamp
	// Log is for what an error does not say. It has the ids of the instance and
	// of the action (requirement A11). Nil: nobody reads it.
	Log *slog.Logger
}

// Stamp says on whose behalf an effect happens.
type Stamp struct {
	Epoch         uint64 `json:"epoch"`            // of the leader; hosts refuse one lower than they have seen
	Leader        string `json:"leader,omitempty"` // its identity; hosts refuse another one of the same epoch
	Commit        string `json:"commit"`
	CorrelationID string `json:"correlation_id"`
	ActionID      string `json:"action_id,omitempty"`
	Verb          string `json:"verb,omitempty"`
}

// Runtime makes units of one backend real.
type Runtime interface {
	// Observe says what is there. It answers with Presence Unknown and a Reason
	// rather than guess; an error never means Absent. It has no effect.
	Observe(ctx context.Context, s Scope) plan.Observed
	// Apply performs one action and reads back what it did. It is idempotent
	// per Action.ID and can be resumed after a crash at any point. The error
	// names the host, the operation and what it printed, and holds no secret;
	// it is Uncertain (errors.Is ErrUncertain) when contact was lost and the
	// effect may or may not stand.
	Apply(ctx context.Context, c Change) error
	plan.Rules
}

// Backend is what a runtime registers. Package backends lists all of them.
type Backend interface {
	// Name is the value of AppVersion.spec.runtime_backend.
	Name() string
	// ConfigCUE returns CUE source that defines #Config, the closed definition of
	// an instance's spec.config, and #Parameters, that of a version's
	// manifest.parameters. Both may have defaults.
	ConfigCUE() string
	// Rules returns the planning rules, which need no host.
	Rules() plan.Rules
	// Profile returns what berth-host allows on a host. The helper calls no other
	// method, so the linker leaves their code out of it.
	Profile() Profile
	// New returns the runtime, which reaches its hosts through hosts.
	New(hosts Hosts) Runtime
}
