package plan

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"berth/schema"
)

// The codes of Blocked from Place.
const (
	CodeNoNode       = "place.no_node"       // no node fits a missing member
	CodeStays        = "place.stays"         // a member no longer fits, and no better node is free
	CodeControlPlane = "place.control_plane" // the control plane would have to move, which no runtime supports
)

// Place assigns the members of every instance to nodes: a stable first fit.
//
// A member stays on its recorded node while that node is declared and offers the
// role. A node that is cordoned, reserved or reshaped takes no new members, and
// evicts none. A member that no longer fits is moved only if the instance itself
// requests something else, and only when a suitable node is free. An existing
// control plane never moves. A node that a member was only assigned to, because its
// unit does not exist yet or is stopped, is kept while it fits. No policy moves a
// member: one on a node that policy no longer allows stays until its owner requests
// another place too, and the policies decide the fate of its instance
// (Placement.Outside).
//
// A missing member takes the first suitable node in order of name. One that requests
// no GPUs takes a node without GPUs, if any fits, and no other where policy limits
// the GPUs of an instance. Units that have members choose first, then the others,
// each in order of key, so that a new instance never takes a node that a growing one
// needs. A member that is not shareable, or has GPUs, has its node alone. A node
// stays occupied while a unit is recorded on it, also during its deletion. An
// instance that shrinks loses its highest indices.
func Place(eff *schema.Effective, mem Memory) Placement { return new(Placer).Place(eff, mem) }

// Placer places one estate repeatedly. Its result is always that of Place; only the cost
// depends on earlier calls. The cost is that of the units whose declaration or record
// changed since the last call, of units on changed nodes, and of units whose assignment
// depends on other units.
type Placer struct {
	mu    sync.Mutex
	eff   *schema.Effective
	mem   Memory
	out   Placement // result for eff and mem
	whole bool      // whether the fields below match out; false before and during a call

	nodes []*schema.Node // sorted by name
	on    map[string]*occupants
	// suitable has the nodes that match the requirements of a role, by requirements,
	// because thousands of instances have few different requirements.
	suitable map[string][]*schema.Node
	// dependent has the instances whose assignment depends on other units, or differs
	// from their recorded nodes. All other instances stay on their recorded nodes, for
	// any order of units.
	dependent map[schema.Key]bool

	placing map[schema.Key]*placed // units being placed; nil: the unit is gone
	// misplaced has the members that should move, by unit and name, until they get a node.
	misplaced map[schema.Key]map[string]Member
	rests     bool // the current unit does not depend on others so far
}

// maxSuitable limits the remembered requirements.
const maxSuitable = 1000

// occupants are the units on a node: true for a unit that has the node alone.
type occupants struct {
	units map[schema.Key]bool
	alone int // number of units that have the node alone
}

// Place is the function Place, with the results of earlier calls reused.
func (p *Placer) Place(eff *schema.Effective, mem Memory) Placement {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.whole {
		p.eff, p.mem, p.out, p.nodes, p.dependent = nil, Memory{}, Placement{}, nil, nil
		p.on, p.suitable = map[string]*occupants{}, map[string][]*schema.Node{}
	}
	p.whole = false
	keys := p.turn(eff, mem)
	p.placing, p.misplaced, p.dependent = make(map[schema.Key]*placed, len(keys)), map[schema.Key]map[string]Member{}, map[schema.Key]bool{}
	var holding, fresh []schema.Key
	for _, key := range keys {
		if eff.Instance(key) == nil {
			p.placing[key] = nil
			continue
		}
		p.placing[key] = &placed{key: key}
		p.watch(key, p.keep)
		if p.holds(key) {
			holding = append(holding, key)
		} else {
			fresh = append(fresh, key)
		}
	}
	for _, key := range append(holding, fresh...) {
		p.watch(key, p.fill)
		if b := eff.Bounds(key); b != nil {
			p.placing[key].outside = outside(b, eff.Instance(key), p.placing[key].members, eff.Nodes)
		}
	}
	p.out = p.out.with(p.placing)
	p.placing, p.misplaced, p.whole = nil, nil, true
	return p.out
}

// watch runs one step for a unit, and records whether its assignment depends on others.
func (p *Placer) watch(key schema.Key, step func(schema.Key)) {
	p.rests = true
	if step(key); !p.rests {
		p.dependent[key] = true
	}
}

