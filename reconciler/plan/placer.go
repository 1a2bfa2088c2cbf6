package plan

import (
	"maps"
	"reflect"
	"sync"

	"berth/schema"
)

// Placer places one estate repeatedly. Its result is always that of Place; only the cost
// depends on earlier calls. It keeps what Place computes of a single project, for as long
// as the values that this depends on are the same: the effective project, the records of
// its units, and the nodes on record. Units whose placement depends on others are placed
// in each call.
type Placer struct {
	mu   sync.Mutex
	last tenants // of the last call; zero during a call, so that a panic leaves nothing half done
}

// tenants is the part of a placement that needs no comparison of units.
type tenants struct {
	of    map[string]*tenant
	nodes map[string]*schema.Node
	on    occupancy // of all units on record
}

// tenant has the projects of a tenant.
type tenant struct {
	effective *schema.EffectiveTenant
	records   *projectRecords
	projects  map[string]*project
	placed    placedTenant // settled instances
	open      bool         // some instances depend on others
}

// project is the part of a placement that depends on one project.
type project struct {
	effective *schema.EffectiveProject // nil: none of the units is declared
	records   *unitRecords             // nil: no unit is on record
	nodes     map[string]*schema.Node  // nodes on record; nil for one that is not declared
	unchanged map[schema.Key]bool      // instances that Berth leaves as they are: denied or suspended
	settled   placedProject            // instances that do not depend on others
	open      []schema.Key             // other instances
}

// Place is the function Place, with the results of earlier calls reused.
func (p *Placer) Place(eff *schema.Effective, mem Memory) Placement {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.last
	p.last = tenants{}
	next := last.next(eff, mem)
	out := place(eff, next, in(mem.unready))
	p.last = next
	return out
}

// next returns the tenants of an estate. It takes the unchanged ones, and the occupancy,
// from was.
func (was tenants) next(eff *schema.Effective, mem Memory) tenants {
	// Maps of an estate never change, so the same map has the same nodes.
	sameNodes := reflect.ValueOf(was.nodes).Pointer() == reflect.ValueOf(eff.Nodes).Pointer()
	is := tenants{of: make(map[string]*tenant, len(was.of)), nodes: eff.Nodes, on: was.on}
	if is.on == nil {
		is.on = occupancy{}
	}
	add := func(name string) {
		old, effective, records := was.of[name], eff.Tenants[name], in(mem.tenants)[name]
		if old != nil && sameNodes && old.effective == effective && old.records == records {
			is.of[name] = old
			return
		}
		t := &tenant{effective: effective, records: records}
		t.place(eff, in(old).projects)
		is.of[name] = t
	}
	for name := range eff.Tenants {
		add(name)
	}
	for name := range in(mem.tenants) {
		if is.of[name] == nil {
			add(name)
		}
	}
	for old, now := range schema.Unlike(was.of, is.of) {
		for p, q := range schema.Unlike(in(old).projects, in(now).projects) {
			for node, o := range p.occupied() {
				is.on.remove(node, o.key)
			}
			for node, o := range q.occupied() {
				is.on.add(node, o)
			}
		}
	}
	return is
}

// place fills in the projects of t; it takes the unchanged ones from was.
func (t *tenant) place(eff *schema.Effective, was map[string]*project) {
	t.projects, t.placed = map[string]*project{}, placedTenant{}
	add := func(name string) {
		p := &project{effective: in(t.effective).Projects[name], records: in(t.records)[name]}
		if old := was[name]; old != nil && old.effective == p.effective && old.records == p.records && old.on(eff.Nodes) {
			p = old
		} else {
			p.place(eff)
		}
		t.projects[name] = p
		if t.open = t.open || len(p.open) > 0; len(p.settled) > 0 {
			t.placed[name] = &p.settled
		}
	}
	for name := range in(t.effective).Projects {
		add(name)
	}
	for name := range in(t.records) {
		if t.projects[name] == nil {
			add(name)
		}
	}
}

// place places the instances of p that do not depend on others.
func (p *project) place(eff *schema.Effective) {
	p.nodes, p.settled, p.unchanged = map[string]*schema.Node{}, placedProject{}, map[schema.Key]bool{}
	for _, inst := range in(p.effective).Units {
		if inst.Suspend || len(eff.Denied(inst.Key)) > 0 {
			p.unchanged[inst.Key] = true
		}
	}
	for node := range p.occupied() {
		p.nodes[node] = eff.Nodes[node]
	}
	for _, inst := range in(p.effective).Units {
		u := newUnit(eff, p, inst.Key)
		if u.settle() {
			p.settled[inst.Key] = u.placed
		} else {
			p.open = append(p.open, inst.Key)
		}
	}
}

// on reports whether nodes has the nodes on record of p.
func (p *project) on(nodes map[string]*schema.Node) bool {
	for name, n := range p.nodes {
		if nodes[name] != n {
			return false
		}
	}
	return true
}

// instance returns a declared instance of p, or nil.
func (p *project) instance(key schema.Key) *schema.EffectiveUnit {
	if u := in(p.effective).Units[key.Name]; u != nil && u.Key == key {
		return u
	}
	return nil
}

// place completes the placement of all tenants. unready are the nodes that are not ready.
func place(eff *schema.Effective, tenants tenants, unready map[string]bool) Placement {
	out := Placement{of: make(map[string]*placedTenant, len(tenants.of))}
	c := &competition{tenants: tenants, eff: eff, changed: occupancy{}, suitable: map[string][]*schema.Node{},
		units: map[schema.Key]*unit{}, unready: unready}
	for name, t := range tenants.of {
		of := &t.placed
		if t.open {
			all := maps.Clone(t.placed)
			of = &all
			for name, p := range t.projects {
				if len(p.open) > 0 {
					all[name] = c.add(p)
				}
			}
		}
		if len(*of) > 0 {
			out.of[name] = of
		}
	}
	if len(c.units) > 0 {
		out.attempts = c.place()
	}
	return out
}
