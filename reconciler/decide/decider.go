package decide

import (
	"context"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/estate"
	"berth/schema/policy"
)

// Rule returns findings about a change of an estate on a UTC day. before may be nil.
type Rule func(before, after *schema.Desired, today string) []schema.Diagnostic

// Undated returns a rule that is the same every day.
func Undated(f func(before, after *schema.Desired) []schema.Diagnostic) Rule {
	return func(before, after *schema.Desired, _ string) []schema.Diagnostic { return f(before, after) }
}

// Options are the inputs of the decisions of one estate besides its trees.
type Options struct {
	Loader *estate.Loader
	// Authority is nil if every user who can push to main has all permissions.
	Authority *Authority
	// Rules refuse the result of a change. They are pure. A diagnostic of severity error
	// holds its File, if that changed.
	Rules []Rule
}

// Authority configures permissions beyond the role bindings in force.
type Authority struct {
	Administrators    []string // logins that berth.yaml names
	AdministratorKeys []string // that sign commits of the first administrator
	NoForge           bool     // nobody can approve a change
}

// Decider decides the commits of one estate. It caches the evaluation of unchanged
// parts. Safe for concurrent use.
type Decider struct {
	o        Options
	placer   plan.Placer
	judge    policy.Judge
	capacity policy.CapacityChecker
}

// New makes a Decider.
func New(o Options) *Decider { return &Decider{o: o} }

// Place is plan.Place, cached.
func (d *Decider) Place(eff *schema.Effective, mem plan.Memory) plan.Placement {
	return d.placer.Place(eff, mem)
}

// Ahead starts to load a tree that is to be decided, so that it is cached. wait
// returns once it is loaded; Commit reports errors.
func (d *Decider) Ahead(ctx context.Context, tree schema.Snapshot) (wait func()) {
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		_, _ = d.o.Loader.Load(ctx, tree)
	}()
	return func() { <-loaded }
}

// Evaluate returns the policy decisions about everything in now. The instances of
// before exist already; policy may refuse others.
func (d *Decider) Evaluate(now, before *schema.Desired, today string) *schema.Effective {
	return d.judge.Evaluate(now, before, today)
}
