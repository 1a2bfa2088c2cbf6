package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
)

// Input is the input for the plan of one unit.
type Input struct {
	Key      schema.Key
	After    *schema.EffectiveUnit // nil: delete the unit
	Members  []Member              // of After, as Place has it
	Unplaced []Blocked             // of After, as Place has it
	Denied   []schema.Decision     // rules that deny Key; the unit stays unchanged
	Made     bool                  // hosts had the unit when it was complete last
	Observed Observed
	// Operations are those to do, in order (Pending).
	Operations []Operation
	Abandoned  []Abandoned
	Nodes      map[string]NodeState // of observed and abandoned members, by name; what is missing is unknown
	Rules      Rules                // nil: impacts are unknown
	SkipEmpty  bool                 // an empty plan has no digests
}

// Make returns the plan that changes a unit from its observed to its desired state. The
// plan is empty if the two are equal. It has no action if the state is unknown, if
// policy denies the unit, or if the unit is suspended: none of these stops a running
// unit.
//
// The order of the actions: first, members that are removed, moved or reshaped leave.
// Then the control plane is configured, new members join and stopped members start. A
// member that waits for its jobs delays only what comes to its place. An
// unreachable host delays its own member and the deletion of the unit, nothing else. An
// unreachable control plane delays the unit.
func Make(in Input) Plan {
	m := &maker{in: in, seen: Structural(in.Observed), written: map[*Unit][]byte{},
		plan: Plan{Format: Format, Key: in.Key, Actions: []Action{}}}
	if in.Observed.Presence == Present {
		m.plan.Before = in.Observed.Unit
	}
	if in.After != nil {
		m.plan.After = &Unit{Effective: in.After.Content(), Members: slices.Clone(in.Members)}
		slices.SortFunc(m.plan.After.Members, compareMembers)
		m.keepSuspended()
	}
	m.states = map[string]MemberState{}
	for _, s := range in.Observed.Members {
		m.states[s.Name] = s
	}
	m.decide()
	operationMaker{m}.ofUnit()
	m.clean()
	if after := m.plan.After; after != nil && len(after.Members) > 0 {
		m.plan.Placed = map[string]string{}
		for _, a := range after.Members {
			m.plan.Placed[a.Name] = a.Reason
		}
	}
	if !in.SkipEmpty || !m.plan.Empty() {
		m.seal()
	}
	m.plan.Estimate(in.Observed.Jobs)
	return m.plan
}

// keepSuspended leaves suspended attachments as they were applied, with their users. One that was
// not applied is not made, and brings neither users nor nodes.
func (m *maker) keepSuspended() {
	after := &m.plan.After.Effective
	if !slices.ContainsFunc(after.Attachments, func(a schema.EffectiveAttachment) bool { return a.Suspend }) {
		return
	}
	known := map[string]schema.UnixUser{}
	before := &schema.EffectiveUnit{}
	if m.plan.Before != nil {
		before = &m.plan.Before.Effective
	}
	for _, u := range slices.Concat(before.Users, after.Users) {
		known[u.Name] = u
	}
	var kept []schema.EffectiveAttachment
	absent := map[string]bool{} // projects
	for _, a := range after.Attachments {
		i := slices.IndexFunc(before.Attachments, func(was schema.EffectiveAttachment) bool { return was.ProjectID == a.ProjectID })
		switch {
		case !a.Suspend:
			kept = append(kept, a)
		case i >= 0:
			kept = append(kept, before.Attachments[i])
		default:
			absent[a.ProjectID] = true
		}
	}
	users := map[string]bool{}
	for _, a := range kept {
		for _, name := range a.Users {
			users[name] = true
		}
	}
	after.Attachments, after.Users = kept, nil
	for _, name := range slices.Sorted(maps.Keys(users)) {
		if u, ok := known[name]; ok {
			after.Users = append(after.Users, u)
		}
	}
	after.Lent = slices.DeleteFunc(slices.Clone(after.Lent), func(l schema.LentNode) bool { return absent[l.ProjectID] })
	m.plan.After.Members = slices.DeleteFunc(m.plan.After.Members, func(a Member) bool { return a.Loan != nil && absent[a.Loan.ProjectID] })
}

// maker is the state of making one plan.
type maker struct {
	in      Input
	plan    Plan
	seen    Observed // the structural part of in.Observed
	states  map[string]MemberState
	written map[*Unit][]byte // canonical JSON of units of the plan
}

// whyCreate is the reason of the creation of a unit. One that remains on its host has lost only its record there.
func (m *maker) whyCreate() string {
	switch {
	case m.in.Observed.Remains:
		return "its record on the host is gone or damaged"
	case m.in.Key.Kind == schema.KindSharedRuntime:
		return "new shared runtime"
	}
	return "new instance"
}

