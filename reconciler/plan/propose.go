package plan

import (
	"maps"
	"reflect"
	"slices"

	"berth/schema"
	"berth/schema/authority"
)

// ProposeInput is what a Proposal is made from: both sides of a change, as they
// would be in force, and what is remembered of the units.
type ProposeInput struct {
	Base, Head                   string            // commits
	BaseEffective, HeadEffective *schema.Effective // head merged into base; nil where it cannot be told
	// PendingEffective is what the next merge brings whatever it changes, where that
	// is something else than BaseEffective; else nil.
	PendingEffective *schema.Effective
	// Memory is nil where nobody keeps one: then the units of Base are taken to
	// run as declared.
	Memory      *Memory
	Documents   []DocumentChange
	Diagnostics []schema.Diagnostic
	Conflicts   []string
	Held        []Held
	Authority   []authority.Decision
	Impacted    []schema.Noncompliance
	// Rules are those of a runtime backend, nil for one that is not known.
	Rules func(backend string) Rules
	// Placer places both sides: what it placed before it need not place again.
	// nil: one that has placed nothing.
	Placer *Placer
}

// Propose plans the units a change touches: those whose effective values,
// denial or placement differ between base and head. Other units may have work
// pending; it is none of this change's and is not shown. The plans rest on the
// structural observations in memory, so that everyone computes the same bytes;
// a unit nobody remembers is taken to be absent.
func Propose(in ProposeInput) Proposal {
	p := Proposal{
		Format: Format, Base: in.Base, Head: in.Head, Conflicts: in.Conflicts,
		Diagnostics: in.Diagnostics, Documents: in.Documents, Held: in.Held, Authority: in.Authority, Impacted: in.Impacted, Plans: []Plan{},
	}
	if in.Placer == nil {
		in.Placer = new(Placer)
	}
	if in.Memory == nil && in.BaseEffective != nil {
		mem := assumed(in.BaseEffective, in.Placer)
		in.Memory, p.Assumed = &mem, true
	}
	if in.BaseEffective != nil && in.HeadEffective != nil && in.BaseEffective != in.HeadEffective {
		p.units(in)
	}
	digests := make([]string, len(p.Plans))
	for i := range p.Plans {
		digests[i] = p.Plans[i].Key.String() + " " + p.Plans[i].Digest
	}
	p.Digest = digest(digests)
	return p
}

// assumed is the memory of a world in which everything of eff runs as declared,
// as far as it can be placed.
func assumed(eff *schema.Effective, placer *Placer) Memory {
	var all []*Status
	placed := placer.Place(eff, Memory{})
	for key, members := range placed.All() {
		inst := eff.Instance(key)
		if len(placed.Unplaced(key)) > 0 || len(eff.Denied(key)) > 0 || inst.Suspend || len(members) == 0 {
			continue
		}
		o := Observed{Key: key, Presence: Present, Complete: true, Unit: &Unit{Instance: *inst, Members: members}}
		for _, m := range members {
			state := Running
			if inst.DesiredState == schema.DesiredStopped {
				state = Stopped
			}
			o.Members = append(o.Members, MemberState{Name: m.Name, Node: m.Node, State: state})
		}
		slices.SortFunc(o.Members, func(a, b MemberState) int { return compareNames(a.Name, b.Name) })
		o = Structural(o)
		all = append(all, &Status{Key: key, Phase: PhaseRunning, Observed: &o})
	}
	return Remember(all...)
}

