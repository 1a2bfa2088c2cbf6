package decide

import (
	"context"
	"fmt"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
	"berth/schema/policy"
	"berth/schema/signature"
)

// Options are what decisions of one estate rest on besides its trees.
type Options struct {
	Loader *estate.Loader
	// Authority is nil where whoever can push to main may change everything.
	Authority *Authority
	// Rules refuse what a change makes of the estate; each diagnostic of severity
	// error holds its File, if that changed. They must be pure.
	Rules []func(before, after *schema.Desired) []schema.Diagnostic
}

// Authority says who may change what, beyond the role bindings in force.
type Authority struct {
	Administrators    []string // logins that berth.yaml names
	AdministratorKeys []string // that sign commits of the first of them
	NoForge           bool     // there is none, so that nobody can approve anything
}

// Decider decides the commits of one estate. It remembers what policy said of
// what did not change. Safe for concurrent use.
type Decider struct {
	o        Options
	placer   plan.Placer
	judge    policy.Judge
	capacity policy.CapacityChecker
}

// New makes a Decider.
func New(o Options) *Decider { return &Decider{o: o} }

// Place is plan.Place. What of an estate was placed before, for a decision or a
// proposal, need not be placed again.
func (d *Decider) Place(eff *schema.Effective, mem plan.Memory) plan.Placement {
	return d.placer.Place(eff, mem)
}

// Ahead begins to read a tree that is to be decided, while it is found out who
// made it. What comes of it is for Commit to tell; wait returns once it is read.
func (d *Decider) Ahead(ctx context.Context, tree schema.Snapshot) (wait func()) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = d.o.Loader.Load(ctx, tree) // it is remembered, or fails again
	}()
	return func() { <-read }
}

// Evaluate is policy's judgement of everything; what is in before exists. What
// is new and refused never comes into force, so that it does not count as
// existing later.
func (d *Decider) Evaluate(now, before *schema.Desired, today string) *schema.Effective {
	return d.judge.Evaluate(now, before, today)
}

// has says whether a tenant has an instance or a shared runtime.
func has(t *schema.TenantEstate, k schema.Key) bool {
	if t == nil {
		return false
	}
	if k.Kind == schema.KindSharedRuntime {
		return t.SharedRuntimes[k.Name] != nil && t.SharedRuntimes[k.Name].Runtime != nil
	}
	p := t.Projects[k.Project]
	return p != nil && p.Instances[k.Name] != nil
}

// subject is who a change is decided for.
type subject struct {
	authority.Actor
	signer      *signature.Signer // who signed the commit, where Actor is nobody; nil: nobody who is known
	commit      string            // "": none yet
	pullRequest int
	acks        []string
	applies     *applicant // who stands in for the author by a command; nil: nobody
}

// in is who the subject is where a right is needed: what a signing key is said
// to be counts only where that is said.
func (s subject) in(scope authority.Scope) authority.Actor {
	if s.signer == nil || s.Proof != authority.ProofNone {
		return s.Actor
	}
	a, err := s.signer.Actor(scope)
	if err != nil {
		return s.Actor
	}
	a.BreakGlass = s.BreakGlass
	return a
}

// decisions are those about one document: empty where nobody's right is asked.
func (d *Decider) decisions(s subject, before, main *schema.Desired, key schema.Key, c schema.PathChange) []authority.Decision {
	var out []authority.Decision
	if d.o.Authority == nil {
		return nil
	}
	for _, n := range authority.Needs(before, main, key, c) {
		if s.applies != nil {
			out = append(out, d.applied(s, before, n))
			continue
		}
		out = append(out, authority.Decide(d.rules(before), s.in(n.Scope), []authority.Need{n})...)
	}
	return out
}

func (d *Decider) rules(base *schema.Desired) authority.Rules {
	return authority.Rules{Base: base, Administrators: d.o.Authority.Administrators, AdministratorKeys: d.o.Authority.AdministratorKeys, NoForge: d.o.Authority.NoForge}
}

// may says whether a subject may do something; anybody may where no authority
// is asked.
func (d *Decider) may(s subject, base *schema.Desired, p authority.Permission, scope authority.Scope) bool {
	return d.o.Authority == nil || authority.May(d.rules(base), s.in(scope), p, scope).Allowed
}

// denial is the first of ds that is denied, for people.
func denial(ds []authority.Decision) (string, bool) {
	for _, d := range ds {
		if !d.Allowed {
			return fmt.Sprintf("%s needs %s: %s", d.Why, d.Permission, d.Reason), true
		}
	}
	return "", false
}

// Verdict is what became of one changed document.
type Verdict struct {
	Commit      string // of main, that changed it last
	By          authority.Actor
	PullRequest int // 0: none
	Document    plan.DocumentChange
	Authority   []authority.Decision // empty where nobody's right was asked
	Held        *plan.Held           // nil: it came into force
}