// decide chooses the action on the unit.
func (m *maker) decide() {
	in := m.in
	switch {
	case len(in.Denied) > 0:
		for _, d := range in.Denied {
			m.block(CodeDenied, false, "%s (rule %s, %s)", d.Message, d.Rule, d.Source.Place())
		}
	case in.After != nil && in.After.SharedRuntime != "":
		m.view()
	case in.After != nil && in.After.Suspend:
		m.block(CodeSuspended, true, "%s; remove it to resume", Suspension(in.After.Key, in.After.SuspendedBy))
	case in.After == nil && (in.Observed.Presence == Absent || isView(in.Observed.Unit)):
		// The unit is absent, or it was a view: the shared runtime detaches its project.
	case in.Observed.Presence == Absent && in.Made && !in.Observed.Remains && !m.accepts():
		m.block(CodeLost, false, "%s", lostUnit(in.Key))
	case in.Observed.Presence == Absent:
		m.plan.Blocked = slices.Clone(in.Unplaced)
		if in.After.DesiredState != schema.DesiredStopped && m.worthMaking() {
			m.create(m.whyCreate())
		}
	case in.Observed.Presence != Present:
		reason := in.Observed.Reason
		if reason == "" {
			reason = "not observed yet"
		}
		control, _ := m.plan.After.Control()
		m.await(CodeUnknown, control.Node, "state unknown: %s", reason)
	case in.After == nil:
		m.remove()
	case in.Observed.Unit != nil && in.Observed.Unit.Effective.RuntimeBackend != in.After.RuntimeBackend:
		m.block(CodeBackend, false, "it runs on %s and cannot move to %s; delete it and create it again",
			in.Observed.Unit.Effective.RuntimeBackend, in.After.RuntimeBackend)
	case in.After.DesiredState == schema.DesiredStopped && m.mustMoveControl():
		// A unit stops on its current nodes, even on a node that is no longer allowed: a
		// stop by policy needs no other node.
		m.plan.After = &Unit{Effective: m.plan.After.Effective, Members: slices.Clone(m.plan.Before.Members)}
		m.present()
	case slices.ContainsFunc(in.Unplaced, func(b Blocked) bool { return b.Code == CodeControlPlane }):
		m.plan.Blocked = slices.Clone(in.Unplaced) // a partial creation is of no use
	default:
		m.plan.Blocked = slices.Clone(in.Unplaced)
		m.present()
	}
}

// accepts reports whether an operation accepts that the unit is lost.
func (m *maker) accepts() bool {
	return slices.ContainsFunc(m.in.Operations, func(o Operation) bool { return o.Verb() == AcceptLoss })
}

// lostUnit says that a host has lost all of a unit, and who decides what follows.
func lostUnit(key schema.Key) string {
	return fmt.Sprintf("the control host has lost %s: neither its record nor its state is there. Put its disk or its backup back, or "+
		"accept the loss with the operation accept_loss, which makes it anew without its jobs and accounting", key)
}

// isView reports whether a unit is an instance that uses a shared runtime and has no members.
func isView(u *Unit) bool {
	return u != nil && u.Effective.SharedRuntime != "" && len(u.Members) == 0
}

// view plans for an instance that uses a shared runtime, which has all actions.
func (m *maker) view() {
	was, to := m.plan.Before, m.in.After.SharedRuntime
	switch {
	case was != nil && was.Effective.SharedRuntime == "":
		m.block(CodeBackend, false, "it has members of its own and cannot use the shared runtime %s instead; delete it and create it again",
			to)
	case m.in.Observed.Presence != Present:
		m.block(CodeShared, true, "%s", cmp.Or(m.in.Observed.Reason, "the shared runtime "+to+" has not attached its project"))
	}
}

// Suspension names the document that suspends the document of key.
func Suspension(key, by schema.Key) string {
	if path, err := by.Path(); err == nil && by != key {
		return fmt.Sprintf("%s (%s) says suspend: true", by, path)
	}
	return "the document says suspend: true"
}

// mustMoveControl reports whether the control plane may not stay on its node.
func (m *maker) mustMoveControl() bool {
	was, ok := m.plan.Before.Control()
	if !ok {
		return false
	}
	now, ok := m.plan.After.Control()
	return !ok || was.Node != now.Node || was.Name != now.Name ||
		slices.ContainsFunc(m.in.Unplaced, func(b Blocked) bool { return b.Code == CodeControlPlane })
}

