package plan

import (
	"fmt"
	"slices"

	"berth/schema"
)

// Place assigns the members of every instance to nodes: a stable best fit.
//
// A member stays on its recorded node while that node is declared and offers the
// role. A node that is cordoned, not ready, reserved or reshaped takes no new members, and
// evicts none. A member that no longer fits is moved only if the instance itself
// requests something else, and only when a suitable node is free. An existing
// control plane never moves. A node that a member was only assigned to, because its
// unit does not exist yet or is stopped, is kept while it fits. No policy moves a
// member: one on a node that policy no longer allows stays until its owner requests
// another place too, and the policies decide the fate of its instance
// (Placement.Outside).
//
// A missing member takes the best suitable node by the rules of score.go, and no member
// moves for a better one. One that requests no GPUs takes a node without GPUs, if any
// fits, and no other where policy limits the GPUs of an instance. Members that share a
// node share its declared disk, of which a new member never gets more than is left: one that
// requests more moves like one that no longer fits. Units that have members choose first, then the others,
// each in order of key, so that a new instance never takes a node that a growing one
// needs. A member that is not shareable, or has GPUs, has its node alone. A node
// stays occupied while a unit is recorded on it, also during its deletion. An
// instance that shrinks loses its highest indices.
func Place(eff *schema.Effective, mem Memory) Placement { return new(Placer).Place(eff, mem) }

// unit is one instance that is placed.
type unit struct {
	*placed      // the result, allocated by itself: a kept result must not keep the estate
	*competition // nil while settle decides whether the unit takes part

	inst      *schema.EffectiveUnit
	status    *Status        // nil: the unit is not on record
	bounds    *schema.Bounds // nil: policy does not limit the nodes
	denied    bool
	nodes     map[string]*schema.Node
	misplaced map[string]Member // members that should move, by name, until they get a node
	evacuated map[string]string // nodes that operations have members leave, by member
}

func newUnit(eff *schema.Effective, p *project, key schema.Key) *unit {
	return &unit{placed: &placed{key: key}, inst: p.instance(key), status: in(p.records)[key],
		bounds: eff.Bounds(key), denied: len(eff.Denied(key)) > 0, nodes: eff.Nodes,
		evacuated: leavingNodes(eff.Operations(key), in(p.records)[key])}
}

// settle places a unit that takes no node which is not on its record, and reports
// whether it is one: it keeps all its members where they are, or needs none.
func (u *unit) settle() bool {
	if u.status == nil {
		return u.idle()
	}
	on := recordedNodes(u.status, u.inst, u.denied || u.inst.Suspend)
	stay, misplaced, assigned := u.homes()
	for _, h := range stay {
		recorded := func(n recordedNode) bool { return n.name == h.Node && (n.alone || shares(h.role)) }
		if !slices.ContainsFunc(on, recorded) {
			return false // it would take more than is on record
		}
		if h.asksElse && h.role.DiskGiB > 0 && shares(h.role) {
			return false // the disk that it requests may be another's
		}
		u.members = append(u.members, h.Member)
	}
	if len(misplaced)+len(assigned) > 0 || !u.housed() {
		return false
	}
	u.finish()
	return true
}

// finish sorts the members, and compares their nodes with policy.
func (u *unit) finish() {
	slices.SortFunc(u.members, compareMembers)
	if u.bounds != nil {
		u.outside = outside(u.bounds, u.inst, u.members, u.nodes)
	}
}

// idle reports whether the instance takes no node that another could use: it is denied,
// suspended, or not placed and desired to be stopped.
func (u *unit) idle() bool {
	return u.denied || u.inst.Suspend || u.inst.SharedRuntime != "" || u.inst.DesiredState == schema.DesiredStopped && !u.holds()
}

// home is a member on the node of its record.
type home struct {
	Member
	role     schema.EffectiveRole
	node     *schema.Node
	asksElse bool // the owner asks for another node than when the member was made
}

