package plan

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"berth/schema"
)

// Memory holds what placement depends on of berth/status: the statuses of units, by tenant, project and key, and
// the nodes that are not ready. A value never changes. With and Without return a new Memory that shares all tenants and
// projects that they do not modify. A copy is therefore free, and ChangedMemory costs
// only the differences. The zero Memory is empty, and is the only empty one.
type Memory struct {
	tenants *tenantRecords
	n       int
	unready *map[string]bool // nodes; nil: none
}

// The records are behind pointers, so that the same pointer means the same content. No
// map is empty, or nil. The project "" has the units outside projects.
type (
	tenantRecords  map[string]*projectRecords
	projectRecords map[string]*unitRecords
	unitRecords    map[schema.Key]*Status
)

// Remember returns a Memory of the statuses. The last of two with the same key counts.
func Remember(statuses ...*Status) Memory { return Memory{}.With(statuses...) }

// Get returns the status of a unit, or nil. Callers must not change the value.
func (m Memory) Get(key schema.Key) *Status { return in(m.project(key.Tenant, key.Project))[key] }

// Len returns the number of units.
func (m Memory) Len() int { return m.n }

// All iterates over the statuses, in no order.
func (m Memory) All() iter.Seq2[schema.Key, *Status] {
	return func(yield func(schema.Key, *Status) bool) {
		for _, t := range in(m.tenants) {
			for _, p := range in(t) {
				for key, st := range in(p) {
					if !yield(key, st) {
						return
					}
				}
			}
		}
	}
}

// Keys returns the keys of the units, sorted.
func (m Memory) Keys() []schema.Key {
	keys := make([]schema.Key, 0, m.Len())
	for k := range m.All() {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, schema.Key.Compare)
	return keys
}

// Project iterates over the statuses of a project.
func (m Memory) Project(tenant, project string) iter.Seq2[schema.Key, *Status] {
	return maps.All(in(m.project(tenant, project)))
}

func (m Memory) project(tenant, project string) *unitRecords {
	return in(in(m.tenants)[tenant])[project]
}

// With returns m with new statuses of some units. The Memory keeps the statuses; nobody
// may change them afterwards.
func (m Memory) With(statuses ...*Status) Memory {
	own := map[any]bool{}
	for _, st := range statuses {
		m.set(own, st.Key, st)
	}
	return m
}

// Without returns m without the status of a unit.
func (m Memory) Without(key schema.Key) Memory {
	m.set(map[any]bool{}, key, nil)
	return m
}

// NodeReady is the phase of a node that takes new members.
const NodeReady = "ready"

// WithNode returns m with the status of a node; nil: it has none. A node whose status is another than ready takes no new
// member. One without a status is not observed, or not yet.
func (m Memory) WithNode(name string, s *ThingStatus) Memory {
	isUnready := s != nil && s.Phase != NodeReady
	if m.isUnready(name) == isUnready {
		return m
	}
	unready := maps.Clone(in(m.unready))
	if unready == nil {
		unready = map[string]bool{}
	}
	if unready[name] = true; !isUnready {
		delete(unready, name)
	}
	if m.unready = &unready; len(unready) == 0 {
		m.unready = nil
	}
	return m
}

func (m Memory) isUnready(node string) bool { return in(m.unready)[node] }

// set changes the status of a unit; nil removes it. own has the maps that no other
// Memory shares.
func (m *Memory) set(own map[any]bool, key schema.Key, st *Status) {
	p := m.project(key.Tenant, key.Project)
	was := in(p)[key]
	if st == was {
		return
	}
	m.tenants = mine(own, m.tenants)
	t := mine(own, (*m.tenants)[key.Tenant])
	p = mine(own, p)
	(*m.tenants)[key.Tenant], (*t)[key.Project] = t, p
	if st != nil {
		if (*p)[key] = st; was == nil {
			m.n++
		}
		return
	}
	m.n--
	if delete(*p, key); len(*p) == 0 {
		delete(*t, key.Project)
	}
	if len(*t) == 0 {
		delete(*m.tenants, key.Tenant)
	}
	if len(*m.tenants) == 0 {
		m.tenants = nil
	}
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

// ChangedMemory iterates over the units whose statuses differ between two Memories, in
// no order. The cost is that of the projects that are not the same value.
func ChangedMemory(before, after Memory) iter.Seq[schema.Key] {
	return func(yield func(schema.Key) bool) {
		for s, t := range schema.Unlike(in(before.tenants), in(after.tenants)) {
			for p, q := range schema.Unlike(in(s), in(t)) {
				for v, w := range schema.Unlike(in(p), in(q)) {
					if !yield(cmp.Or(v, w).Key) {
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
