package plan

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"berth/schema"
)

// occupancy has the units on each node. A unit without a node there is in no entry.
type occupancy map[string]*occupants

// occupants are the units on a node.
type occupants struct {
	units map[schema.Key]share
	alone int   // number of units that have the node alone
	claim claim // of all units
}

// share is what a unit has of a node.
type share struct {
	alone bool // the unit has the node alone
	claim claim
}

type occupant struct {
	key schema.Key
	share
}

// add puts a unit on a node. If the unit is there already, the greater claim counts, and it has the node alone if it had it alone
// or gets it alone. What it had stays counted until it is removed.
func (on occupancy) add(node string, by occupant) {
	o := on[node]
	if o == nil {
		o = &occupants{units: map[schema.Key]share{}}
		on[node] = o
	}
	was := o.units[by.key]
	is := share{was.alone || by.alone, was.claim.atLeast(by.claim)}
	if is.alone && !was.alone {
		o.alone++
	}
	o.claim = o.claim.minus(was.claim).plus(is.claim)
	o.units[by.key] = is
}

func (on occupancy) remove(node string, key schema.Key) {
	o := on[node]
	if o == nil {
		return
	}
	was := o.units[key]
	if was.alone {
		o.alone--
	}
	o.claim = o.claim.minus(was.claim)
	if delete(o.units, key); len(o.units) == 0 {
		delete(on, node)
	}
}

// occupied iterates over the nodes on record of the units of p. A nil project has none.
func (p *project) occupied() iter.Seq2[string, occupant] {
	return func(yield func(string, occupant) bool) {
		if p == nil {
			return
		}
		for key, st := range in(p.records) {
			for _, n := range recordedNodes(st, p.instance(key), p.unchanged[key]) {
				if !yield(n.name, occupant{key, n.share}) {
					return
				}
			}
		}
	}
}

// recordedNode is a node on which a unit is recorded.
type recordedNode struct {
	name string
	share
}

// Nodes returns the nodes on which the unit has members, or is recorded.
func (s *Status) Nodes() (names []string) {
	for _, n := range recordedNodes(s, nil, true) {
		names = append(names, n.name)
	}
	return names
}

// recordedNodes returns the nodes on which a unit is recorded, each once. The role of a
// member decides whether it shares its node; of an unknown role, only control planes do. unchanged: Berth
// leaves the unit as it is on record. inst is nil for a unit that is not declared.
func recordedNodes(st *Status, inst *schema.EffectiveUnit, unchanged bool) (on []recordedNode) {
	for _, a := range st.Abandoned {
		on = append(on, recordedNode{a.Node, share{alone: true}})
	}
	if st.Phase == PhaseDeleted {
		return on
	}
	unit := applied(st)
	counted := map[[2]string]bool{} // members by node, as each is recorded up to three times
	mark := func(name, node, role string, controlPlane bool) {
		is := share{alone: !controlPlane}
		r, ok := unit.role(role)
		if !ok {
			r, ok = roleOf(inst, role)
		}
		if ok {
			is.alone = !shares(r)
		}
		if id := [2]string{name, node}; ok && !counted[id] {
			counted[id], is.claim = true, claimOf(r)
			if declared, now := roleOf(inst, role); now && !unchanged {
				is.claim = is.claim.willBe(claimOf(declared))
			}
		}
		if i := slices.IndexFunc(on, func(n recordedNode) bool { return n.name == node }); i >= 0 {
			on[i].share = share{on[i].alone || is.alone, on[i].claim.plus(is.claim)}
		} else {
			on = append(on, recordedNode{node, is})
		}
	}
	for _, m := range st.Members {
		mark(m.Name, m.Node, m.Role, m.ControlPlane)
	}
	if unit != nil {
		for _, m := range unit.Members {
			mark(m.Name, m.Node, m.Role, m.ControlPlane)
		}
	}
	if st.Observed != nil {
		for _, m := range st.Observed.Members {
			role, _ := splitMember(m.Name)
			mark(m.Name, m.Node, role, false)
		}
		for _, m := range st.Observed.Begun {
			mark(m.Name, m.Node, m.Role, m.ControlPlane)
		}
	}
	return on
}

