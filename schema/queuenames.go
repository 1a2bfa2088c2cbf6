package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// CodeQueueName is the code of the finding that a queue map has a name that none of the units that it serves has.
const CodeQueueName = "queues.name"

// CodeQueueTime is the code of the finding that a time of jobs is longer than any queue for them allows.
const CodeQueueTime = "queues.time"

// QueueNames are the names that the queues of a unit of its own have.
type QueueNames struct {
	Partitions, Accounts, QOS []string
	// Minutes has the longest time of a job by partition. A partition without a limit is missing.
	Minutes map[string]int
	// Least has the time of a partition in that unit of several which allows the least.
	Least map[string]int
}

// longest returns the longest time of a job in partitions, all of them for nil; 0: one has no limit, or
// partitions is empty.
func (n QueueNames) longest(partitions []string) (minutes int) {
	if partitions == nil {
		partitions = n.Partitions
	}
	for _, p := range partitions {
		if n.Minutes[p] == 0 {
			return 0
		}
		minutes = max(minutes, n.Minutes[p])
	}
	return minutes
}

// QueueNamesOf returns the names of a unit by its complete config. It is nil for a backend without
// queues.
type QueueNamesOf func(backend string) func(config json.RawMessage) QueueNames

// QueueRules returns the check of the queue maps, and of what they name, in a change of an estate. contract is
// that of QueueModes.
func QueueRules(contract string, of QueueNamesOf) func(before, after *Desired, today string) []Diagnostic {
	modes := QueueModes(contract)
	return func(before, after *Desired, today string) []Diagnostic {
		return slices.Concat(modes(before, after, today), mapsNameWhatExists(before, after, of), queuesNameWhatExists(before, after, of),
			mappedNamesStay(before, after, of))
	}
}

// mapsNameWhatExists checks that a partition, account or QoS of a new or changed queue map exists in one of
// the units that the map serves. A map that serves none is for later ones.
func mapsNameWhatExists(before, after *Desired, of QueueNamesOf) (out []Diagnostic) {
	for _, m := range after.QueueMaps() {
		if old := before.mapNamed(m.Key); old != nil && old.Blob == m.Blob {
			continue
		}
		if have, serves := after.namesFor(m, of); serves {
			out = append(out, m.unknownNames(have)...)
		}
	}
	return out
}

// queuesNameWhatExists checks that a queue in the terms or the limits of a project, if they are new or changed,
// is a partition of the shared runtime, and that their longest time is one that a partition allows.
func queuesNameWhatExists(before, after *Desired, of QueueNamesOf) (out []Diagnostic) {
	for was, s := range changedRuntimes(before, after) {
		if s.Runtime == nil {
			continue
		}
		have := after.queuesOf(s.Runtime, of)
		for old, a := range Changed(was.Attachments, s.Attachments) {
			if old.Blob != a.Blob {
				out = append(out, a.beyondQueues("spec.submission_policy.", &a.Spec.SubmissionPolicy.SubmissionLimits, have)...)
			}
		}
	}
	for was, i := range changedInstances(before, after) {
		if r := after.runtimeOf(i); r != nil && i.Spec.SubmissionLimits != nil && was.Blob != i.Blob {
			out = append(out, i.beyondQueues("spec.submission_limits.", i.Spec.SubmissionLimits, after.queuesOf(r, of))...)
		}
	}
	return out
}

// queuesOf returns the queues of a shared runtime; none: they are not known.
func (d *Desired) queuesOf(r *SharedRuntime, of QueueNamesOf) QueueNames {
	names, _ := d.namesOf(r.Key.Tenant, r.Spec.App, r.Spec.Version, r.Spec.Config, of)
	return names
}

// namesOf returns the names of a unit of an app by its version and config; false: they are not known, as
// the backend has no queues or the config is invalid.
func (d *Desired) namesOf(tenant string, app string, version string, config json.RawMessage, of QueueNamesOf) (QueueNames, bool) {
	v := d.Version(tenant, app, version)
	if v == nil || of(v.Spec.RuntimeBackend) == nil {
		return QueueNames{}, false
	}
	complete, err := mergedConfig(v, config)
	if err != nil {
		return QueueNames{}, false
	}
	return of(v.Spec.RuntimeBackend)(complete), true
}

// beyondQueues refuses queues that are not partitions, and a time that none of the partitions allows.
func (h *Header) beyondQueues(prefix string, l *SubmissionLimits, have QueueNames) (out []Diagnostic) {
	for i, q := range l.Queues {
		if len(have.Partitions) > 0 && !slices.Contains(have.Partitions, q) {
			at := fmt.Sprintf("%squeues[%d]", prefix, i)
			out = append(out, h.finding(SeverityError, CodeQueueName, at,
				"%s: %s is not a partition of the shared runtime, there is %s", at, q, shortList(have.Partitions)))
		}
	}
	if most := have.longest(l.Queues); most > 0 && l.MaxWalltimeMinutes > most && len(out) == 0 {
		at := prefix + "max_walltime_minutes"
		out = append(out, h.finding(SeverityError, CodeQueueTime, at,
			"%s: is %d, and no partition of the shared runtime that the project may use allows more than %d", at,
			l.MaxWalltimeMinutes, most))
	}
	return out
}