// homes returns the members of u with a node on record that may stay there, those that
// should move, and those that were only assigned to the node, which the unit needs
// like a new one.
func (u *unit) homes() (stay []home, misplaced map[string]Member, assigned []home) {
	if u.status == nil {
		return nil, nil, nil
	}
	misplaced = map[string]Member{}
	made, seen := applied(u.status), observed(u.status, u.key)
	own := map[string]claim{} // of members there, by node
	for role, name := range members(u.inst) {
		node, reason := u.home(role, name)
		if node == nil {
			continue
		}
		h := home{member(role, name, node, reason), role, node, made != nil && asksElse(made, u.inst, role, name)}
		if u.evacuated[name] != node.Key.Name && onlyIntended(seen, name, node.Key.Name) {
			assigned = append(assigned, h)
			continue
		}
		beside := own[node.Key.Name]
		own[node.Key.Name] = beside.plus(claimOf(role))
		switch {
		case u.evacuated[name] == node.Key.Name:
			misplaced[name] = h.Member
		case made != nil && u.shouldMove(h, made, beside):
			misplaced[name] = stays(h.Member, made, node)
		default:
			stay = append(stay, u.staying(h, made))
		}
	}
	return stay, misplaced, assigned
}

// shouldMove reports whether the owner asks for another node than that of a member, which does not fit any more.
// beside is what other members of u on the node ask for.
func (u *unit) shouldMove(h home, made *Unit, beside claim) bool {
	if u.competition != nil && h.asksElse && u.lacksDisk(h.role, h.node, beside) {
		return true
	}
	return (h.asksElse || asksAway(u.bounds, made, h.role, h.Name, h.node)) &&
		len(misfits(u.inst, h.role, h.node)) > 0 && !onlyOutside(u.bounds, made, u.inst, h.role, h.Name, h.node)
}

// staying returns a member that stays, with the GPUs that its node still has and the reason why it stays.
func (u *unit) staying(h home, made *Unit) home {
	switch {
	case lacksGPUs(h.role, h.Member) && made != nil:
		h.GPUs, h.Reason = gpusThatStay(h.Member, made, h.node, h.role.GPUs.Count), fewerGPUs
	case (h.asksElse || h.Reason == fewerGPUs) && len(misfits(u.inst, h.role, h.node)) == 0:
		h.Reason = "it is there already, and fits the node: " + wants(u.inst, h.role)
	}
	return h
}

// fewerGPUs is the reason of a member that stays on a node which lost GPUs.
const fewerGPUs = "it is there already, and the node has fewer GPUs than it asks for"

// home returns the node of a member on which it may stay, and the reason why it is
// there. The runtime's record comes before a mere assignment, and the node that an operation has
// the member leave comes last.
func (u *unit) home(role schema.EffectiveRole, name string) (*schema.Node, string) {
	var on []string
	if m, ok := applied(u.status).Member(name); ok {
		on = append(on, m.Node)
	}
	for _, m := range u.status.Members {
		if m.Name == name {
			on = append(on, m.Node)
		}
	}
	slices.SortStableFunc(on, func(a, b string) int { return u.evacuates(name, a) - u.evacuates(name, b) })
	for _, node := range on {
		n := u.nodes[node]
		if n == nil || !offers(n, role) || u.status.hasAbandoned(name, node) {
			continue
		}
		for _, m := range u.status.Members {
			if m.Name == name && m.Node == node && m.Placed != "" {
				return n, m.Placed
			}
		}
		return n, "it is there already"
	}
	return nil, ""
}

// evacuates returns 1 if an operation has a member leave a node, else 0.
func (u *unit) evacuates(name, node string) int {
	if u.evacuated[name] == node {
		return 1
	}
	return 0
}

// keep leaves the members of u where they are, if they may stay. A member that was only
// assigned to its node keeps it while it fits, after the others.
func (u *unit) keep() {
	var stay, assigned []home
	stay, u.misplaced, assigned = u.homes()
	for _, h := range stay {
		u.put(h.role, h.Member)
	}
	for _, h := range assigned {
		if len(misfits(u.inst, h.role, h.node)) == 0 && u.free(h.role, h.node) {
			u.put(h.role, h.Member)
		}
	}
}

