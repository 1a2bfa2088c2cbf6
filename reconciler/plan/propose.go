package plan

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"berth/schema"
	"berth/schema/authority"
)

// ProposeInput is the input for a Proposal: both sides of a change as they would be in
// force, and the recorded statuses of the units.
type ProposeInput struct {
	Base, Head                   string            // commits
	BaseEffective, HeadEffective *schema.Effective // head merged into base; nil if unknown
	// PendingEffective is the result of the next merge without this change, if it
	// differs from BaseEffective; else nil.
	PendingEffective *schema.Effective
	// Memory is nil without a status branch. The units of Base are then assumed to run
	// as declared.
	Memory      *Memory
	Documents   []DocumentChange
	Diagnostics []schema.Diagnostic
	Conflicts   []string
	Held        []schema.Held
	Authority   []authority.Decision
	PolicyEffects
	// Rules returns the rules of a runtime backend, or nil for an unknown one.
	Rules func(backend string) Rules
	// Placer places both sides and reuses earlier results; nil: a new Placer.
	Placer *Placer
}

// Propose plans the units that a change touches: their effective values, denial or
// placement differ between base and head. Pending work of other units is not part of
// this change and not shown. The plans use the structural observations in memory, so
// every caller computes the same bytes. A unit without a record counts as absent.
func Propose(in ProposeInput) Proposal {
	p := Proposal{
		Format: Format, Base: in.Base, Head: in.Head, Conflicts: in.Conflicts,
		Diagnostics: in.Diagnostics, Documents: in.Documents, Held: in.Held, Authority: in.Authority,
		PolicyEffects: in.PolicyEffects, Plans: []Plan{},
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

// assumed returns the memory of an estate in which every placed unit of eff runs as
// declared.
func assumed(eff *schema.Effective, placer *Placer) Memory {
	var all []*Status
	placed := placer.Place(eff, Memory{})
	for key, inst := range eff.All() {
		members := placed.Members(key)
		isView := inst.SharedRuntime != "" // it has no members
		if len(placed.Unplaced(key)) > 0 || len(eff.Denied(key)) > 0 || inst.Suspend || len(members) == 0 && !isView {
			continue
		}
		o := Observed{Key: key, Presence: Present, Complete: true, Unit: &Unit{Effective: *inst, Members: members}}
		for _, m := range members {
			state := Running
			if inst.DesiredState == schema.DesiredStopped {
				state = Stopped
			}
			o.Members = append(o.Members, MemberState{Name: m.Name, Node: m.Node, State: state})
		}
		slices.SortFunc(o.Members, func(a, b MemberState) int { return compareNames(a.Name, b.Name) })
		o = Structural(o)
		done := Operations(eff.Operations(key), nil, time.Time{})
		for i := range done {
			done[i].Phase = OperationDone
		}
		all = append(all, &Status{Key: key, Phase: PhaseRunning, Observed: &o, Operations: done})
	}
	return Remember(all...)
}

// units makes the plans of the units that differ.
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
		after := head.placed.Unit(head.eff, key)
		u := Make(Input{
			Key: key, After: after, Members: head.placed.Members(key), Unplaced: head.placed.Unplaced(key),
			Denied: head.eff.Denied(key), Observed: observed,
			Operations: Pending(Operations(head.eff.Operations(key), in.Memory.Get(key).operations(), time.Time{})),
			Made:       in.Memory.made(key),
			Rules:      in.rules(key, after, observed),
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

// rules returns the rules of the backend that has or gets the unit.
func (in *ProposeInput) rules(key schema.Key, after *schema.EffectiveUnit, o Observed) Rules {
	backend := ""
	switch {
	case after != nil:
		backend = after.RuntimeBackend
	case o.Unit != nil:
		backend = o.Unit.Effective.RuntimeBackend
	case in.Memory.Get(key) != nil:
		backend = in.Memory.Get(key).RuntimeBackend
	}
	if in.Rules == nil || backend == "" {
		return nil
	}
	return in.Rules(backend)
}

// observed returns the structural observation of a unit from memory.
func (m Memory) observed(key schema.Key) Observed { return observed(m.Get(key), key) }

// observed returns the structural observation of a unit with the status st; nil: no
// status is on record.
func observed(st *Status, key schema.Key) Observed {
	switch {
	case st == nil, st.Observed == nil && (st.Phase == PhaseRequested || st.Phase == PhaseDeleted):
		return Observed{Key: key, Presence: Absent}
	case st.Observed == nil:
		return Observed{Key: key, Presence: Unknown, Reason: "no observation is on record yet"}
	}
	return *st.Observed
}

// side is one side of a change, indexed by key.
type side struct {
	eff    *schema.Effective
	placed Placement
}

// candidates returns, sorted, the units that may differ between the two sides, and the
// other declared units that policy denies.
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
	for a, b := range schema.Unlike(base.eff.Tenants, head.eff.Tenants) {
		for _, t := range []*schema.EffectiveTenant{a, b} {
			if t != nil {
				refused(t.Decisions())
			}
		}
	}
	return slices.SortedFunc(maps.Keys(keys), schema.Key.Compare)
}

// same reports whether the unit of key is equal on both sides. The position of a rule in
// its file does not count.
func (s side) same(o side, key schema.Key) bool {
	a, b := s.placed.Unit(s.eff, key), o.placed.Unit(o.eff, key)
	if !schema.SameOperations(s.eff.Operations(key), o.eff.Operations(key)) {
		return false
	}
	if (a == nil) != (b == nil) || a != b && !reflect.DeepEqual(a, b) {
		return false
	}
	if !slices.EqualFunc(s.eff.Denied(key), o.eff.Denied(key), func(x, y schema.Decision) bool {
		return x.Rule == y.Rule && x.Field == y.Field && x.Before == y.Before && x.After == y.After
	}) {
		return false
	}
	return slices.EqualFunc(s.placed.Members(key), o.placed.Members(key), func(x, y Member) bool {
		x.Reason, y.Reason = "", "" // a different choice of free nodes is not a change of placement
		return reflect.DeepEqual(x, y)
	}) && slices.EqualFunc(s.placed.Unplaced(key), o.placed.Unplaced(key), func(x, y Blocked) bool {
		return x.Code == y.Code && x.Wait == y.Wait
	})
}

// made reports whether hosts have a unit.
func (m Memory) made(key schema.Key) bool {
	st := m.Get(key)
	return st != nil && st.Made
}
