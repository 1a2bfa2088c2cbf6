package plan

import (
	"slices"

	"berth/schema"
)

// limitUnavailable lets only so many members of each role leave and come back that at most
// its max_unavailable are not running. The others stay as they are until a later plan.
// Not counted: a member that is removed for good, one of a stop, and one that waits for the node of a member that leaves now.
func (m updateMaker) limitUnavailable() {
	if m.plan.Before == nil {
		return
	}
	waiting := map[string]bool{}
	for _, role := range m.plan.After.Effective.Roles {
		if !role.ControlPlane {
			m.limitRole(role, waiting)
		}
	}
	m.keepWaiting(waiting)
}

// limitRole adds the members of a role that have to wait to waiting.
func (m updateMaker) limitRole(role schema.EffectiveRole, waiting map[string]bool) {
	var away []string // declared and not running
	var next []Member // running, and would leave and come back
	count := 0
	for _, a := range m.plan.After.Members {
		s, seen := m.states[a.Name]
		_, known := m.plan.Before.Member(a.Name)
		switch {
		case a.Role != role.Name:
			continue
		case seen && m.isGone(a.Name): // no change brings it back
		case !seen || !known || s.State != Running:
			away = append(away, a.Name)
		case m.leaves(s) != "":
			next = append(next, a)
		}
		count++
	}
	for len(next) > 0 {
		i := m.firstToLeave(next, away)
		node := m.states[next[i].Name].Node
		others := slices.DeleteFunc(slices.Clone(away), func(name string) bool { return m.awaits(name, node) })
		if len(others) >= role.MaxUnavailable.Of(count) {
			break
		}
		away, next = append(others, next[i].Name), slices.Delete(next, i, i+1)
	}
	if len(next) == 0 {
		return
	}
	var names []string
	for _, a := range next {
		waiting[a.Name] = true
		names = append(names, a.Name)
		s := m.states[a.Name]
		later := Action{Verb: Leave, Key: m.in.Key, Member: a.Name, Node: s.Node, Reason: m.leaves(s)}
		if m.in.Rules != nil {
			later.Impact = m.in.Rules.Impact(Leave, a.Name, m.plan.Before, m.plan.After)
		}
		later.ID = actionID(later, nil)
		m.plan.Later = append(m.plan.Later, later)
	}
	m.block(CodeUnavailable, true, "%s %s until %s %s again (max_unavailable of role %s is %s)",
		list(names), plural(len(names), "keeps its node and resources", "keep their nodes and resources"),
		list(away), plural(len(away), "runs", "run"), role.Name, role.MaxUnavailable)
}

// awaits reports whether a member that is nowhere is to come to a node.
func (m updateMaker) awaits(name, node string) bool {
	a, _ := m.plan.After.Member(name)
	return m.at(a) == "" && a.Node == node
}

// firstToLeave returns the index of the member that leaves first: one whose node a member awaits, else one whose new node is free. A
// node whose member leaves later is no place yet.
func (m updateMaker) firstToLeave(next []Member, away []string) int {
	i := slices.IndexFunc(next, func(a Member) bool {
		return slices.ContainsFunc(away, func(name string) bool { return m.awaits(name, m.states[a.Name].Node) })
	})
	if i < 0 {
		i = slices.IndexFunc(next, func(a Member) bool {
			return !slices.ContainsFunc(next, func(b Member) bool { return b.Name != a.Name && m.states[b.Name].Node == a.Node })
		})
	}
	return max(i, 0)
}

// keepWaiting keeps members that wait as they are, and other members off their nodes.
func (m updateMaker) keepWaiting(waiting map[string]bool) {
	for again := len(waiting) > 0; again; {
		again = false
		taken := map[string]string{} // node: member that waits there
		for name := range waiting {
			taken[m.states[name].Node] = name
		}
		var members []Member
		for _, a := range m.plan.After.Members {
			was, known := m.plan.Before.Member(a.Name)
			by := taken[a.Node]
			switch {
			case waiting[a.Name] && known:
				was.Reason, was.Misfit = a.Reason, was.Misfit || was.Node != a.Node
				a = was
			case by != "" && by != a.Name && known && m.states[a.Name].State == Running:
				waiting[a.Name], again = true, true
			case by != "" && by != a.Name:
				continue // it comes when the node is free
			}
			members = append(members, a)
		}
		m.plan.After = &Unit{Effective: m.plan.After.Effective, Members: members}
	}
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