// turn takes the next input, and returns the units to place again, sorted. They occupy
// their recorded nodes, as all others do.
func (p *Placer) turn(eff *schema.Effective, mem Memory) []schema.Key {
	again := p.dependent
	if again == nil {
		again = map[schema.Key]bool{}
	}
	for key := range schema.Differing(p.eff, eff) {
		if p.eff == nil || !asksSame(p.eff.Instance(key), eff.Instance(key)) || !sameBounds(p.eff.Bounds(key), eff.Bounds(key)) || len(p.eff.Denied(key)) > 0 != (len(eff.Denied(key)) > 0) {
			again[key] = true
		}
	}
	for key := range ChangedMemory(p.mem, mem) {
		again[key] = true
	}
	nodes := changedNodes(p.eff, eff)
	for _, name := range nodes {
		if o := p.on[name]; o != nil {
			for key := range o.units {
				again[key] = true
			}
		}
	}
	if p.nodes == nil || len(nodes) > 0 {
		p.nodes = slices.SortedFunc(maps.Values(eff.Nodes), func(a, b *schema.Node) int { return cmp.Compare(a.Key.Name, b.Key.Name) })
		clear(p.suitable)
	}
	keys := slices.SortedFunc(maps.Keys(again), schema.Key.Compare)
	for _, key := range keys {
		p.lift(key)
	}
	p.eff, p.mem = eff, mem
	for _, key := range keys {
		if st := mem.Get(key); st != nil {
			p.remember(key, st)
		}
	}
	return keys
}

// asksSame reports whether two instances have the same requirements. It names every
// field that placement uses.
func asksSame(a, b *schema.EffectiveInstance) bool {
	return a != nil && b != nil && a.Suspend == b.Suspend && a.DesiredState == b.DesiredState &&
		slices.Equal(a.Regions, b.Regions) && reflect.DeepEqual(a.Roles, b.Roles)
}