// here returns the members of u with a node, also those that should move.
func (u *unit) here() []Member {
	all := slices.Clip(u.members)
	for name, m := range u.misplaced {
		if _, stays := (&Unit{Members: u.members}).Member(name); !stays {
			all = append(all, m)
		}
	}
	return all
}

// holds reports whether any member of u has a node.
func (u *unit) holds() bool { return len(u.members)+len(u.misplaced) > 0 }

// housed reports whether every member of u has a node and none should move.
func (u *unit) housed() bool {
	count := 0
	for range members(u.inst) {
		count++
	}
	return len(u.members) == count && len(u.misplaced) == 0
}

// fill finds nodes for the members of u that have none or should move. It returns false if there are no such members, or
// the instance needs no nodes now.
func (u *unit) fill() (tried bool) {
	if u.housed() {
		return false
	}
	isIdle := u.idle()
	mayMove := !isIdle
	if u.pinned() {
		mayMove = false
	}
	u.move(mayMove)
	if mayMove {
		u.house()
	}
	return !isIdle
}

// move finds nodes for the members of u that should move, if may allows it, and leaves
// the others in place. A member that moves makes room for the next.
func (u *unit) move(may bool) {
	for moved := may; moved; {
		moved = false
		for role, name := range members(u.inst) {
			if _, ok := u.misplaced[name]; !ok {
				continue
			}
			if node, reason := u.find(role, name); node != nil {
				u.put(role, member(role, name, node, reason))
				delete(u.misplaced, name)
				moved = true
			}
		}
	}
	for role, name := range members(u.inst) {
		old, stays := u.misplaced[name]
		if !stays {
			continue
		}
		u.put(role, old)
		switch {
		case may && u.evacuates(name, old.Node) == 1:
			u.block(CodeStays, u.freesUp(role), "%s stays on %s, which an operation has it leave, as no other node fits: %s", name,
				old.Node, u.why(role))
		case may:
			u.block(CodeStays, false, "%s stays on %s, which no longer fits, as no other node does: %s%s",
				name, old.Node, u.why(role), u.keptGPUs(role, name))
		}
	}
}

// house finds nodes for the members of u that have none.
func (u *unit) house() {
	has := map[string]bool{}
	for _, m := range u.members {
		has[m.Name] = true
	}
	for _, role := range u.inst.Roles {
		var unplaced []string
		for i := range role.Count {
			name := memberName(role.Name, i)
			if has[name] {
				continue
			}
			if node, reason := u.find(role, name); node != nil {
				u.put(role, member(role, name, node, reason))
			} else {
				unplaced = append(unplaced, name)
			}
		}
		if len(unplaced) > 0 {
			u.block(CodeNoNode, u.freesUp(role), "no node for %s: %s%s%s", list(unplaced), u.why(role), gpuAdvice(u.inst, role, u.sorted),
				u.keptGPUs(role, unplaced[len(unplaced)-1]))
		}
	}
	for role, name := range lentMembers(u.inst) {
		if !has[name] {
			u.houseLent(role, name)
		}
	}
}

// houseLent puts a member on the node that is lent for it, once nobody else uses the node.
func (u *unit) houseLent(role schema.EffectiveRole, name string) {
	node := u.nodes[role.Lent.Node]
	switch {
	case node == nil:
		u.block(CodeNoNode, false, "no node for %s: %s is not declared", name, role.Lent.Node)
	case u.refuses(node) != "":
		u.block(CodeNoNode, false, "no node for %s: policy does not allow %s of %s", name, u.refuses(node), role.Lent.Node)
	case len(misfits(u.inst, role, node)) > 0:
		u.block(CodeNoNode, false, "no node for %s: %s is %s", name, role.Lent.Node, list(misfits(u.inst, role, node)))
	case u.free(role, node):
		u.put(role, member(role, name, node, lentBy(role.Lent)))
	case u.unready[role.Lent.Node]:
		u.block(CodeNoNode, true, "no node for %s: %s is not ready", name, role.Lent.Node)
	case node.Spec.Cordoned:
		u.block(CodeNoNode, false, "no node for %s: %s is cordoned", name, role.Lent.Node)
	case reservedForOthers(node, u.key, role):
		u.block(CodeNoNode, false, "no node for %s: %s is not reserved for %s", name, role.Lent.Node, role.Lent.ProjectID)
	default:
		by := "another member"
		if key, ok := u.takenBy(role.Lent.Node, u.key, true); ok {
			by = u.whose(key)
		}
		u.block(CodeNoNode, true, "no node for %s: %s is taken by %s", name, role.Lent.Node, by)
	}
}

