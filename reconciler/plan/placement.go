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
	of       units[placed]
	unplaced int // instances of which something found no node
}

// placed is where an instance is.
type placed struct {
	key     schema.Key
	members []Member
	blocked []Blocked
	outside *schema.Noncompliance // for where members are; nil: policy allows it
}

// Members of an instance that found a node, control plane first, then by role
// and index. The value must not be changed.
func (p Placement) Members(key schema.Key) []Member {
	if u := p.of.get(key); u != nil {
		return u.members
	}
	return nil
}

// Unplaced says what of an instance found no node, and how many nodes failed
// which requirement. The value must not be changed.
func (p Placement) Unplaced(key schema.Key) []Blocked {
	if u := p.of.get(key); u != nil {
		return u.blocked
	}
	return nil
}

// Whole says that of no instance anything found no node.
func (p Placement) Whole() bool { return p.unplaced == 0 }

// Len is how many instances are placed, or have nowhere to be.
func (p Placement) Len() int { return p.of.len() }

// All are the instances placed and their Members, in no order. It walks the
// whole estate.
func (p Placement) All() iter.Seq2[schema.Key, []Member] {
	return func(yield func(schema.Key, []Member) bool) {
		for key, u := range p.of.all() {
			if !yield(key, u.members) {
				return
			}
		}
	}
}

// ChangedPlacement are the instances that are not placed the same, or for other
// reasons, or in one of the two only; in no order. The cost is that of the
// projects that are not the same value.
func ChangedPlacement(before, after Placement) iter.Seq[schema.Key] {
	return func(yield func(schema.Key) bool) {
		for a, b := range before.of.changed(after.of) {
			if !reflect.DeepEqual(a, b) && !yield(cmp.Or(a, b).key) {
				return
			}
		}
	}
}

// with is p with some instances, the keys of now, placed as they are now; nil
// is no instance any more. What is placed as it was keeps its value. now is taken
// over.
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

// unplaced is 1 if something of the instance found no node.
func (u *placed) unplaced() int {
	if u == nil || len(u.blocked) == 0 {
		return 0
	}
	return 1
}