// worthMaking reports whether every role with members has at least one on a node. A
// unit without workers has no use.
func (m *maker) worthMaking() bool {
	for _, r := range m.plan.After.Effective.Roles {
		if r.Count > 0 && !slices.ContainsFunc(m.plan.After.Members, func(a Member) bool { return a.Role == r.Name }) {
			return false // the reason is in Unplaced
		}
	}
	return true
}

// create creates the unit, from nothing or from an incomplete creation.
func (m *maker) create(reason string) {
	after := m.plan.After
	control, ok := after.Control()
	if !ok {
		return // the reason is in Unplaced
	}
	made := m.add(Action{Verb: Create, Node: control.Node, Reason: reason}, m.canonical(after))
	left := map[string][]string{} // actions that remove members, by the node that they free
	for _, s := range m.sorted() {
		a, wanted := after.Member(s.Name)
		if m.unreachable(s.Name) || a.ControlPlane || wanted && s.Node == a.Node {
			continue
		}
		reason := "no longer declared"
		if wanted {
			reason = "moves to " + a.Node
		}
		left[s.Node] = append(left[s.Node], m.leave(s, reason, made))
	}
	for _, a := range after.Members {
		if a.ControlPlane || m.at(a) == Running || m.unreachable(a.Name) {
			continue
		}
		needs, reason := append([]string{made}, left[a.Node]...), "new member"
		switch s, ok := m.states[a.Name]; {
		case ok && s.Node != a.Node:
			needs, reason = append(needs, left[s.Node]...), "moves here from "+s.Node
		case ok:
			reason = fmt.Sprintf("is %s; to be started", s.State)
		}
		m.join(a, reason, order{needs: needs})
	}
}

// remove deletes the whole unit. It waits for unreachable hosts, because only the
// control plane records their remaining members.
func (m *maker) remove() {
	if m.plan.Before == nil {
		// The runtime observes a unit of Berth without its record, so the observed
		// members are deleted.
		u := &Unit{Effective: schema.EffectiveUnit{Key: m.in.Key}}
		for _, s := range m.sorted() {
			role, _ := splitMember(s.Name)
			u.Members = append(u.Members, Member{Name: s.Name, Role: role, Node: s.Node})
		}
		m.plan.Before = u
	}
	if m.abandon() {
		return
	}
	away := m.blockUnreachable("the deletion waits for it")
	if away {
		return
	}
	m.add(Action{Verb: Delete, Reason: "document deleted"}, m.canonical(m.plan.Before))
}

// present plans for a unit that exists.
func (m *maker) present() {
	control, ok := m.plan.After.Control()
	if !ok {
		return // the reason is in Unplaced
	}
	if was, ok := m.plan.Before.Control(); ok && (was.Node != control.Node || was.Name != control.Name) {
		m.block(CodeControlPlane, false, "the control plane is on %s and cannot move to %s; delete the instance and create it again",
			was.Node, control.Node)
		return
	}
	m.keepOffRemains()
	if m.unreachable(control.Name) {
		m.await(CodeUnreachable, control.Node, "%s on %s, the control plane, cannot be reached", control.Name, control.Node)
		return
	}
	switch _, seen := m.states[control.Name]; {
	case m.in.After.DesiredState == schema.DesiredStopped:
		m.stop()
	case !m.in.Observed.Complete:
		m.blockUnreachable("the other members are changed")
		m.create("creation continues")
	case !seen:
		m.blockUnreachable("the other members are changed")
		m.create("control plane missing")
	case m.abandon():
	default:
		m.blockUnreachable("the other members are changed")
		updateMaker{m}.update(control)
	}
}

// stop stops the running members. Other changes wait: a stopped unit accepts no
// configuration and no members.
func (m *maker) stop() {
	m.blockUnreachable("it is stopped later")
	var running []string
	for _, s := range m.sorted() {
		if s.State != Stopped && s.State != Missing && s.State != Unreachable {
			running = append(running, s.Name)
		}
	}
	if len(running) > 0 {
		m.add(Action{Verb: Stop, Reason: "to be stopped; running: " + list(running)}, nil)
	}
	if cs := m.changed(); len(cs) > 0 {
		var names []string
		for _, c := range cs {
			names = append(names, c.Field)
		}
		m.block(CodeStopped, true, "these changes wait until the instance is started: %s", list(names))
	}
}

// leaves returns why an existing member has to leave, or "".
func (m *maker) leaves(s MemberState) string {
	if s.State == Unreachable {
		return ""
	}
	a, wanted := m.plan.After.Member(s.Name)
	switch {
	case !wanted:
		if was, _ := m.plan.Before.Member(s.Name); was.Loan != nil {
			return "returns to " + was.Loan.ProjectID
		}
		return "no longer declared"
	case a.ControlPlane:
		return ""
	case s.Node != a.Node:
		return "moves to " + a.Node
	}
	if m.plan.Before != nil {
		if was, ok := m.plan.Before.Member(s.Name); ok && was.Node == a.Node && !was.HasResourcesOf(a) {
			return "resources changed"
		}
	}
	return ""
}

