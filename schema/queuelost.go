package schema

import (
	"fmt"
	"slices"
	"strings"
)

// mappedNamesStay returns a warning for each changed unit whose config no longer has a partition or QoS that the
// queue map of one of its projects names. The map is not part of the change, and may have another owner.
func mappedNamesStay(before, after *Desired, of QueueNamesOf) (out []Diagnostic) {
	if before == nil || before.Platform == nil || len(after.QueueMaps()) == 0 {
		return nil
	}
	for was, s := range changedRuntimes(before, after) {
		out = append(out, lostByShared(before, after, was.Runtime, s, of)...)
	}
	for was, i := range changedInstances(before, after) {
		if was.Key != i.Key || was.Blob == i.Blob || i.Spec.SharedRuntime != "" {
			continue // new, unchanged or without partitions of its own
		}
		had, _ := before.namesOf(i.Key.Tenant, was.Spec.App, was.Spec.Version, was.Spec.Config, of)
		have, known := after.namesOf(i.Key.Tenant, i.Spec.App, i.Spec.Version, i.Spec.Config, of)
		if m := after.QueueMapOf(i.Spec.App, i.Key.Tenant, i.Key.Project); known && m != nil {
			out = append(out, m.lostNames(&i.Header, had, have)...)
		}
	}
	return out
}

// lostByShared is mappedNamesStay for one shared runtime; was is nil for a new one.
func lostByShared(before, after *Desired, was *SharedRuntime, s *SharedRuntimeEstate, of QueueNamesOf) (out []Diagnostic) {
	is := s.Runtime
	if was == nil || is == nil || was.Blob == is.Blob {
		return nil
	}
	have, known := after.namesOf(is.Key.Tenant, is.Spec.App, is.Spec.Version, is.Spec.Config, of)
	if !known {
		return nil
	}
	had := before.queuesOf(was, of)
	var told []*QueueMap
	for _, a := range s.Attachments {
		tenant, project, _ := strings.Cut(a.Spec.ProjectID, ".")
		if m := after.QueueMapOf(is.Spec.App, tenant, project); m != nil && !slices.Contains(told, m) {
			told = append(told, m)
			out = append(out, m.lostNames(&is.Header, had, have)...)
		}
	}
	return out
}

// lostNames warns of the partitions and QoS of a map that a unit had and has no longer, and of times of its queues that
// a partition allowed and allows no longer.
func (m *QueueMap) lostNames(unit *Header, had, have QueueNames) (out []Diagnostic) {
	had.Accounts, have.Accounts = nil, nil // those of members, which a change of the config does not touch
	for i, q := range m.Spec.Queues {
		of := []string{q.Partition}
		if most := have.longest(of); most > 0 && q.MaxWalltimeMinutes > most &&
			(had.longest(of) == 0 || q.MaxWalltimeMinutes <= had.longest(of)) {
			at := m.At(fmt.Sprintf("spec.queues[%d].max_walltime_minutes", i))
			out = append(out, unit.Warning("spec.config", CodeQueueTime,
				"the partition %s then allows %d minutes, and the queue %s promises %d (%s): longer jobs are refused", q.Partition, most,
				q.Queue, q.MaxWalltimeMinutes, at.Place()))
		}
		before := q.lacked(had)
		for _, n := range q.lacked(have) {
			if !slices.ContainsFunc(before, func(b mapName) bool { return b.field == n.field }) {
				at := m.At(fmt.Sprintf("spec.queues[%d].%s", i, n.field))
				out = append(out, unit.Warning("spec.config", CodeQueueName,
					"this takes away the %s %s, which the queue %s needs (%s): submissions to that queue fail until its map names another",
					n.what, n.name, q.Queue, at.Place()))
			}
		}
	}
	return out
}
