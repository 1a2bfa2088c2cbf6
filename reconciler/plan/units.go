package plan

import (
	"iter"
	"maps"

	"berth/schema"
)

// units holds a V for each of some units, by tenant, project and key. It is used for
// values about a whole estate of which a step changes little. A value never changes;
// with returns a new one that shares all tenants and projects that it does not modify. A
// copy is free, the next value costs the modified projects, and changed costs the
// projects that are not the same value. The zero units is empty, and is the only empty
// one.
type units[V any] struct {
	tenants *unitsByTenant[V]
	n       int
}

// Pointer equality means the same value. No map is empty; nil stands for it. The project
// "" has the units outside projects.
type (
	unitsByTenant[V any]  map[string]*unitsByProject[V]
	unitsByProject[V any] map[string]*unitsByKey[V]
	unitsByKey[V any]     map[schema.Key]*V
)

// get returns the value of a unit, or nil.
func (u units[V]) get(key schema.Key) *V { return u.project(key.Tenant, key.Project)[key] }

// len returns the number of units with a value.
func (u units[V]) len() int { return u.n }

// all iterates over the units with a value, in no order.
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

// project returns the units of a project. Callers must not change the map.
func (u units[V]) project(tenant, project string) unitsByKey[V] {
	return in(in(in(u.tenants)[tenant])[project])
}

// with returns u with new values for some units; nil removes one. The last of two with
// the same key counts. The result keeps the values; nobody may change them afterwards.
func (u units[V]) with(now iter.Seq2[schema.Key, *V]) units[V] {
	own := map[any]bool{} // maps created by this call, which it may still modify
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

// changed iterates over the values before and after of units that differ; nil where a
// side has none. In no order.
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

// in returns *m, or the zero value for nil.
func in[M any](m *M) (of M) {
	if m != nil {
		of = *m
	}
	return of
}

// mine returns m if it is in own; otherwise a copy of it, which it adds to own.
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
