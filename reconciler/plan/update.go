package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// updateMaker plans the change of a complete unit that should run.
type updateMaker struct{ *maker }

// update changes a complete unit that should run.
func (m updateMaker) update(control Member) {
	m.hold()
	m.limitUnavailable()
	var ready []string // actions that start the control plane; all others need them
	switch m.states[control.Name].State {
	case Stopped:
		ready = append(ready, m.start(control, "stopped; to be started", order{}))
	case Hung:
		ready = append(ready, m.start(control, "runs and does not answer; to be restarted if that lasts", order{}))
	case Partial:
		ready = append(ready, m.start(control, "start incomplete", order{}))
	}

	// Existing members that cannot stay unchanged.
	var left []string
	for _, s := range m.sorted() {
		if reason := m.leaves(s); reason != "" {
			left = append(left, m.leave(s, reason, append(operationMaker(m).evacuate(s, ready), ready...)...))
		}
	}

	// The control plane takes the new values and the new members. It goes before members that
	// still wait for the end of their jobs.
	before := order{needs: ready, after: left}
	if cs, why := m.reason(); why != "" {
		configure := Action{Verb: Configure, Node: control.Node, Changes: cs, Reason: why, Needs: ready, After: left}
		before.after = []string{m.add(configure, canonical(m.drifted()))}
	}
	m.bring(before)
	operationMaker(m).operate(ready)
}

// bring joins and starts the members that should run and do not, after the actions of
// before. A join also needs the leave of the member itself and of one on its node.
func (m updateMaker) bring(before order) {
	configured := slices.ContainsFunc(m.plan.Actions, func(a Action) bool { return a.Verb == Configure })
	for _, a := range m.plan.After.Members {
		s, seen := m.states[a.Name]
		o := before
		for _, l := range m.plan.Actions {
			if l.Verb == Leave && (l.Member == a.Name || l.Node == a.Node) {
				o = o.alsoNeeds(l.ID)
			}
		}
		switch {
		case a.ControlPlane || seen && s.State == Unreachable:
		case !seen:
			m.join(a, "new member", o)
		case m.leaves(s) == "":
			m.bringBack(a, s, o)
		case s.Node != a.Node:
			m.join(a, "moves here from "+s.Node, o)
		case s.State != Draining || configured:
			m.join(a, m.whyReturns(a), o)
		default:
			// The control plane learns its new resources when it has left; it joins after that.
		}
	}
}

// bringBack joins or starts a member that stays, if its state asks for it.
func (m updateMaker) bringBack(a Member, s MemberState, o order) {
	switch s.State {
	case Missing:
		m.block(CodeMissing, true, "%s on %s is missing: %s", a.Name, a.Node, cmp.Or(s.Detail, "its host has nothing of it; Berth makes it "+
			"again after the missing_grace_seconds of its role, or after an operation retry"))
	case Partial:
		m.join(a, "join incomplete", o)
	case Draining: // drained by Berth for an earlier leave or stop
		m.join(a, "was leaving, and now stays", o)
	case Stopped:
		m.start(a, "stopped; to be started", o)
	case Hung:
		m.start(a, "runs and does not answer; to be restarted if that lasts", o)
	}
}

// whyReturns returns the reason of a join of a member that leaves its node for other resources there.
func (m updateMaker) whyReturns(a Member) string {
	role, ok := m.plan.After.role(a.Role)
	switch {
	case !ok || !lacksGPUs(role, a):
		return "returns with its new resources"
	case len(a.GPUs) == 0:
		return fmt.Sprintf("returns without the %s that it asks for, as its node has none", gpus(*role.GPUs))
	}
	return fmt.Sprintf("returns with fewer GPUs than the %s that it asks for, as its node has no more", gpus(*role.GPUs))
}

// order names the actions that come before another one.
type order struct {
	needs, after []string // as in Action
}

func (o order) alsoNeeds(id string) order {
	return order{needs: append(slices.Clone(o.needs), id), after: o.after}
}

// hold keeps unreachable members that should leave in the applied unit. Otherwise their
// remains would be forgotten. A new member that needs the node of one alone is not part of it yet.
func (m updateMaker) hold() {
	if m.plan.Before == nil || !slices.ContainsFunc(m.sorted(), func(s MemberState) bool { return s.State == Unreachable }) {
		return
	}
	var members []Member
	for _, a := range m.plan.After.Members {
		if was, ok := m.plan.Before.Member(a.Name); ok && m.unreachable(a.Name) && (was.Node != a.Node || !was.HasResourcesOf(a)) {
			was.Reason = "cannot be reached; removed when it can"
			a = was
		}
		members = append(members, a)
	}
	for _, was := range m.plan.Before.Members {
		if _, wanted := m.plan.After.Member(was.Name); !wanted && m.unreachable(was.Name) {
			was.Reason = "cannot be reached; removed when it can"
			members = append(members, was)
		}
	}
	members = slices.DeleteFunc(members, func(a Member) bool {
		return slices.ContainsFunc(members, func(held Member) bool { return m.waitsFor(a, held) })
	})
	slices.SortFunc(members, compareMembers)
	m.plan.After = &Unit{Effective: m.plan.After.Effective, Members: members}
}

// waitsFor reports whether a member that is not on its node yet cannot join there beside an unreachable one.
func (m updateMaker) waitsFor(a, held Member) bool {
	s, isThere := m.states[a.Name]
	if a.Name == held.Name || a.Node != held.Node || !m.unreachable(held.Name) || isThere && s.Node == a.Node {
		return false
	}
	mine, isKnown := m.plan.After.role(a.Role)
	others, wasKnown := m.plan.Before.role(held.Role)
	return !isKnown || !wasKnown || !shares(mine) || !shares(others)
}

// reason returns the changes of the control plane and their reason; "" if there are
// none.
func (m updateMaker) reason() ([]Change, string) {
	cs := m.changed()
	var why []string
	switch {
	case m.plan.Before == nil:
		why = append(why, "no record of the applied configuration")
	case len(cs) > 0:
		why = append(why, "configuration changed")
	}
	if drift := m.drifted(); len(drift) > 0 {
		why = append(why, "drift from the applied configuration: "+list(drift))
	}
	return cs, strings.Join(why, "; ")
}
