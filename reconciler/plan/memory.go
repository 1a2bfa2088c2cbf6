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
type Memory struct {
	tenants map[string]*tenantMemory // nil if there are none
	units   int
}

// tenantMemory is what is remembered of a tenant, by project; "" for what is in
// none. No map of a Memory is empty.
type tenantMemory struct {
	projects map[string]*projectMemory
}

type projectMemory struct {
	units map[schema.Key]*Status
}

// Remember is the Memory of some units. Of two of one key the last counts.
func Remember(statuses ...*Status) Memory { return Memory{}.With(statuses...) }

// Get is what is remembered of a unit, or nil. The value must not be changed.
func (m Memory) Get(key schema.Key) *Status {
	if t := m.tenants[key.Tenant]; t != nil {
		if p := t.projects[key.Project]; p != nil {
			return p.units[key]
		}
	}
	return nil
}

// Len is how many units are remembered.
func (m Memory) Len() int { return m.units }

// All is what is remembered, in no order.
func (m Memory) All() iter.Seq2[schema.Key, *Status] {
	return func(yield func(schema.Key, *Status) bool) {
		for _, t := range m.tenants {
			for _, p := range t.projects {
				for _, s := range p.units {
					if !yield(s.Key, s) {
						return
					}
				}
			}
		}
	}
}

// Keys are the units remembered, sorted.
func (m Memory) Keys() []schema.Key {
	keys := make([]schema.Key, 0, m.units)
	for k := range m.All() {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, schema.Key.Compare)
	return keys
}

// Project is what is remembered of a project's units.
func (m Memory) Project(tenant, project string) iter.Seq2[schema.Key, *Status] {
	return func(yield func(schema.Key, *Status) bool) {
		if t := m.tenants[tenant]; t != nil && t.projects[project] != nil {
			for _, s := range t.projects[project].units {
				if !yield(s.Key, s) {
					return
				}
			}
		}
	}
}

// With is m with units as they are now. The Memory keeps the statuses, which
// nobody may change any more.
func (m Memory) With(statuses ...*Status) Memory {
	if len(statuses) == 0 {
		return m
	}
	// What was made in this call is nobody else's yet.
	own := map[any]bool{}
	out := Memory{tenants: maps.Clone(m.tenants), units: m.units}
	if out.tenants == nil {
		out.tenants = map[string]*tenantMemory{}
	}
	for _, s := range statuses {
		t := out.tenants[s.Key.Tenant]
		if t == nil || !own[t] {
			next := &tenantMemory{projects: map[string]*projectMemory{}}
			if t != nil {
				next.projects = maps.Clone(t.projects)
			}
			t = next
			own[t], out.tenants[s.Key.Tenant] = true, t
		}
		p := t.projects[s.Key.Project]
		if p == nil || !own[p] {
			next := &projectMemory{units: map[schema.Key]*Status{}}
			if p != nil {
				next.units = maps.Clone(p.units)
			}
			p = next
			own[p], t.projects[s.Key.Project] = true, p
		}
		if p.units[s.Key] == nil {
			out.units++
		}
		p.units[s.Key] = s
	}
	return out
}

// Without is m with nothing remembered of a unit.
func (m Memory) Without(key schema.Key) Memory {
	if m.Get(key) == nil {
		return m
	}
	if m.units == 1 {
		return Memory{}
	}
	t := m.tenants[key.Tenant]
	out := Memory{tenants: maps.Clone(m.tenants), units: m.units - 1}
	units := maps.Clone(t.projects[key.Project].units)
	delete(units, key)
	projects := maps.Clone(t.projects)
	projects[key.Project] = &projectMemory{units}
	if len(units) == 0 {
		delete(projects, key.Project)
	}
	out.tenants[key.Tenant] = &tenantMemory{projects}
	if len(projects) == 0 {
		delete(out.tenants, key.Tenant)
	}
	return out
}

// ChangedMemory are the units of which two Memories hold another value, or only
// one a value; in no order. The cost is that of the projects that are not the
// same value.
func ChangedMemory(before, after Memory) iter.Seq[schema.Key] {
	return func(yield func(schema.Key) bool) {
		for t, u := range schema.Unlike(before.tenants, after.tenants) {
			for p, q := range schema.Unlike(t.all(), u.all()) {
				for r, s := range schema.Unlike(p.all(), q.all()) {
					if !yield(cmp.Or(r, s).Key) {
						return
					}
				}
			}
		}
	}
}

func (t *tenantMemory) all() map[string]*projectMemory {
	if t == nil {
		return nil
	}
	return t.projects
}

func (p *projectMemory) all() map[schema.Key]*Status {
	if p == nil {
		return nil
	}
	return p.units
}
