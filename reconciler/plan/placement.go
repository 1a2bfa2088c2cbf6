package plan

import (
	"cmp"
	"iter"
	"maps"
	"reflect"

	"berth/schema"
)

// Placement says which node every member of every instance is on. A value of it
// never changes; of two that a Placer gives, what is the same of both is the
// same value, so that to compare them costs what differs (ChangedPlacement). The
// zero Placement is that of an estate without instances.
type Placement struct {
	tenants   map[string]*placedTenant
	instances int
	unplaced  int // instances of which something found no node
}

// No map of these is empty.
type (
	placedTenant  struct{ projects map[string]*placedProject }
	placedProject struct{ instances map[string]*placed }
	placed        struct {
		key     schema.Key
		members []Member
		blocked []Blocked
	}
)

// Members of an instance that found a node, control plane first, then by role
// and index. The value must not be changed.
func (p Placement) Members(key schema.Key) []Member {
	if u := p.get(key); u != nil {
		return u.members
	}
	return nil
}

// Unplaced says what of an instance found no node, and how many nodes failed
// which requirement. The value must not be changed.
func (p Placement) Unplaced(key schema.Key) []Blocked {
	if u := p.get(key); u != nil {
		return u.blocked
	}
	return nil
}

// Whole says that of no instance anything found no node.
func (p Placement) Whole() bool { return p.unplaced == 0 }

// Len is how many instances are placed, or have nowhere to be.
func (p Placement) Len() int { return p.instances }

// All are the instances placed and their Members, in no order. It walks the
// whole estate.
func (p Placement) All() iter.Seq2[schema.Key, []Member] {
	return func(yield func(schema.Key, []Member) bool) {
		for _, t := range p.tenants {
			for _, q := range t.projects {
				for _, u := range q.instances {
					if !yield(u.key, u.members) {
						return
					}
				}
			}
		}
	}
}

// ChangedPlacement are the instances that are not placed the same, or for other
// reasons, or in one of the two only; in no order. The cost is that of the
// projects that are not the same value.
func ChangedPlacement(before, after Placement) iter.Seq[schema.Key] {
	return func(yield func(schema.Key) bool) {
		for t, u := range schema.Unlike(before.tenants, after.tenants) {
			for q, r := range schema.Unlike(t.all(), u.all()) {
				for a, b := range schema.Unlike(q.all(), r.all()) {
					if !reflect.DeepEqual(a, b) && !yield(cmp.Or(a, b).key) {
						return
					}
				}
			}
		}
	}
}

func (t *placedTenant) all() map[string]*placedProject {
	if t == nil {
		return nil
	}
	return t.projects
}

func (q *placedProject) all() map[string]*placed {
	if q == nil {
		return nil
	}
	return q.instances
}

func (p Placement) get(key schema.Key) *placed {
	return p.tenants[key.Tenant].all()[key.Project].all()[key.Name]
}

// with is p with some instances, the keys of now, placed as they are now; nil
// is no instance any more.
func (p Placement) with(now map[schema.Key]*placed) Placement {
	p.tenants = maps.Clone(p.tenants)
	if p.tenants == nil {
		p.tenants = map[string]*placedTenant{}
	}
	own := map[any]bool{} // made here: nobody else has it yet
	for key, u := range now {
		was := p.get(key)
		if reflect.DeepEqual(was, u) {
			continue
		}
		p.count(was, -1)
		p.count(u, 1)
		t := p.tenants[key.Tenant]
		if !own[t] {
			t = &placedTenant{cloned(t.all())}
			p.tenants[key.Tenant], own[t] = t, true
		}
		q := t.projects[key.Project]
		if !own[q] {
			q = &placedProject{cloned(q.all())}
			t.projects[key.Project], own[q] = q, true
		}
		if u != nil {
			q.instances[key.Name] = u
			continue
		}
		if delete(q.instances, key.Name); len(q.instances) == 0 {
			delete(t.projects, key.Project)
		}
		if len(t.projects) == 0 {
			delete(p.tenants, key.Tenant)
		}
	}
	return p
}

// count takes in that there are n more of u.
func (p *Placement) count(u *placed, n int) {
	if u == nil {
		return
	}
	p.instances += n
	if len(u.blocked) > 0 {
		p.unplaced += n
	}
}

func cloned[V any](m map[string]*V) map[string]*V {
	out := make(map[string]*V, len(m)+1)
	maps.Copy(out, m)
	return out
}
