package plan

import (
	"cmp"
	"iter"
	"reflect"

	"berth/schema"
)

// Placement has the node of every member of every instance. A value never changes.
// Successive results of one Placer share unchanged projects, so ChangedPlacement costs
// only the differences. The zero Placement is that of an estate without instances.
type Placement struct {
	of       map[string]*placedTenant
	attempts []Attempt
}

// Attempt is an instance for whose members the placement looked for nodes.
type Attempt struct {
	Key    schema.Key
	Placed bool // every member has a node, on which it may stay
}

// Attempts returns the instances with members that had no node, or had to leave theirs. Callers must not change the value.
func (p Placement) Attempts() []Attempt { return p.attempts }

// The placements of a tenant, by project, and of a project, by instance.
type (
	placedTenant  map[string]*placedProject
	placedProject map[schema.Key]*placed
)

func (p Placement) get(key schema.Key) *placed { return in(in(p.of[key.Tenant])[key.Project])[key] }

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
	if u := p.get(key); u != nil {
		return u.members
	}
	return nil
}

// Unplaced returns the members of an instance that found no node, with the number of
// nodes that failed each requirement. Callers must not change the value.
func (p Placement) Unplaced(key schema.Key) []Blocked {
	if u := p.get(key); u != nil {
		return u.blocked
	}
	return nil
}

// All iterates over the instances and their Members, in no order. It walks the whole
// estate.
func (p Placement) All() iter.Seq2[schema.Key, []Member] {
	return func(yield func(schema.Key, []Member) bool) {
		for _, t := range p.of {
			for _, p := range *t {
				for key, u := range *p {
					if !yield(key, u.members) {
						return
					}
				}
			}
		}
	}
}

// ChangedPlacement iterates over the instances whose placement or reasons differ, or
// that only one of the two has, in no order. The cost is that of the projects that are
// not the same value.
func ChangedPlacement(before, after Placement) iter.Seq[schema.Key] {
	return func(yield func(schema.Key) bool) {
		for s, t := range schema.Unlike(before.of, after.of) {
			for p, q := range schema.Unlike(in(s), in(t)) {
				for a, b := range schema.Unlike(in(p), in(q)) {
					if !reflect.DeepEqual(a, b) && !yield(cmp.Or(a, b).key) {
						return
					}
				}
			}
		}
	}
}
