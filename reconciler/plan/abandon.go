package plan

import (
	"cmp"
	"slices"
	"time"

	"berth/schema"
)

// AbandonAfter is how long a node has to be lost before the deletion of a unit, or a change that takes its member away from there,
// goes on without the member, if on_node_lost of its role names no other time.
const AbandonAfter = time.Hour

// NodeState is what is known of a node from its own observation.
type NodeState struct {
	LostFor time.Duration // 0: it is not lost
	Ready   bool          // its host answers
}

// Abandoned is a member that its unit went on without, as its node was lost. Its remains are on the host until a clean has removed
// them. Until then nothing new is placed there.
type Abandoned struct {
	Member
	Since time.Time `json:"since"` // UTC
}

// abandon adds an action for each member that the unit goes on without, and reports whether there are any. The rest is planned when
// they are out.
func (m *maker) abandon() bool {
	for _, s := range m.sorted() {
		if m.isGone(s.Name) && m.hasNoPlaceFor(s) {
			m.leaveBehind(s, "its node is lost")
		}
	}
	for _, role := range m.plan.After.roles() {
		for _, s := range m.replaced(role) {
			m.leaveBehind(s, "its node is lost; it gets another one")
		}
	}
	return len(m.plan.Actions) > 0
}

func (m *maker) leaveBehind(s MemberState, reason string) {
	a := Action{Verb: Abandon, Member: s.Name, Node: s.Node, Reason: reason}
	if o, ok := (operationMaker{m}).leaving(s.Name); ok {
		a.Operation = o.action()
	}
	m.add(a, nil)
}

// replaced returns the members of a role that get another node now, by its on_node_lost. No more are on their way than its
// max_unavailable: a site that is cut off does not move as a whole.
func (m *maker) replaced(role schema.EffectiveRole) (lost []MemberState) {
	if role.OnNodeLost.ReplaceAfter() == 0 {
		return nil
	}
	onTheWay := role.Count
	for _, a := range m.plan.After.Members {
		s, isThere := m.states[a.Name]
		if a.Role != role.Name || !isThere || s.Node != a.Node || s.State == Partial || s.State == Missing {
			continue
		}
		if onTheWay--; m.isGone(a.Name) {
			lost = append(lost, s)
		}
	}
	return lost[:min(len(lost), max(0, role.MaxUnavailable.Of(role.Count)-onTheWay))]
}

// isGone reports whether the node of a worker is lost for long enough, and the scheduler has no job there.
func (m *maker) isGone(name string) bool {
	s := m.states[name]
	was, isKnown := m.plan.Before.Member(name)
	return isKnown && was.Node == s.Node && !was.ControlPlane && s.State == Unreachable && s.Scheduler == Unresponsive && !s.HasJobs &&
		m.in.Nodes[s.Node].LostFor >= m.patience(was)
}

// patience is how long the node of a member has to be lost before the unit goes on without it. An operation that has it leave does
// not wait.
func (m *maker) patience(was Member) time.Duration {
	if _, ok := (operationMaker{m}).leaving(was.Name); ok {
		return time.Nanosecond
	}
	role, isDeclared := m.plan.After.role(was.Role)
	if !isDeclared {
		role, _ = m.plan.Before.role(was.Role)
	}
	return cmp.Or(role.OnNodeLost.ReplaceAfter(), AbandonAfter)
}

// hasNoPlaceFor reports whether the desired unit has no such member on its node.
func (m *maker) hasNoPlaceFor(s MemberState) bool {
	a, isWanted := m.plan.After.Member(s.Name)
	return !isWanted || a.Node != s.Node
}

// keepOffRemains takes members out of the desired unit that would join a node with remains of an abandoned one.
func (m *maker) keepOffRemains() {
	m.plan.After.Members = slices.DeleteFunc(slices.Clone(m.plan.After.Members), func(a Member) bool {
		waits := m.at(a) == "" && slices.ContainsFunc(m.in.Abandoned, func(left Abandoned) bool { return left.Node == a.Node })
		if waits {
			m.block(CodeNoNode, true, "%s waits for another node, or until the remains on %s are removed", a.Name, a.Node)
		}
		return waits
	})
}

// clean adds an action for each abandoned member whose host answers again, once nothing else is left to do. A member that the
// runtime still has was not taken out: it leaves like any other.
func (m *maker) clean() {
	if len(m.plan.Actions) > 0 || m.in.Observed.Presence == Unknown {
		return
	}
	for _, a := range m.in.Abandoned {
		isMember := slices.ContainsFunc(m.in.Observed.Members, func(s MemberState) bool { return s.Name == a.Name && s.Node == a.Node })
		if m.in.Nodes[a.Node].Ready && !isMember {
			left := a.Member
			m.add(Action{Verb: Clean, Member: a.Name, Node: a.Node, Reason: "its node is back", Left: &left}, nil)
		}
	}
}

// IsOfLostNodes reports whether a plan only abandons members of lost nodes and cleans hosts that are back. No review shows that.
func (p *Plan) IsOfLostNodes() bool {
	return len(p.Actions) > 0 &&
		!slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Verb != Abandon && a.Verb != Clean })
}

// hasRemainsOn reports whether an abandoned member of the unit has remains on a node. A nil status has none.
func (s *Status) hasRemainsOn(node string) bool {
	return s != nil && slices.ContainsFunc(s.Abandoned, func(a Abandoned) bool { return a.Node == node })
}

// hasAbandoned reports whether the unit goes on without a member on a node. A nil status has none.
func (s *Status) hasAbandoned(name, node string) bool {
	return s != nil && slices.ContainsFunc(s.Abandoned, func(a Abandoned) bool { return a.Name == name && a.Node == node })
}