// mapName is a name in an entry of a queue map.
type mapName struct {
	field, what, name string
	known             []string // the names of this sort that a unit has
}

// lacked returns the names of an entry that are not among those of a unit.
func (q *QueueMapping) lacked(have QueueNames) []mapName {
	all := []mapName{{"partition", "partition", q.Partition, have.Partitions}, {"account", "account", q.Account, have.Accounts},
		{"qos", "QoS", q.QOS, have.QOS}}
	return slices.DeleteFunc(all, func(n mapName) bool {
		// A partition keeps the case of its name. Accounting folds that of accounts and QoS.
		isKnown := func(known string) bool {
			return known == n.name || n.field != "partition" && strings.EqualFold(known, n.name)
		}
		return n.name == "" || slices.ContainsFunc(n.known, isKnown)
	})
}

// unknownNames refuses the names of a map that are not among those of its units, and a time that none of
// their partitions of a name allows.
func (m *QueueMap) unknownNames(have QueueNames) (out []Diagnostic) {
	for i, q := range m.Spec.Queues {
		for _, n := range q.lacked(have) {
			out = append(out, m.finding(SeverityError, CodeQueueName, fmt.Sprintf("spec.queues[%d].%s", i, n.field),
				"no cluster that the map serves has the %s %s, there is %s", n.what, n.name, shortList(n.known)))
		}
		if most := have.longest([]string{q.Partition}); most > 0 && q.MaxWalltimeMinutes > most {
			out = append(out, m.finding(SeverityError, CodeQueueTime, fmt.Sprintf("spec.queues[%d].max_walltime_minutes", i),
				"%d minutes, and the partition %s allows no more than %d in any cluster that the map serves", q.MaxWalltimeMinutes,
				q.Partition, most))
		} else if least := have.Least[q.Partition]; least > 0 && q.MaxWalltimeMinutes > least {
			out = append(out, m.finding(SeverityWarning, CodeQueueTime, fmt.Sprintf("spec.queues[%d].max_walltime_minutes", i),
				"%d minutes, and in one of the clusters that the map serves the partition %s allows %d: longer jobs of %s are refused "+
					"there", q.MaxWalltimeMinutes, q.Partition, least, q.Queue))
		}
	}
	return out
}

// maxListed is how many names a message lists.
const maxListed = 20

func shortList(names []string) string {
	if len(names) > maxListed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}

// namesFor returns the names of all units that a map serves, sorted; false: it serves none.
func (d *Desired) namesFor(m *QueueMap, of QueueNamesOf) (names QueueNames, serves bool) {
	for doc, user := range d.queueUsers() {
		i := d.Instance(doc.Key)
		if i == nil || d.queueMap(user) != m {
			continue
		}
		key, version, config := i.Key, i.Spec.Version, i.Spec.Config
		if i.Spec.SharedRuntime != "" {
			shared := d.runtimeOf(i)
			if shared == nil {
				continue
			}
			key, version, config = shared.Key, shared.Spec.Version, shared.Spec.Config
		}
		its, known := d.namesOf(key.Tenant, user.app, version, config, of)
		if !known {
			continue
		}
		if i.Spec.SharedRuntime != "" { // the account of a project on a shared unit is its id
			its.Accounts = []string{user.tenant + "." + user.project}
		}
		names.addMinutes(its)
		names.Partitions = append(names.Partitions, its.Partitions...)
		names.Accounts = append(names.Accounts, its.Accounts...)
		names.QOS = append(names.QOS, its.QOS...)
		serves = true
	}
	for _, list := range []*[]string{&names.Partitions, &names.Accounts, &names.QOS} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return names, serves
}

// addMinutes adds the partitions of another unit: those of one name have the longest time of them.
func (n *QueueNames) addMinutes(other QueueNames) {
	minutes := map[string]int{}
	for _, p := range slices.Concat(n.Partitions, other.Partitions) {
		has, gets := slices.Contains(n.Partitions, p), slices.Contains(other.Partitions, p)
		if has && n.Minutes[p] == 0 || gets && other.Minutes[p] == 0 {
			continue
		}
		minutes[p] = max(n.Minutes[p], other.Minutes[p])
	}
	n.Minutes = minutes
	if n.Least == nil {
		n.Least = map[string]int{}
	}
	for p, m := range other.Minutes {
		if n.Least[p] == 0 || m < n.Least[p] {
			n.Least[p] = m
		}
	}
}

// mergedConfig is the config of a unit over the parameters of its version.
func mergedConfig(v *AppVersion, config json.RawMessage) (json.RawMessage, error) {
	var under, over map[string]any
	if err := json.Unmarshal(v.Spec.Manifest.Parameters, &under); err != nil {
		return nil, err
	}
	if len(config) > 0 {
		if err := json.Unmarshal(config, &over); err != nil {
			return nil, err
		}
	}
	return json.Marshal(MergeConfig(under, over))
}
