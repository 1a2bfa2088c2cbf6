package plan

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"berth/schema"
)

// Memory is what berth/status remembers of units. A value of it never changes:
// With and Without give another, which shares with it whatever is of tenants and
// projects that they do not touch. So to keep one costs nothing, and to find
// what two differ in costs what differs (ChangedMemory). The zero Memory
// remembers nothing.
type Memory struct{ of units[Status] }

// Remember is the Memory of some units. Of two of one key the last counts.
func Remember(statuses ...*Status) Memory { return Memory{}.With(statuses...) }

// Get is what is remembered of a unit, or nil. The value must not be changed.
func (m Memory) Get(key schema.Key) *Status { return m.of.get(key) }

// Len is how many units are remembered.
func (m Memory) Len() int { return m.of.len() }

// All is what is remembered, in no order.
func (m Memory) All() iter.Seq2[schema.Key, *Status] { return m.of.all() }

// Keys are the units remembered, sorted.
func (m Memory) Keys() []schema.Key {
	keys := make([]schema.Key, 0, m.Len())
	for k := range m.All() {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, schema.Key.Compare)
	return keys
}

// Project is what is remembered of a project's units.
func (m Memory) Project(tenant, project string) iter.Seq2[schema.Key, *Status] {
	return maps.All(m.of.project(tenant, project))
}

// With is m with units as they are now. The Memory keeps the statuses, which
// nobody may change any more.
func (m Memory) With(statuses ...*Status) Memory {
	return Memory{m.of.with(func(yield func(schema.Key, *Status) bool) {
		for _, s := range statuses {
			if !yield(s.Key, s) {
				return
			}
		}
	})}
}

// Without is m with nothing remembered of a unit.
func (m Memory) Without(key schema.Key) Memory {
	return Memory{m.of.with(maps.All(map[schema.Key]*Status{key: nil}))}
}

// ChangedMemory are the units of which two Memories hold another value, or only
// one a value; in no order. The cost is that of the projects that are not the
// same value.
func ChangedMemory(before, after Memory) iter.Seq[schema.Key] {
	return func(yield func(schema.Key) bool) {
		for r, s := range before.of.changed(after.of) {
			if !yield(cmp.Or(r, s).Key) {
				return
			}
		}
	}
}