// applied returns the unit as the control plane has to know it before it is configured: a
// member that drains leaves without that, and is as desired.
func (m *maker) applied() *Unit {
	leaves := func(was Member) bool {
		s := m.states[was.Name]
		return s.State == Draining && m.leaves(s) != ""
	}
	if m.plan.Before == nil || !slices.ContainsFunc(m.plan.Before.Members, leaves) {
		return m.plan.Before
	}
	u := &Unit{Effective: m.plan.Before.Effective}
	for _, was := range m.plan.Before.Members {
		if !leaves(was) {
			u.Members = append(u.Members, was)
		} else if a, wanted := m.plan.After.Member(was.Name); wanted {
			u.Members = append(u.Members, a)
		}
	}
	return u
}

// changed lists the differences between the applied and the desired unit.
func (m *maker) changed() []Change {
	before := m.applied()
	cs := changes(before, m.plan.After)
	if before != nil {
		for _, a := range m.plan.After.Members {
			if was, ok := before.Member(a.Name); ok && was.Node == a.Node {
				cs = append(cs, memberChanges(was, a)...)
			}
		}
	}
	slices.SortFunc(cs, func(a, b Change) int { return strings.Compare(a.Field, b.Field) })
	return cs
}

// drifted lists the drift, such as "users on controller-0".
func (m *maker) drifted() []string {
	var out []string
	for _, d := range m.seen.Drift {
		if d.Member == "" {
			out = append(out, string(d.What))
		} else {
			out = append(out, string(d.What)+" on "+d.Member)
		}
	}
	return out
}

// blockUnreachable blocks on each unreachable member, and reports whether there are
// any.
func (m *maker) blockUnreachable(then string) bool {
	var any bool
	for _, s := range m.sorted() {
		if s.State == Unreachable {
			any = true
			m.await(CodeUnreachable, s.Node, "%s on %s cannot be reached; %s", s.Name, s.Node, then)
		}
	}
	return any
}

func (m *maker) unreachable(name string) bool { return m.states[name].State == Unreachable }

// at returns the state of a member if it is on its desired node, or "".
func (m *maker) at(a Member) State {
	if s := m.states[a.Name]; s.Node == a.Node {
		return s.State
	}
	return ""
}

// sorted returns the existing members by name.
func (m *maker) sorted() []MemberState { return m.seen.Members }

func (m *maker) join(a Member, reason string, o order) {
	m.add(Action{Verb: Join, Member: a.Name, Node: a.Node, Reason: reason, Needs: o.needs, After: o.after}, canonical(a))
}

func (m *maker) leave(s MemberState, reason string, needs ...string) string {
	return m.add(Action{Verb: Leave, Member: s.Name, Node: s.Node, Reason: reason, Needs: needs}, nil)
}

func (m *maker) start(a Member, reason string, o order) string {
	return m.add(Action{Verb: Start, Member: a.Name, Node: a.Node, Reason: reason, Needs: o.needs, After: o.after}, nil)
}

// add appends an action to the plan, after what it needs. content is canonical JSON
// that distinguishes it from another action of the same name.
func (m *maker) add(a Action, content []byte) string {
	a.Key = m.in.Key
	a.Needs, a.After = sorted(a.Needs), sorted(a.After)
	a.After = slices.DeleteFunc(a.After, func(id string) bool { return slices.Contains(a.Needs, id) })
	if m.in.Rules != nil {
		before, after := m.plan.Before, m.plan.After
		if a.Operation != nil && a.Operation.OnJobs != nil {
			before, after = drainedBy(before, a), drainedBy(after, a)
		}
		a.Impact = m.in.Rules.Impact(a.Verb, a.Member, before, after)
	}
	a.ID = actionID(a, content)
	m.plan.Actions = append(m.plan.Actions, a)
	return a.ID
}

// sorted returns ids in order and without duplicates.
func sorted(ids []string) []string { return slices.Compact(slices.Sorted(slices.Values(ids))) }

func (m *maker) block(code BlockedCode, wait bool, format string, args ...any) {
	m.plan.Blocked = append(m.plan.Blocked, Blocked{Code: code, Wait: wait, Message: fmt.Sprintf(format, args...)})
}

// await blocks until the host of a node answers.
func (m *maker) await(code BlockedCode, node, format string, args ...any) {
	m.block(code, true, format, args...)
	m.plan.Blocked[len(m.plan.Blocked)-1].Node = node
}
