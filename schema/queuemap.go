package schema

import (
	"cmp"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Modes of a QueueMap (requirement C2). They differ only in whether a runtime is asked.
const (
	ModePassthrough = "passthrough" // the requested queue is the partition; the map's lines are not used
	ModeStubPolicy  = "stub-policy" // the map decides alone
	ModeRealPolicy  = "real-policy" // the map decides, and the runtime must have its targets
)

// QueueMaps returns the queue maps of the platform, by name.
func (d *Desired) QueueMaps() []*QueueMap {
	var all []*QueueMap
	if d == nil || d.Platform == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(d.Platform.Others)) {
		if m, ok := d.Platform.Others[name].(*QueueMap); ok {
			all = append(all, m)
		}
	}
	return all
}

// QueueMapOf returns the map of queues of an app that holds for a project: one that names the project,
// else its tenant, else everybody. Nil: none.
func (d *Desired) QueueMapOf(app, tenant, project string) *QueueMap {
	return QueueMapAmong(d.QueueMaps(), app, tenant, project)
}

// QueueMapAmong is QueueMapOf for many projects: all is what QueueMaps returns.
func QueueMapAmong(all []*QueueMap, app, tenant, project string) *QueueMap {
	var tenants, everybody *QueueMap
	for _, m := range all {
		switch to := m.Spec.AppliesTo; {
		case m.Suspend || m.Spec.App != app:
		case slices.Contains(to, tenant+"."+project):
			return m
		case slices.Contains(to, tenant):
			tenants = m
		case len(to) == 0:
			everybody = m
		}
	}
	return cmp.Or(tenants, everybody)
}

// QueueOf returns the queue whose jobs run in a partition with a QoS: the line that names both, else the one
// that names the partition only. "": no line does, or several. m may be nil.
func (m *QueueMap) QueueOf(partition, qos string) string {
	if modeOf(m) == ModePassthrough {
		return partition
	}
	for _, named := range []string{qos, ""} {
		var queues []string
		for _, q := range m.Spec.Queues {
			if q.Partition == partition && q.QOS == named {
				queues = append(queues, q.Queue)
			}
		}
		if len(queues) == 1 {
			return queues[0]
		}
		if len(queues) > 1 {
			return ""
		}
	}
	return ""
}

// Expired reports whether the map's rollback should have ended before today, a UTC day.
func (m *QueueMap) Expired(today string) bool {
	r := m.Spec.Rollback
	return r != nil && today != "" && r.ExpiresAt < today
}

// modeOf returns the mode of a map. A project without a map has passthrough.
func modeOf(m *QueueMap) string {
	if m == nil {
		return ModePassthrough
	}
	return m.EffectiveMode()
}

// EffectiveMode returns the mode of the map; the default if the document names none.
func (m *QueueMap) EffectiveMode() string { return cmp.Or(m.Spec.Mode, ModeStubPolicy) }

// Publishes reports whether people can read a page: an https link, which is not opened, or the path of a
// README.md below platform/, which only users with notes.write at the platform change.
func (d *Desired) Publishes(page string) bool {
	return d != nil && d.Platform != nil && IsPublished(page, d.Platform.Notes) || IsPublished(page, nil)
}

// IsPublished reports whether people can read a page: an https link, which is not opened, or one of notes,
// the sorted paths of README.md.
func IsPublished(page string, notes []string) bool {
	if strings.HasPrefix(page, "https://") {
		link, err := url.Parse(page)
		return err == nil && link.Hostname() != "" && link.User == nil
	}
	file, _, _ := strings.Cut(page, "#")
	_, found := slices.BinarySearch(notes, file)
	return found
}

// serves says for whom a map is, for people.
func (m *QueueMap) serves() string {
	if len(m.Spec.AppliesTo) == 0 {
		return "everybody"
	}
	return strings.Join(m.Spec.AppliesTo, ", ")
}

// queueUser is a project that uses the queues of an app.
type queueUser struct{ app, tenant, project string }

// queueUsers yields each instance, and each attachment to a shared runtime, with the project and the app whose
// queues it uses.
func (d *Desired) queueUsers() iter.Seq2[*Header, queueUser] {
	return func(yield func(*Header, queueUser) bool) {
		for _, r := range d.sharedRuntimes() {
			for _, a := range r.Attachments {
				tenant, project, _ := strings.Cut(a.Spec.ProjectID, ".")
				if !yield(a.Head(), queueUser{r.Runtime.Spec.App, tenant, project}) {
					return
				}
			}
		}
		for i := range d.instances() {
			if !yield(i.Head(), queueUser{i.Spec.App, i.Key.Tenant, i.Key.Project}) {
				return
			}
		}
	}
}

func (d *Desired) queueMap(u queueUser) *QueueMap { return d.QueueMapOf(u.app, u.tenant, u.project) }

func (d *Desired) mapNamed(key Key) *QueueMap {
	for _, m := range d.QueueMaps() {
		if m.Key == key {
			return m
		}
	}
	return nil
}
