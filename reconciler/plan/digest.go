package plan

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"slices"
)

// Structural returns the part of an observation that plans and statuses use:
// presence, the applied unit, the members' states and drift. Reasons, details, jobs
// and the runtime's own facts are left out; members and drift are sorted.
func Structural(o Observed) Observed {
	s := Observed{Key: o.Key, Presence: o.Presence, Remains: o.Remains, Complete: o.Complete && o.Presence == Present, Unit: o.Unit}
	for _, m := range o.Members {
		s.Members = append(s.Members, MemberState{Name: m.Name, Node: m.Node, State: m.State})
	}
	slices.SortFunc(s.Members, func(a, b MemberState) int {
		return cmp.Or(compareNames(a.Name, b.Name), cmp.Compare(a.Node, b.Node))
	})
	for _, d := range o.Drift {
		s.Drift = append(s.Drift, Drift{Member: d.Member, What: d.What})
	}
	slices.SortFunc(s.Drift, func(a, b Drift) int {
		return cmp.Or(compareNames(a.Member, b.Member), cmp.Compare(a.What, b.What))
	})
	s.Drift = slices.Compact(s.Drift)
	return s
}

// digest is the sha256, in hex, of v's canonical JSON.
func digest(v any) string { return sum(canonical(v)) }

// sum returns the digest of canonical JSON. Nil counts as null, and a newline is added.
func sum(c []byte) string {
	if c == nil {
		c = []byte("null")
	}
	h := sha256.New()
	h.Write(c)
	h.Write([]byte{'\n'})
	return hex.EncodeToString(h.Sum(nil))
}

// seal computes the plan's digests. They cover no text for people (reasons,
// placements, messages), and nothing that differs between two observations of the
// same state.
func (m *maker) seal() {
	p, seen := &m.plan, m.seen
	seen.Key = p.Key // runtimes need not report the key
	unit := m.canonical(seen.Unit)
	seen.Unit = nil // JSON ends with "unit" too
	observed := canonical(seen)
	if unit != nil {
		observed = slices.Concat(bytes.TrimSuffix(observed, []byte("}")), []byte(`,"unit":`), unit, []byte("}"))
	}
	p.Observed = sum(observed)
	actions := slices.Clone(p.Actions)
	for i := range actions {
		actions[i].Reason, actions[i].Jobs, actions[i].Impact.Interruption = "", nil, ""
	}
	p.Digest = sum(object(
		field{"actions", canonical(actions)},
		field{"after", m.canonical(p.After)},
		field{"format", canonical(p.Format)},
		field{"key", canonical(p.Key)},
		field{"observed", observed},
	))
}

// canonical returns a unit's canonical JSON. A plan holds a unit in several places;
// each is encoded once, because a unit in a plan never changes. Equal units, such as the
// applied and the desired one of most plans, are encoded once too.
func (m *maker) canonical(u *Unit) []byte {
	if u == nil {
		return nil
	}
	if c, ok := m.written[u]; ok {
		return c
	}
	for other, c := range m.written {
		if isSameUnit(u, other) {
			return c
		}
	}
	m.written[u] = canonical(u)
	return m.written[u]
}

// isSameUnit reports whether two units are deeply equal but for the reasons of their members, which are not in JSON.
func isSameUnit(a, b *Unit) bool {
	return (a.Members == nil) == (b.Members == nil) && slices.EqualFunc(a.Members, b.Members, isSameMember) &&
		reflect.DeepEqual(&a.Effective, &b.Effective)
}

func isSameMember(a, b Member) bool {
	a.Reason = b.Reason
	return reflect.DeepEqual(&a, &b)
}

// actionID identifies an action by its effect. content is canonical JSON.
func actionID(a Action, content []byte) string {
	return sum(object(
		field{"changes", canonical(a.Changes)},
		field{"content", content},
		field{"key", canonical(a.Key)},
		field{"member", canonical(a.Member)},
		field{"node", canonical(a.Node)},
		field{"operation", canonical(a.Operation)},
		field{"verb", canonical(a.Verb)},
	))[:12]
}
