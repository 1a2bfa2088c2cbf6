package status

import (
	"maps"
	"slices"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// Statuses are the statuses of an estate's units and of its other resources. A
// change of phase becomes an event that the same commit writes, so that statuses
// and events always agree (requirement A8).
//
// A setter takes the status that its caller started from. It records nothing and
// returns ok false if another goroutine recorded a newer one: the caller computes
// its status again.
type Statuses struct {
	p         *pending
	deleted   *DeletedInstances
	version   uint64 // counts changes
	units     plan.Memory
	resources map[schema.Key]*plan.ThingStatus
	shared    map[schema.Key]*plan.ThingStatus // copy of resources for Snapshot; nil after a change
	changes   changes[schema.Key]
}

func newStatuses(p *pending, deleted *DeletedInstances) *Statuses {
	return &Statuses{p: p, deleted: deleted, resources: map[schema.Key]*plan.ThingStatus{}, changes: newChanges[schema.Key]()}
}

// Units returns the statuses of all units.
func (s *Statuses) Units() plan.Memory {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.units
}

// Unit returns the status of a unit, or nil. The caller must not change it.
func (s *Statuses) Unit(key schema.Key) *plan.Status { return s.Units().Get(key) }

// SetUnit records a unit's status in place of prev, as Unit returned it. changed
// is false if the status is the same. Most changes show in a condition, so that nothing is encoded to find them.
func (s *Statuses) SetUnit(prev *plan.Status, next plan.Status) (changed, ok bool) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.units.Get(next.Key) != prev {
		return false, false
	}
	if prev != nil && prev.Phase == next.Phase && slices.Equal(prev.Conditions, next.Conditions) && EqualJSON(prev, &next) {
		return false, true
	}
	s.units = s.units.With(&next)
	s.changes.put(next.Key)
	s.recorded(next.CorrelationID, prev == nil || prev.Phase != next.Phase, unitEvents(prev, &next, s.p.now()))
	return true, true
}

// RemoveUnit removes the status of a deleted unit. It keeps the status of a unit
// that was declared again since.
func (s *Statuses) RemoveUnit(key schema.Key) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if u := s.units.Get(key); u == nil || u.Phase != plan.PhaseDeleted {
		return
	}
	s.units = s.units.Without(key)
	s.changes.drop(key)
	s.recorded("", false, nil)
}

// Resource returns the status of a resource that is not a unit, or nil. The caller
// must not change it.
func (s *Statuses) Resource(key schema.Key) *plan.ThingStatus {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.resources[key]
}

// ResourcesOf returns the statuses of all resources of some kinds, in no order.
func (s *Statuses) ResourcesOf(kinds ...schema.Kind) []*plan.ThingStatus {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	var out []*plan.ThingStatus
	for k, r := range s.resources {
		if slices.Contains(kinds, k.Kind) {
			out = append(out, r)
		}
	}
	return out
}

// SetResource records the status of a resource that is not a unit, like SetUnit.
func (s *Statuses) SetResource(prev *plan.ThingStatus, next plan.ThingStatus) (changed, ok bool) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.resources[next.Key] != prev {
		return false, false
	}
	if prev != nil && slices.Equal(prev.Conditions, next.Conditions) && EqualJSON(prev, &next) {
		return false, true
	}
	s.resources[next.Key], s.shared = &next, nil
	s.noteNode(next.Key)
	s.changes.put(next.Key)
	s.recorded(next.CorrelationID, prev == nil || prev.Phase != next.Phase, resourceEvents(prev, &next, s.p.now()))
	return true, true
}

// MoveResources gives resources other keys: moves has the old key by the new one.
// A move makes no event.
func (s *Statuses) MoveResources(moves map[schema.Key]schema.Key) {
	if len(moves) == 0 {
		return
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	moved := map[schema.Key]*plan.ThingStatus{}
	for to, from := range moves {
		if r := s.resources[from]; r != nil {
			next := *r
			next.Key = to
			moved[to] = &next
		}
	}
	for _, from := range moves {
		delete(s.resources, from)
		s.changes.drop(from)
	}
	for to, r := range moved {
		s.resources[to] = r
		s.changes.put(to)
	}
	s.shared = nil
	s.recorded("", false, nil)
}

// RemoveResource removes the status of a resource, which Resource returned.
func (s *Statuses) RemoveResource(prev *plan.ThingStatus) (ok bool) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if prev == nil || s.resources[prev.Key] != prev {
		return false
	}
	delete(s.resources, prev.Key)
	s.shared = nil
	s.noteNode(prev.Key)
	s.changes.drop(prev.Key)
	s.recorded("", false, nil)
	return true
}

// Snapshot returns all statuses of one moment, and their version. The caller must
// not change them. It copies nothing unless a status changed since the last call.
func (s *Statuses) Snapshot() (units plan.Memory, resources map[schema.Key]*plan.ThingStatus, version uint64) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.shared == nil {
		s.shared = maps.Clone(s.resources)
	}
	return s.units, s.shared, s.version
}

// Version returns a number that every change of a status raises.
func (s *Statuses) Version() uint64 {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.version
}

// recorded notes a change of a status and the events it makes. The caller holds
// the lock.
func (s *Statuses) recorded(correlationID string, urgent bool, events []plan.Event) {
	s.version++
	s.p.addEvents(events...)
	s.deleted.Note(events...)
	for _, e := range events {
		s.p.causedBy(e.CorrelationID)
	}
	if urgent || len(events) > 0 {
		s.p.urgent = true
	}
	s.p.change(correlationID)
}

// noteNode keeps with the units whether a node is ready. The caller holds the lock.
func (s *Statuses) noteNode(key schema.Key) {
	if key.Kind == schema.KindNode {
		s.units = s.units.WithNode(key.Name, s.resources[key])
	}
}

// load replaces the statuses by those that a leader finds on the branch. The
// caller holds the lock.
func (s *Statuses) load(tree reconciler.StatusTree) {
	s.units = tree.Units
	if tree.Things != nil {
		s.resources, s.shared = tree.Things, nil
	}
	for key := range s.resources {
		s.noteNode(key)
	}
	s.version++
}

// addTo adds to a batch what is not on the remote. The caller holds the lock.
func (s *Statuses) addTo(b *reconciler.StatusBatch) {
	for _, k := range slices.SortedFunc(maps.Keys(s.changes.write), schema.Key.Compare) {
		if u := s.units.Get(k); u != nil {
			b.Units = append(b.Units, *u)
		} else {
			b.Things = append(b.Things, *s.resources[k])
		}
	}
	b.Gone = slices.SortedFunc(maps.Keys(s.changes.remove), schema.Key.Compare)
}

// written notes that b is on the remote. The caller holds the lock.
func (s *Statuses) written(b reconciler.StatusBatch) {
	for i := range b.Units {
		s.changes.written(b.Units[i].Key, s.units.Get(b.Units[i].Key), &b.Units[i])
	}
	for i := range b.Things {
		s.changes.written(b.Things[i].Key, s.resources[b.Things[i].Key], &b.Things[i])
	}
	for _, k := range b.Gone {
		delete(s.changes.remove, k)
	}
}

// compare sets the changes to the differences from a tree of another writer. The
// caller holds the lock.
func (s *Statuses) compare(tree reconciler.StatusTree) {
	compare(&s.changes, maps.Collect(s.units.All()), maps.Collect(tree.Units.All()))
	compare(&s.changes, s.resources, tree.Things)
}
