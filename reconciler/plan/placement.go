package plan

import (
	"cmp"
	"iter"
	"maps"
	"reflect"

	"berth/schema"
)

// Placement has the node of every member of every instance. A value never changes.
// Successive results of one Placer share the parts that are equal, so ChangedPlacement
// costs only the differences. The zero Placement is that of an estate without instances.
type Placement struct {
	of       units[placed]
	unplaced int // number of instances with a member that found no node
}

// placed is the placement of one instance.
type placed struct {
	key     schema.Key
	members []Member
	blocked []Blocked
	outside *schema.Noncompliance // noncompliance by node; nil: policy allows all nodes
}

// Members returns the members of an instance that have a node, control plane first, then
// by role and index. Callers must not change the value.
func (p Placement) Members(key schema.Key) []Member {
	if u := p.of.get(key); u != nil {
		return u.members
	}
	return nil
}

// Unplaced returns the members of an instance that found no node, with the number of
// nodes that failed each requirement. Callers must not change the value.
func (p Placement) Unplaced(key schema.Key) []Blocked {
	if u := p.of.get(key); u != nil {
		return u.blocked
	}
	return nil
}

// Whole reports whether every member of every instance has a node.
func (p Placement) Whole() bool { return p.unplaced == 0 }

// Len returns the number of instances, placed or not.
func (p Placement) Len() int { return p.of.len() }

// All iterates over the instances and their Members, in no order. It walks the whole
// estate.
func (p Placement) All() iter.Seq2[schema.Key, []Member] {
	return func(yield func(schema.Key, []Member) bool) {
		for key, u := range p.of.all() {
			if !yield(key, u.members) {
				return
			}
		}
	}
}

// ChangedPlacement iterates over the instances whose placement or reasons differ, or
// that only one of the two has, in no order. The cost is that of the projects that are
// not the same value.
func ChangedPlacement(before, after Placement) iter.Seq[schema.Key] {
	return func(yield func(schema.Key) bool) {
		for a, b := range before.of.changed(after.of) {
			if !reflect.DeepEqual(a, b) && !yield(cmp.Or(a, b).key) {
				return
			}
		}
	}
}

// with returns p with new placements for the keys of now; nil removes an instance. An
// equal placement keeps its old value. with takes ownership of now.
func (p Placement) with(now map[schema.Key]*placed) Placement {
	for key, u := range now {
		was := p.of.get(key)
		if reflect.DeepEqual(was, u) {
			delete(now, key)
			continue
		}
		p.unplaced += u.unplaced() - was.unplaced()
	}
	p.of = p.of.with(maps.All(now))
	return p
}

// unplaced returns 1 if a member of the instance found no node.
func (u *placed) unplaced() int {
	if u == nil || len(u.blocked) == 0 {
		return 0
	}
	return 1
}
