package plan

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"berth/schema"
)

// Memory holds the statuses of units from berth/status. A value never changes. With and
// Without return a new Memory that shares all tenants and projects that they do not
// modify. A copy is therefore free, and ChangedMemory costs only the differences. The
// zero Memory is empty.
type Memory struct{ of units[Status] }

// Remember returns a Memory of the statuses. The last of two with the same key counts.
func Remember(statuses ...*Status) Memory { return Memory{}.With(statuses...) }

// Get returns the status of a unit, or nil. Callers must not change the value.
func (m Memory) Get(key schema.Key) *Status { return m.of.get(key) }

// Len returns the number of units.
func (m Memory) Len() int { return m.of.len() }

// All iterates over the statuses, in no order.
func (m Memory) All() iter.Seq2[schema.Key, *Status] { return m.of.all() }

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
	return maps.All(m.of.project(tenant, project))
}

// With returns m with new statuses of some units. The Memory keeps the statuses; nobody
// may change them afterwards.
func (m Memory) With(statuses ...*Status) Memory {
	return Memory{m.of.with(func(yield func(schema.Key, *Status) bool) {
		for _, s := range statuses {
			if !yield(s.Key, s) {
				return
			}
		}
	})}
}

// Without returns m without the status of a unit.
func (m Memory) Without(key schema.Key) Memory {
	return Memory{m.of.with(maps.All(map[schema.Key]*Status{key: nil}))}
}

// ChangedMemory iterates over the units whose statuses differ between two Memories, in
// no order. The cost is that of the projects that are not the same value.
func ChangedMemory(before, after Memory) iter.Seq[schema.Key] {
	return func(yield func(schema.Key) bool) {
		for r, s := range before.of.changed(after.of) {
			if !yield(cmp.Or(r, s).Key) {
				return
			}
		}
	}
}
