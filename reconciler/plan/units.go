package plan

import (
	"iter"
	"maps"

	"berth/schema"
)

// units is a V for each of some units, by tenant, by project and by key. It is
// for what is said of a whole estate, of which a step changes little: a value of
// it never changes, and with gives another, which shares with it whatever is of
// tenants and projects that it does not touch. So to keep one costs nothing, to
// make the next costs the projects that are touched, and to find what two differ
// in costs the projects that are not the same value (changed). The zero units
// holds none, and is the only one that does.
type units[V any] struct {
	tenants *unitsByTenant[V]
	n       int
}

// Two of these are the same value if they are at the same place, which is why they
// are pointed to. None is empty: nil is. The project "" is of what is in none.
type (
	unitsByTenant[V any]  map[string]*unitsByProject[V]
	unitsByProject[V any] map[string]*unitsByKey[V]
	unitsByKey[V any]     map[schema.Key]*V
)

// get is the value of a unit, or nil.
func (u units[V]) get(key schema.Key) *V { return u.project(key.Tenant, key.Project)[key] }

// len is how many units have a value.
func (u units[V]) len() int { return u.n }

// all are the units that have a value, in no order.
func (u units[V]) all() iter.Seq2[schema.Key, *V] {
	return func(yield func(schema.Key, *V) bool) {
		for _, t := range in(u.tenants) {
			for _, p := range in(t) {
				for key, v := range in(p) {
					if !yield(key, v) {
						return
					}
				}
			}
		}
	}
}

// project are the units of a project. The map must not be changed.
func (u units[V]) project(tenant, project string) unitsByKey[V] {
	return in(in(in(u.tenants)[tenant])[project])
}

// with is u with some units having another value; nil is none any more. Of two
// of one key the last counts. The values are kept, and nobody may change them
// any more.
func (u units[V]) with(now iter.Seq2[schema.Key, *V]) units[V] {
	own := map[any]bool{} // made here, and so is what they are in: nobody else has it yet
	for key, v := range now {
		p := in(in(u.tenants)[key.Tenant])[key.Project]
		was := in(p)[key]
		if v == was {
			continue
		}
		if !own[p] {
			u.tenants = mine(own, u.tenants)
			t := mine(own, (*u.tenants)[key.Tenant])
			p = mine(own, p)
			(*u.tenants)[key.Tenant], (*t)[key.Project] = t, p
		}
		if v != nil {
			if (*p)[key] = v; was == nil {
				u.n++
			}
			continue
		}
		u.n--
		t := (*u.tenants)[key.Tenant]
		if delete(*p, key); len(*p) == 0 {
			delete(*t, key.Project)
		}
		if len(*t) == 0 {
			delete(*u.tenants, key.Tenant)
		}
		if len(*u.tenants) == 0 {
			u.tenants = nil
		}
	}
	return u
}

// changed are the values, before and after, of the units that have not the same
// in both; nil where one has none. In no order.
func (u units[V]) changed(after units[V]) iter.Seq2[*V, *V] {
	return func(yield func(*V, *V) bool) {
		for s, t := range schema.Unlike(in(u.tenants), in(after.tenants)) {
			for p, q := range schema.Unlike(in(s), in(t)) {
				for v, w := range schema.Unlike(in(p), in(q)) {
					if !yield(v, w) {
						return
					}
				}
			}
		}
	}
}

// in is what is in m; nothing in nil.
func in[M any](m *M) (of M) {
	if m != nil {
		of = *m
	}
	return of
}

// mine is m if it is in own, or else a copy of it that is from now on.
func mine[M ~map[K]V, K comparable, V any](own map[any]bool, m *M) *M {
	if own[m] {
		return m
	}
	c := maps.Clone(in(m))
	if c == nil {
		c = M{}
	}
	own[&c] = true
	return &c
}
