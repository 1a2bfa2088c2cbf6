package schema

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Modes of a QueueMap (requirement C2). They differ only in whether a runtime is asked.
const (
	ModePassthrough = "passthrough" // the requested queue is the partition; the map's lines are not used
	ModeStubPolicy  = "stub-policy" // the map decides alone
	ModeRealPolicy  = "real-policy" // the map decides, and the runtime must have its targets
)

// Codes of findings about the modes of queue maps.
const (
	CodeQueueMode     = "queues.mode"     // a warning: the mode changes
	CodeQueueRollback = "queues.rollback" // a project leaves real-policy without a rollback, or real-policy has one
	CodeQueueExpired  = "queues.expired"  // a change while a rollback has expired
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
	var tenants, everybody *QueueMap
	for _, m := range d.QueueMaps() {
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

// Expired reports whether the map's rollback should have ended before today, a UTC day.
func (m *QueueMap) Expired(today string) bool {
	r := m.Spec.Rollback
	return r != nil && today != "" && r.ExpiresAt < today
}

// serves says for whom a map is, for people.
func (m *QueueMap) serves() string {
	if len(m.Spec.AppliesTo) == 0 {
		return "everybody"
	}
	return strings.Join(m.Spec.AppliesTo, ", ")
}

// QueueModes checks the modes of queue maps in a change of an estate (requirement C5, document CUT): a
// change from real-policy has an owner and a last day. After that day, changes of instances and attachments
// that use the map are refused, until the rollback is renewed or removed. The mode itself stays. before may be nil. Pure.
func QueueModes(before, after *Desired, today string) []Diagnostic {
	var out []Diagnostic
	was := map[string]*QueueMap{}
	for _, m := range before.QueueMaps() {
		was[m.Key.Name] = m
	}
	for _, m := range after.QueueMaps() {
		if old := was[m.Key.Name]; old == nil || old.Blob != m.Blob {
			out = append(out, m.changed(old, today)...)
		}
	}
	out = append(out, leavingReal(before, after, out)...)
	out = append(out, servedByExpired(before, after, today)...)
	SortDiagnostics(out)
	return out
}

func (m *QueueMap) found(severity Severity, code, path, format string, args ...any) Diagnostic {
	at := m.At(path)
	return Diagnostic{Severity: severity, Code: code, Message: fmt.Sprintf(format, args...), File: at.File, Line: at.Line, Column: at.Column, Path: path}
}

// changed returns the findings about a map that a change adds or alters.
func (m *QueueMap) changed(old *QueueMap, today string) (out []Diagnostic) {
	r := m.Spec.Rollback
	leaves := old != nil && old.Spec.Mode == ModeRealPolicy && m.Spec.Mode != ModeRealPolicy
	switch {
	case leaves && r == nil:
		out = append(out, m.found(SeverityError, CodeQueueRollback, "spec.mode", "the mode goes back from %s to %s: add spec.rollback with owner, reason, expires_at, follow_up and runbook", ModeRealPolicy, m.Spec.Mode))
	case r != nil && m.Spec.Mode == ModeRealPolicy:
		out = append(out, m.found(SeverityError, CodeQueueRollback, "spec.rollback", "mode %s cannot be a rollback: remove spec.rollback", ModeRealPolicy))
	case m.Expired(today):
		out = append(out, m.found(SeverityError, CodeQueueExpired, "spec.rollback.expires_at", "the rollback expired on %s: set a later day, or remove spec.rollback", r.ExpiresAt))
	}
	if old != nil && old.Spec.Mode != m.Spec.Mode {
		until := "no rollback is declared"
		if r != nil {
			until = fmt.Sprintf("%s answers for the rollback until %s, %s removes it, runbook %s", r.Owner, r.ExpiresAt, r.FollowUp, r.Runbook)
		}
		out = append(out, m.found(SeverityWarning, CodeQueueMode, "spec.mode",
			"the mode changes from %s to %s for %s; the fields of an answer, who sees which jobs, idempotency keys and retries stay as deploy/reference has them; %s", old.Spec.Mode, m.Spec.Mode, m.serves(), until))
	}
	return out
}

// queueUser is a project that uses the queues of an app.
type queueUser struct{ app, tenant, project string }

// queueUsers yields each instance, and each attachment to a shared runtime, with the project and the app whose
// queues it uses. d may be nil.
func (d *Desired) queueUsers() iter.Seq2[*Header, queueUser] {
	return func(yield func(*Header, queueUser) bool) {
		if d == nil {
			return
		}
		attached := func(runtimes map[string]*SharedRuntimeEstate) bool {
			for _, r := range runtimes {
				for _, a := range r.Attachments {
					tenant, project, _ := strings.Cut(a.Spec.ProjectID, ".")
					if r.Runtime != nil && !yield(a.Head(), queueUser{r.Runtime.Spec.App, tenant, project}) {
						return false
					}
				}
			}
			return true
		}
		if !attached(d.Platform.SharedRuntimes) {
			return
		}
		for tenant, t := range d.Tenants {
			if !attached(t.SharedRuntimes) {
				return
			}
			for project, p := range t.Projects {
				for _, i := range p.Instances {
					if !yield(i.Head(), queueUser{i.Spec.App, tenant, project}) {
						return
					}
				}
			}
		}
	}
}

// leavingReal refuses a change that takes a project out of real-policy without a rollback in any other way
// than by the mode of its map: by another map, by fewer projects in applies_to, or by a deletion. It leaves
// out files that have an error already.
func leavingReal(before, after *Desired, found []Diagnostic) (out []Diagnostic) {
	used := map[queueUser]bool{}
	for _, u := range before.queueUsers() {
		used[u] = true
	}
	files, changed := map[string][]string{}, map[string]*QueueMap{}
	for _, u := range after.queueUsers() {
		if !used[u] {
			continue
		}
		used[u] = false // a project is named once
		was, is := before.queueMap(u), after.queueMap(u)
		if was == nil || was.Spec.Mode != ModeRealPolicy || is != nil && (is.Spec.Mode == ModeRealPolicy || is.Spec.Rollback != nil) {
			continue
		}
		at := cmp.Or(after.mapNamed(was.Key), was) // the map that changed; was itself if it is deleted
		if is != nil && (before.mapNamed(is.Key) == nil || before.mapNamed(is.Key).Blob != is.Blob) {
			at = is
		}
		changed[at.File], files[at.File] = at, append(files[at.File], u.tenant+"."+u.project)
	}
	for file, projects := range files {
		if slices.ContainsFunc(found, func(d Diagnostic) bool { return d.File == file && d.Severity == SeverityError }) {
			continue
		}
		slices.Sort(projects)
		out = append(out, changed[file].found(SeverityError, CodeQueueRollback, "spec", "the change takes %s out of mode %s: set another mode with spec.rollback in the map that serves them", strings.Join(projects, ", "), ModeRealPolicy))
	}
	return out
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

// servedByExpired refuses new and changed instances and attachments whose map's rollback has expired.
func servedByExpired(before, after *Desired, today string) (out []Diagnostic) {
	if !slices.ContainsFunc(after.QueueMaps(), func(m *QueueMap) bool { return m.Expired(today) }) {
		return nil
	}
	blobs := map[Key]string{}
	for h := range before.queueUsers() {
		blobs[h.Key] = h.Blob
	}
	for h, u := range after.queueUsers() {
		m := after.queueMap(u)
		if blob, existed := blobs[h.Key]; existed && blob == h.Blob || m == nil || !m.Expired(today) {
			continue
		}
		r, at, here := m.Spec.Rollback, m.At("spec.rollback.expires_at"), h.At("spec")
		out = append(out, Diagnostic{Severity: SeverityError, Code: CodeQueueExpired, File: here.File, Line: here.Line, Column: here.Column, Path: "spec",
			Message: fmt.Sprintf("its queues are mapped by %s, whose rollback expired on %s (%s:%d): %s renews or removes it first (%s)", m.Key.Name, r.ExpiresAt, at.File, at.Line, r.Owner, r.FollowUp)})
	}
	return out
}