// lentBy is the reason of a member on a lent node.
func lentBy(l *schema.LentNode) string {
	if l.Until != "" {
		return "lent by " + l.ProjectID + " until " + l.Until
	}
	return "lent by " + l.ProjectID
}

// refuses returns what policy does not allow of a node; "": it allows the node.
func (u *unit) refuses(n *schema.Node) string {
	if u.bounds == nil {
		return ""
	}
	if _, no := refused(u.bounds.Regions, n.Spec.Region); no {
		return "the region " + n.Spec.Region
	}
	if _, no := refused(u.bounds.SKUs, n.Spec.SKU); no {
		return "the SKU " + n.Spec.SKU
	}
	return ""
}

// pinned reports that the existing control plane of u does not fit its node, and adds
// the reason. The unit then gets no other placement.
func (u *unit) pinned() bool {
	was, ok := applied(u.status).Control()
	if !ok {
		return false
	}
	for _, role := range u.inst.Roles {
		if !role.ControlPlane {
			continue
		}
		name := memberName(role.Name, 0)
		if old, stays := u.misplaced[name]; stays {
			u.block(CodeControlPlane, false,
				"%s is on %s, which is %s; a control plane cannot move: ask for what the node is, or delete the instance and create it "+
					"again",
				name, old.Node, list(u.misfitsOfMoving(role, u.nodes[old.Node])))
			return true
		}
		if _, kept := (&Unit{Members: u.members}).Member(name); !kept {
			u.block(CodeControlPlane, false,
				"the control plane is on %s, which is no longer declared or no longer offers role %s; a control plane cannot move: "+
					"declare the node again, or delete the instance",
				was.Node, role.NodeRole)
			return true
		}
	}
	return false
}

// free reports whether no other member keeps a new member of role off n.
func (u *unit) free(role schema.EffectiveRole, n *schema.Node) bool {
	return !n.Spec.Cordoned && !u.unready[n.Key.Name] && !u.status.hasRemainsOn(n.Key.Name) && !u.isLentAway(n) &&
		!reservedForOthers(n, u.key, role) && !u.taken(n.Key.Name, u.key, !shares(role)) &&
		!u.ownTaken(role, n) && u.hasDisk(role, n)
}

// isLentAway reports whether a project lends n to another unit: no new member goes there.
func (u *unit) isLentAway(n *schema.Node) bool {
	to, ok := u.lent[n.Key.Name]
	return ok && to != u.key
}

// ownTaken reports whether another member of u keeps a member of role off n: the two
// have the same role, or one of them needs the node alone.
func (u *unit) ownTaken(role schema.EffectiveRole, n *schema.Node) bool {
	return slices.ContainsFunc(u.here(), func(m Member) bool {
		r, ok := roleOf(u.inst, m.Role)
		return m.Node == n.Key.Name && (m.Role == role.Name || m.Loan != nil || !shares(role) || !ok || !shares(r))
	})
}

func (u *unit) put(role schema.EffectiveRole, m Member) {
	u.members = append(u.members, m)
	is := share{!shares(role), claimOf(role)}
	if !is.alone {
		is.claim = u.claimed(m.Node)
	}
	u.occupy(m.Node, occupant{u.key, is})
}

func (u *unit) block(code BlockedCode, wait bool, format string, args ...any) {
	u.blocked = append(u.blocked, Blocked{Code: code, Message: fmt.Sprintf(format, args...), Wait: wait})
}