// units makes the plans of what differs.
func (p *Proposal) units(in ProposeInput) {
	base := side{in.BaseEffective, in.Placer.Place(in.BaseEffective, *in.Memory)}
	head := side{in.HeadEffective, in.Placer.Place(in.HeadEffective, *in.Memory)}
	pending := base
	if in.PendingEffective != nil {
		pending = side{in.PendingEffective, in.Placer.Place(in.PendingEffective, *in.Memory)}
	}
	keys := candidates(base, head)
	p.Impacted = impacted(p.Impacted, base, head, keys)
	for _, key := range keys {
		if base.same(head, key) {
			continue
		}
		observed := in.Memory.observed(key)
		after := head.placed.Instance(head.eff, key)
		u := Make(Input{
			Key: key, After: after, Members: head.placed.Members(key), Unplaced: head.placed.Unplaced(key),
			Denied: head.eff.Denied(key), Observed: observed, Rules: in.rules(key, after, observed),
		})
		p.Decisions = append(p.Decisions, head.eff.About(key)...)
		if !u.Empty() {
			p.Plans = append(p.Plans, u)
			if pending.same(head, key) {
				p.Released = append(p.Released, key)
			}
		}
	}
}

// rules are those of the backend that has or gets the unit.
func (in *ProposeInput) rules(key schema.Key, after *schema.EffectiveInstance, o Observed) Rules {
	backend := ""
	switch {
	case after != nil:
		backend = after.RuntimeBackend
	case o.Unit != nil:
		backend = o.Unit.Instance.RuntimeBackend
	case in.Memory.Get(key) != nil:
		backend = in.Memory.Get(key).RuntimeBackend
	}
	if in.Rules == nil || backend == "" {
		return nil
	}
	return in.Rules(backend)
}

// observed is the structural observation that memory holds of a unit.
func (m Memory) observed(key schema.Key) Observed {
	st := m.Get(key)
	switch {
	case st == nil, st.Observed == nil && (st.Phase == PhaseRequested || st.Phase == PhaseDeleted):
		return Observed{Key: key, Presence: Absent}
	case st.Observed == nil:
		return Observed{Key: key, Presence: Unknown, Reason: "no observation is on record yet"}
	}
	return *st.Observed
}

// side is one side of a change, ready to be compared by key.
type side struct {
	eff    *schema.Effective
	placed Placement
}

// candidates are, sorted, the units that may mean something else on the two
// sides, and what else is declared there and refused.
func candidates(base, head side) []schema.Key {
	keys := map[schema.Key]bool{}
	for key := range schema.Differing(base.eff, head.eff) {
		keys[key] = true
	}
	for key := range ChangedPlacement(base.placed, head.placed) {
		keys[key] = true
	}
	refused := func(ds []schema.Decision) {
		for _, d := range ds {
			if d.Verdict == schema.Deny {
				keys[d.Key] = true
			}
		}
	}
	refused(base.eff.Own)
	refused(head.eff.Own)
	for a, b := range schema.Unlike(base.eff.Tenants, head.eff.Tenants) {
		for _, t := range []*schema.EffectiveTenant{a, b} {
			if t != nil {
				refused(t.Decisions())
			}
		}
	}
	return slices.SortedFunc(maps.Keys(keys), schema.Key.Compare)
}

// same says whether key means the same on both sides. Where a rule stands in
// its file means nothing.
func (s side) same(o side, key schema.Key) bool {
	a, b := s.placed.Instance(s.eff, key), o.placed.Instance(o.eff, key)
	if (a == nil) != (b == nil) || a != b && !reflect.DeepEqual(a, b) {
		return false
	}
	if !slices.EqualFunc(s.eff.Denied(key), o.eff.Denied(key), func(x, y schema.Decision) bool {
		return x.Rule == y.Rule && x.Field == y.Field && x.Before == y.Before && x.After == y.After
	}) {
		return false
	}
	return slices.EqualFunc(s.placed.Members(key), o.placed.Members(key), func(x, y Member) bool {
		x.Reason, y.Reason = "", "" // other free nodes are no other placement
		return reflect.DeepEqual(x, y)
	}) && slices.EqualFunc(s.placed.Unplaced(key), o.placed.Unplaced(key), func(x, y Blocked) bool {
		return x.Code == y.Code && x.Wait == y.Wait
	})
}