// changedNodes returns the names of the nodes that differ. before may be nil.
func changedNodes(before, after *schema.Effective) []string {
	var was map[string]*schema.Node
	if before != nil {
		was = before.Nodes
	}
	if reflect.ValueOf(was).Pointer() == reflect.ValueOf(after.Nodes).Pointer() {
		return nil // the same map, and maps never change
	}
	var names []string
	for name, n := range after.Nodes {
		if o := was[name]; o != n && (o == nil || !reflect.DeepEqual(o.Spec, n.Spec)) {
			names = append(names, name)
		}
	}
	for name := range was {
		if after.Nodes[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

// lift removes a unit from all nodes.
func (p *Placer) lift(key schema.Key) {
	off := func(node string) {
		o := p.on[node]
		if o == nil {
			return
		}
		if o.units[key] {
			o.alone--
		}
		if delete(o.units, key); len(o.units) == 0 {
			delete(p.on, node)
		}
	}
	for _, m := range p.out.Members(key) {
		off(m.Node)
	}
	st := p.mem.Get(key)
	if st == nil {
		return
	}
	for _, m := range st.Members {
		off(m.Node)
	}
	if unit := applied(st); unit != nil {
		for _, m := range unit.Members {
			off(m.Node)
		}
	}
	if st.Observed != nil {
		for _, m := range st.Observed.Members {
			off(m.Node)
		}
	}
}

// remember marks the recorded nodes of a unit as occupied. The role of a member
// decides whether it shares its node; if the role is unknown, only control planes
// share.
func (p *Placer) remember(key schema.Key, st *Status) {
	if st.Phase == PhaseDeleted {
		return
	}
	unit := applied(st)
	shared := func(role string, controlPlane bool) bool {
		if unit != nil {
			for _, r := range unit.Instance.Roles {
				if r.Name == role {
					return shares(r)
				}
			}
		}
		if inst := p.eff.Instance(key); inst != nil {
			for _, r := range inst.Roles {
				if r.Name == role {
					return shares(r)
				}
			}
		}
		return controlPlane
	}
	// A member usually has three records of the same node.
	type place struct {
		node  string
		alone bool
	}
	var said []place
	mark := func(node, role string, controlPlane bool) {
		is := place{node, !shared(role, controlPlane)}
		if !slices.Contains(said, is) {
			said = append(said, is)
			p.occupy(is.node, key, is.alone)
		}
	}
	for _, m := range st.Members {
		mark(m.Node, m.Role, m.ControlPlane)
	}
	if unit != nil {
		for _, m := range unit.Members {
			mark(m.Node, m.Role, m.ControlPlane)
		}
	}
	if st.Observed != nil {
		for _, m := range st.Observed.Members {
			role, _ := splitMember(m.Name)
			mark(m.Node, role, false)
		}
	}
}

// occupy puts a unit on a node, and reports whether that affects other units.
func (p *Placer) occupy(node string, key schema.Key, exclusive bool) bool {
	o := p.on[node]
	if o == nil {
		o = &occupants{units: map[schema.Key]bool{}}
		p.on[node] = o
	}
	was, there := o.units[key]
	if exclusive && !was {
		o.alone++
	}
	if there && (was || !exclusive) {
		return false
	}
	o.units[key] = exclusive
	return true
}

// taken reports whether another unit keeps a member of key off a node.
func (p *Placer) taken(node string, key schema.Key, exclusive bool) bool {
	p.rests = false
	o := p.on[node]
	if o == nil || !exclusive && o.alone == 0 {
		return false
	}
	alone, there := o.units[key]
	others, othersAlone := len(o.units), o.alone
	if there {
		others--
	}
	if alone {
		othersAlone--
	}
	return othersAlone > 0 || exclusive && others > 0
}

// takenBy returns the first of those units.
func (p *Placer) takenBy(node string, key schema.Key, exclusive bool) (schema.Key, bool) {
	var by schema.Key
	if !p.taken(node, key, exclusive) {
		return by, false
	}
	for k, alone := range p.on[node].units {
		if k != key && (exclusive || alone) && (by.IsZero() || k.Compare(by) < 0) {
			by = k
		}
	}
	return by, true
}

// keep leaves the members of key where they are, if they may stay. A member that was
// only assigned keeps its node like a new one: while it fits, and after the unit's
// existing members.
func (p *Placer) keep(key schema.Key) {
	inst, st := p.eff.Instance(key), p.mem.Get(key)
	if st == nil {
		return
	}
	if st.Phase == PhaseDeleted {
		p.rests = false // the member has no node yet
	}
	unit, seen := applied(st), p.mem.observed(key)
	for _, intention := range []bool{false, true} {
		for role, name := range members(inst) {
			node, reason := p.home(st, role, name)
			if node == nil || onlyIntended(seen, name, node.Key.Name) != intention {
				continue
			}
			m := member(role, name, node, reason)
			switch {
			case intention && !p.fits(key, inst, role, node):
				// The member is only assigned to this node, which no longer fits.
			case !intention && unit != nil && (asksElse(unit, inst, role, name) || asksAway(p.eff.Bounds(key), unit, role, name, node)) &&
				len(misfits(inst, role, node)) > 0 && !onlyOutside(p.eff.Bounds(key), unit, inst, role, name, node):
				if p.misplaced[key] == nil {
					p.misplaced[key] = map[string]Member{}
				}
				p.misplaced[key][name] = stay(m, unit, node)
			default:
				p.put(key, role, m)
			}
		}
	}
}

// holds reports whether any member of key has a node.
func (p *Placer) holds(key schema.Key) bool {
	return len(p.placing[key].members) > 0 || len(p.misplaced[key]) > 0
}

// home returns the node of a member on which it may stay. The runtime's record comes
// before a mere assignment.
func (p *Placer) home(st *Status, role schema.EffectiveRole, name string) (*schema.Node, string) {
	may := func(node string) *schema.Node {
		if n := p.eff.Nodes[node]; n != nil && offers(n, role) {
			return n
		}
		return nil
	}
	reason := func(node string) string {
		for _, m := range st.Members {
			if m.Name == name && m.Node == node && m.Placed != "" {
				return m.Placed
			}
		}
		return "it is there already"
	}
	if unit := applied(st); unit != nil {
		for _, m := range unit.Members {
			if n := may(m.Node); m.Name == name && n != nil {
				return n, reason(m.Node)
			}
		}
	}
	for _, m := range st.Members {
		if n := may(m.Node); m.Name == name && n != nil {
			return n, reason(m.Node)
		}
	}
	return nil, ""
}

// fill finds nodes for the members of key that have none or should move.
func (p *Placer) fill(key schema.Key) {
	inst := p.eff.Instance(key)
	if p.housed(key, inst) {
		slices.SortFunc(p.placing[key].members, compareMembers)
		return
	}
	// An instance takes no node that another could use while it is denied, suspended, or
	// not placed and desired to be stopped.
	idle := len(p.eff.Denied(key)) > 0 || inst.Suspend ||
		inst.DesiredState == schema.DesiredStopped && !p.holds(key)
	pinned := p.pinned(key, inst)
	p.move(key, !idle && !pinned)
	if !idle && !pinned {
		p.house(key)
	}
	slices.SortFunc(p.placing[key].members, compareMembers)
}

// housed reports whether every member of key has a node and none should move.
func (p *Placer) housed(key schema.Key, inst *schema.EffectiveInstance) bool {
	count := 0
	for _, r := range inst.Roles {
		count += r.Count
	}
	return len(p.placing[key].members) == count && len(p.misplaced[key]) == 0
}

// move finds nodes for the members of key that should move, if may allows it, and leaves
// the others in place. A member that moves makes room for the next.
func (p *Placer) move(key schema.Key, may bool) {
	inst, misplaced := p.eff.Instance(key), p.misplaced[key]
	for moved := may; moved; {
		moved = false
		for role, name := range members(inst) {
			if _, ok := misplaced[name]; !ok {
				continue
			}
			if node, reason := p.find(key, inst, role, name); node != nil {
				p.put(key, role, member(role, name, node, reason))
				delete(misplaced, name)
				moved = true
			}
		}
	}
	for role, name := range members(inst) {
		old, stays := misplaced[name]
		if !stays {
			continue
		}
		p.put(key, role, old)
		if may {
			p.block(key, CodeStays, false, fmt.Sprintf("%s stays on %s, which no longer fits, as no other node does: %s%s",
				name, old.Node, p.why(key, inst, role), p.keptGPUs(key, inst, role, name)))
		}
	}
}

// house finds nodes for the members of key that have none.
func (p *Placer) house(key schema.Key) {
	inst, has := p.eff.Instance(key), map[string]bool{}
	for _, m := range p.placing[key].members {
		has[m.Name] = true
	}
	for _, role := range inst.Roles {
		var unplaced []string
		for i := range role.Count {
			name := memberName(role.Name, i)
			if has[name] {
				continue
			}
			if node, reason := p.find(key, inst, role, name); node != nil {
				p.put(key, role, member(role, name, node, reason))
			} else {
				unplaced = append(unplaced, name)
			}
		}
		if len(unplaced) > 0 {
			p.block(key, CodeNoNode, p.freesUp(key, inst, role), fmt.Sprintf("no node for %s: %s%s%s", list(unplaced), p.why(key, inst, role), p.gpuAdvice(inst, role), p.keptGPUs(key, inst, role, unplaced[len(unplaced)-1])))
		}
	}
}

// gpuAdvice returns the next step if nodes fail only because of GPUs that a role does
// not request; "" otherwise.
func (p *Placer) gpuAdvice(inst *schema.EffectiveInstance, role schema.EffectiveRole) string {
	if !slices.ContainsFunc(p.nodes, func(n *schema.Node) bool { return slices.Equal(misfits(inst, role, n), []string{withGPUs}) }) {
		return ""
	}
	return "; policy bounds the GPUs of an instance (max_gpus_per_instance), so nodes with some are for who asks for them: ask for gpus, or declare a node without"
}

// keptGPUs names the members of key that keep GPUs which they no longer request. No
// limit counts these GPUs, so a new member of role with GPUs would exceed the limit. It
// returns "" without such a member.
func (p *Placer) keptGPUs(key schema.Key, inst *schema.EffectiveInstance, role schema.EffectiveRole, name string) string {
	b := p.eff.Bounds(key)
	if b == nil || b.GPUs == nil || role.GPUs == nil || len(p.misplaced[key]) == 0 {
		return "" // the GPUs of all other members match their requests
	}
	has := map[string]int{}
	for _, m := range slices.Concat(p.placing[key].members, slices.Collect(maps.Values(p.misplaced[key]))) {
		has[m.Name] = 0 // a member that stays is in both lists
		for _, g := range m.GPUs {
			has[m.Name] += g.Count
		}
	}
	has[name] = role.GPUs.Count
	sum, keep := 0, []string{}
	for r, m := range members(inst) {
		if sum += has[m]; has[m] > 0 && (r.GPUs == nil || has[m] > r.GPUs.Count) {
			keep = append(keep, m)
		}
	}
	if sum <= b.MaxGPUs || len(keep) == 0 {
		return ""
	}
	return fmt.Sprintf("; policy allows %d GPUs together (max_gpus_per_instance), with those that %s still has and no longer asks for", b.MaxGPUs, list(keep))
}

// pinned reports that the existing control plane of key does not fit its node, and adds
// the reason. The unit then gets no other placement.
func (p *Placer) pinned(key schema.Key, inst *schema.EffectiveInstance) bool {
	unit := applied(p.mem.Get(key))
	was, ok := unit.Control()
	if !ok {
		return false
	}
	for _, role := range inst.Roles {
		if !role.ControlPlane {
			continue
		}
		name := memberName(role.Name, 0)
		if old, stays := p.misplaced[key][name]; stays {
			p.block(key, CodeControlPlane, false, fmt.Sprintf(
				"%s is on %s, which is %s; a control plane cannot move: ask for what the node is, or delete the instance and make it anew",
				name, old.Node, list(misfits(inst, role, p.eff.Nodes[old.Node]))))
			return true
		}
		if _, kept := (&Unit{Members: p.placing[key].members}).Member(name); !kept {
			p.block(key, CodeControlPlane, false, fmt.Sprintf(
				"the control plane is on %s, which is no longer declared or no longer offers role %s; a control plane cannot move: declare the node again, or delete the instance",
				was.Node, role.NodeRole))
			return true
		}
	}
	return false
}

// find returns the first node that fits a new member, and the reason for this choice.
func (p *Placer) find(key schema.Key, inst *schema.EffectiveInstance, role schema.EffectiveRole, name string) (*schema.Node, string) {
	p.rests = false
	if p.keptGPUs(key, inst, role, name) != "" {
		return nil, ""
	}
	var first *schema.Node
	var fitting, passed int
	var examples []string
	what := wants(inst, role)
	for _, n := range p.suits(what, inst, role) {
		if p.free(key, role, n) {
			fitting++
			if first == nil {
				first = n
			}
			continue
		}
		// The reason names no unit on a node that is reserved for others.
		if first != nil || reservedForOthers(n, key) || !p.taken(n.Key.Name, key, !shares(role)) {
			continue
		}
		if passed++; passed <= 2 {
			by, _ := p.takenBy(n.Key.Name, key, !shares(role))
			whose := unitName(by)
			if by.Tenant != key.Tenant {
				whose = "another tenant" // a tenant must not learn another tenant's units
			}
			examples = append(examples, n.Key.Name+" is taken by "+whose)
		}
	}
	if first == nil {
		return nil, ""
	}
	reason := fmt.Sprintf("the first of %d free nodes with %s", fitting, what)
	if fitting == 1 {
		reason = "the one free node with " + what
	}
	if passed > 2 {
		examples = append(examples, fmt.Sprintf("%d more are taken", passed-2))
	}
	if len(examples) > 0 {
		reason += "; " + strings.Join(examples, ", ")
	}
	return first, reason
}

// suits returns the nodes that meet the requirements of a role, sorted by name.
func (p *Placer) suits(what string, inst *schema.EffectiveInstance, role schema.EffectiveRole) []*schema.Node {
	if role.GPUs != nil {
		what += " " + role.GPUs.Type // the text does not distinguish any type from a type called gpu
	}
	ns, ok := p.suitable[what]
	if !ok {
		if len(p.suitable) >= maxSuitable {
			clear(p.suitable)
		}
		for _, n := range p.nodes {
			if len(misfits(inst, role, n)) == 0 {
				ns = append(ns, n)
			}
		}
		if role.GPUs == nil { // roles with GPUs need them more
			slices.SortStableFunc(ns, func(a, b *schema.Node) int {
				return cmp.Compare(min(len(a.Spec.Capacity.GPUs), 1), min(len(b.Spec.Capacity.GPUs), 1))
			})
		}
		p.suitable[what] = ns
	}
	return ns
}

// fits reports whether a new member of role may use n.
func (p *Placer) fits(key schema.Key, inst *schema.EffectiveInstance, role schema.EffectiveRole, n *schema.Node) bool {
	return len(misfits(inst, role, n)) == 0 && p.free(key, role, n)
}

// free reports whether no other member keeps a new member of role off n.
func (p *Placer) free(key schema.Key, role schema.EffectiveRole, n *schema.Node) bool {
	return !n.Spec.Cordoned && !reservedForOthers(n, key) && !p.taken(n.Key.Name, key, !shares(role)) && !p.ownTaken(key, role, n)
}

// ownTaken reports whether another member of the same unit keeps a member of role off n:
// the two have the same role, or one of them needs the node alone.
func (p *Placer) ownTaken(key schema.Key, role schema.EffectiveRole, n *schema.Node) bool {
	beside := func(m Member) bool {
		return m.Node == n.Key.Name && (m.Role == role.Name || !shares(role) || p.alone(key, m))
	}
	return slices.ContainsFunc(p.placing[key].members, beside) || len(p.misplaced[key]) > 0 &&
		slices.ContainsFunc(slices.Collect(maps.Values(p.misplaced[key])), beside)
}

// alone reports whether m, a declared member, has its node alone.
func (p *Placer) alone(key schema.Key, m Member) bool {
	for _, r := range p.eff.Instance(key).Roles {
		if r.Name == m.Role {
			return !shares(r)
		}
	}
	return true
}

func (p *Placer) put(key schema.Key, role schema.EffectiveRole, m Member) {
	p.placing[key].members = append(p.placing[key].members, m)
	if p.occupy(m.Node, key, !shares(role)) {
		p.rests = false
	}
}

func (p *Placer) block(key schema.Key, code string, wait bool, message string) {
	p.placing[key].blocked = append(p.placing[key].blocked, Blocked{Code: code, Message: message, Wait: wait})
}

// freesUp reports whether a node would fit once leaving members are gone.
func (p *Placer) freesUp(key schema.Key, inst *schema.EffectiveInstance, role schema.EffectiveRole) bool {
	return slices.ContainsFunc(p.nodes, func(n *schema.Node) bool {
		if n.Spec.Cordoned || reservedForOthers(n, key) || len(misfits(inst, role, n)) > 0 || p.ownTaken(key, role, n) {
			return false
		}
		o := p.on[n.Key.Name]
		if o == nil {
			return true
		}
		for k, alone := range o.units {
			if k != key && (alone || !shares(role)) && !p.leaving(k, n.Key.Name) {
				return false
			}
		}
		return true
	})
}

// leaving reports whether a unit will leave a node that it is on.
func (p *Placer) leaving(key schema.Key, node string) bool {
	if len(p.eff.Denied(key)) > 0 {
		return false // Berth does not change a denied unit
	}
	at, again := p.placing[key]
	if !again {
		at = p.out.of.get(key)
	}
	stays := func(m Member) bool { return m.Node == node }
	return (at == nil || !slices.ContainsFunc(at.members, stays)) &&
		!slices.ContainsFunc(slices.Collect(maps.Values(p.misplaced[key])), stays)
}

// why counts, for each requirement, the nodes that fail it.
func (p *Placer) why(key schema.Key, inst *schema.EffectiveInstance, role schema.EffectiveRole) string {
	var order []string
	counts := map[string]int{}
	count := func(text string) {
		if counts[text] == 0 {
			order = append(order, text)
		}
		counts[text]++
	}
	taken, nodes := 0, map[schema.Key][]string{}
	for _, n := range p.nodes {
		for _, text := range misfits(inst, role, n) {
			count(text)
		}
		if !offers(n, role) {
			continue // further misfits of this node add nothing
		}
		if reservedForOthers(n, key) {
			count("reserved for others")
		}
		if n.Spec.Cordoned {
			count("cordoned")
		}
		if by, ok := p.takenBy(n.Key.Name, key, !shares(role)); ok {
			taken++
			nodes[by] = append(nodes[by], n.Key.Name)
		} else if p.ownTaken(key, role, n) {
			count("used by this instance already")
		}
	}
	slices.Sort(order)
	var parts []string
	for _, text := range order {
		parts = append(parts, fmt.Sprintf("%d %s", counts[text], text))
	}
	if taken > 0 {
		var by []string
		others := 0 // a tenant must not learn another tenant's units
		for _, k := range slices.SortedFunc(maps.Keys(nodes), schema.Key.Compare) {
			if k.Tenant == key.Tenant {
				by = append(by, list(nodes[k])+" by "+unitName(k))
			} else {
				others += len(nodes[k])
			}
		}
		if others > 0 {
			by = append(by, fmt.Sprintf("%d by other tenants", others))
		}
		parts = append(parts, fmt.Sprintf("%d taken (%s)", taken, list(by)))
	}
	among := fmt.Sprintf("of %d nodes", len(p.nodes))
	if len(p.nodes) < 2 {
		among = []string{"no node is declared", "of 1 node"}[len(p.nodes)]
	}
	return strings.Join(append([]string{among}, parts...), ", ")
}