// competition places the units whose placement depends on others.
type competition struct {
	tenants
	eff      *schema.Effective
	sorted   []*schema.Node            // in natural order of names
	changed  occupancy                 // of the nodes on which c has put a unit
	suitable map[string][]*schema.Node // nodes that meet the requirements of a role, because thousands of instances have few different ones
	units    map[schema.Key]*unit
	lent     map[string]schema.Key // the units to which nodes are lent, by node
	unready  map[string]bool       // nodes that are not ready: they take no new member
}

// loans returns the units to which nodes are lent, by node. Only units of a tenant itself, or of
// the platform, have such nodes.
func loans(eff *schema.Effective) map[string]schema.Key {
	out := map[string]schema.Key{}
	for _, t := range eff.Tenants {
		for _, u := range in(t.Projects[""]).Units {
			for _, l := range u.Lent {
				out[l.Node] = u.Key
			}
		}
	}
	return out
}

// add adds the instances of a project that depend on others. It returns the placement of
// the project, which place completes.
func (c *competition) add(p *project) *placedProject {
	out := maps.Clone(p.settled)
	for _, key := range p.open {
		u := newUnit(c.eff, p, key)
		u.competition = c
		c.units[key], out[key] = u, u.placed
	}
	return &out
}

// place places the units of c: first those that have members, so that a new instance
// never takes a node that a growing one needs. It returns those for which it looked for nodes.
func (c *competition) place() (attempts []Attempt) {
	c.lent = loans(c.eff)
	c.sorted = slices.SortedFunc(maps.Values(c.nodes), func(a, b *schema.Node) int { return compareNatural(a.Key.Name, b.Key.Name) })
	var holding, fresh []*unit
	for _, key := range slices.SortedFunc(maps.Keys(c.units), schema.Key.Compare) {
		u := c.units[key]
		if u.keep(); u.holds() {
			holding = append(holding, u)
		} else {
			fresh = append(fresh, u)
		}
	}
	for _, u := range append(holding, fresh...) {
		if u.fill() {
			attempts = append(attempts, Attempt{u.key, len(u.blocked) == 0})
		}
		u.finish()
	}
	return attempts
}

// at returns the units on a node; nil for none.
func (c *competition) at(node string) *occupants { return cmp.Or(c.changed[node], c.on[node]) }

// occupy puts a unit on a node.
func (c *competition) occupy(node string, by occupant) {
	if was := c.on[node]; was != nil && c.changed[node] == nil {
		c.changed[node] = &occupants{maps.Clone(was.units), was.alone, was.claim}
	}
	c.changed.add(node, by)
}

// taken reports whether another unit prevents a member of unit key from using a node.
func (c *competition) taken(node string, key schema.Key, exclusive bool) bool {
	o := c.at(node)
	if o == nil || !exclusive && o.alone == 0 {
		return false
	}
	own, there := o.units[key]
	others, othersAlone := len(o.units), o.alone
	if there {
		others--
	}
	if own.alone {
		othersAlone--
	}
	return othersAlone > 0 || exclusive && others > 0
}

// takenBy returns the first of those units.
func (c *competition) takenBy(node string, key schema.Key, exclusive bool) (schema.Key, bool) {
	var by schema.Key
	if !c.taken(node, key, exclusive) {
		return by, false
	}
	for k, of := range c.at(node).units {
		if k != key && (exclusive || of.alone) && (by.IsZero() || k.Compare(by) < 0) {
			by = k
		}
	}
	return by, true
}

// leaving reports whether a unit will leave a node that it is on.
func (c *competition) leaving(key schema.Key, node string) bool {
	if len(c.eff.Denied(key)) > 0 {
		return false // Berth does not change a denied unit
	}
	stays := func(m Member) bool { return m.Node == node }
	if u := c.units[key]; u != nil {
		return !slices.ContainsFunc(u.here(), stays)
	}
	at := in(in(c.of[key.Tenant]).placed[key.Project])[key]
	return at == nil || !slices.ContainsFunc(at.members, stays)
}

// suits returns the nodes that meet the requirements of a role, in natural order of names.
func (c *competition) suits(what string, inst *schema.EffectiveUnit, role schema.EffectiveRole) []*schema.Node {
	if role.GPUs != nil {
		what += " " + role.GPUs.Type // the text does not distinguish any type from a type called gpu
	}
	ns, ok := c.suitable[what]
	if !ok {
		for _, n := range c.sorted {
			if len(misfits(inst, role, n)) == 0 {
				ns = append(ns, n)
			}
		}
		c.suitable[what] = ns
	}
	return ns
}
