package schema

import (
	"fmt"
	"slices"
	"strings"
)

// MappedNamesStay returns a warning for each changed unit whose config no longer has a partition or QoS that the
// queue map of one of its projects names. The map is not part of the change, and may have another owner.
func MappedNamesStay(of QueueNamesOf) func(before, after *Desired) []Diagnostic {
	return func(before, after *Desired) (out []Diagnostic) {
		if before == nil || before.Platform == nil || len(after.QueueMaps()) == 0 {
			return nil
		}
		out = lostByShared("", before, after, before.Platform.SharedRuntimes, after.Platform.SharedRuntimes, of)
		for name, t := range after.Tenants {
			old := before.Tenants[name]
			if old == nil || old == t {
				continue
			}
			out = append(out, lostByShared(name, before, after, old.SharedRuntimes, t.SharedRuntimes, of)...)
			for project, p := range t.Projects {
				for _, i := range p.Instances {
					was := before.Instance(i.Key)
					if was == nil || was.Blob == i.Blob || i.Spec.SharedRuntime != "" {
						continue
					}
					had, _ := before.namesOf(name, was.Spec.App, was.Spec.Version, was.Spec.Config, of)
					have, known := after.namesOf(name, i.Spec.App, i.Spec.Version, i.Spec.Config, of)
					if m := after.QueueMapOf(i.Spec.App, name, project); known && m != nil {
						out = append(out, m.lostNames(&i.Header, had, have)...)
					}
				}
			}
		}
		return out
	}
}

// lostByShared is MappedNamesStay for the shared runtimes of a tenant, or of the platform.
func lostByShared(owner string, before, after *Desired, old, now map[string]*SharedRuntimeEstate, of QueueNamesOf) (out []Diagnostic) {
	for name, s := range now {
		was := old[name]
		if was == nil || was.Runtime == nil || s.Runtime == nil || was.Runtime.Blob == s.Runtime.Blob {
			continue
		}
		had, _ := before.namesOf(owner, was.Runtime.Spec.App, was.Runtime.Spec.Version, was.Runtime.Spec.Config, of)
		have, known := after.namesOf(owner, s.Runtime.Spec.App, s.Runtime.Spec.Version, s.Runtime.Spec.Config, of)
		if !known {
			continue
		}
		var told []*QueueMap
		for _, a := range s.Attachments {
			tenant, project, _ := strings.Cut(a.Spec.ProjectID, ".")
			if m := after.QueueMapOf(s.Runtime.Spec.App, tenant, project); m != nil && !slices.Contains(told, m) {
				told = append(told, m)
				out = append(out, m.lostNames(&s.Runtime.Header, had, have)...)
			}
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
