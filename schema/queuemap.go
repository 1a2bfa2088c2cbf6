package schema

import (
	"fmt"
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
	CodeQueueMode     = "queues.mode"     // a warning: a change of the mode, and what it leaves as it is
	CodeQueueRollback = "queues.rollback" // a mode without real-policy that says not who answers for it, or too long
	CodeQueueExpired  = "queues.expired"  // a rollback whose time is over, in the way of what the map serves
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
	if tenants != nil {
		return tenants
	}
	return everybody
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
// change from real-policy says who answers for it and until when. While a rollback has expired, a change
// of what its map serves is refused, until the rollback is renewed or removed. The mode itself never
// changes by time. before may be nil. Pure.
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
		out = append(out, m.found(SeverityError, CodeQueueRollback, "spec.rollback", "mode %s is no rollback: remove spec.rollback", ModeRealPolicy))
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

// queueUsers returns the projects with an instance of an app, or with an attachment to a shared runtime of it.
func (d *Desired) queueUsers() map[queueUser]bool {
	all := map[queueUser]bool{}
	if d == nil {
		return all
	}
	attached := func(runtimes map[string]*SharedRuntimeEstate) {
		for _, r := range runtimes {
			for _, a := range r.Attachments {
				if tenant, project, ok := strings.Cut(a.Spec.ProjectID, "."); ok && r.Runtime != nil {
					all[queueUser{r.Runtime.Spec.App, tenant, project}] = true
				}
			}
		}
	}
	attached(d.Platform.SharedRuntimes)
	for tenant, t := range d.Tenants {
		attached(t.SharedRuntimes)
		for project, p := range t.Projects {
			for _, i := range p.Instances {
				all[queueUser{i.Spec.App, tenant, project}] = true
			}
		}
	}
	return all
}

// leavingReal refuses a change that takes a project out of real-policy without a rollback in any other way
// than by the mode of its map: by another map, by fewer projects in applies_to, or by a deletion. It leaves
// out files that have an error already.
func leavingReal(before, after *Desired, found []Diagnostic) (out []Diagnostic) {
	users, files := before.queueUsers(), map[string][]string{}
	changed := map[string]*QueueMap{}
	for u := range after.queueUsers() {
		was, is := before.queueMap(u), after.queueMap(u)
		if !users[u] || was == nil || was.Spec.Mode != ModeRealPolicy || is != nil && (is.Spec.Mode == ModeRealPolicy || is.Spec.Rollback != nil) {
			continue
		}
		at := was // the map that changed: the new one, else the old one as it is now, else the deleted one
		for _, m := range after.QueueMaps() {
			if m.Key == was.Key {
				at = m
			}
		}
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
	refuse := func(h *Header, app, tenant, project string) {
		if m := after.QueueMapOf(app, tenant, project); m != nil && m.Expired(today) {
			r, at := m.Spec.Rollback, m.At("spec.rollback.expires_at")
			here := h.At("spec")
			out = append(out, Diagnostic{Severity: SeverityError, Code: CodeQueueExpired, File: here.File, Line: here.Line, Column: here.Column, Path: "spec",
				Message: fmt.Sprintf("its queues are mapped by %s, whose rollback expired on %s (%s:%d): %s renews or removes it first (%s)", m.Key.Name, r.ExpiresAt, at.File, at.Line, r.Owner, r.FollowUp)})
		}
	}
	for name, t := range after.Tenants {
		for project, p := range t.Projects {
			for _, i := range p.Instances {
				if old := before.instanceOrNil(i.Key); old == nil || old.Blob != i.Blob {
					refuse(i.Head(), i.Spec.App, name, project)
				}
			}
		}
		refuseAttachments(before, after, name, t.SharedRuntimes, refuse)
	}
	refuseAttachments(before, after, "", after.Platform.SharedRuntimes, refuse)
	return out
}

func refuseAttachments(before, after *Desired, tenant string, runtimes map[string]*SharedRuntimeEstate, refuse func(h *Header, app, tenant, project string)) {
	for name, r := range runtimes {
		if r.Runtime == nil {
			continue
		}
		for _, a := range r.Attachments {
			if old := before.attachment(tenant, name, a.Key.Name); old == nil || old.Blob != a.Blob {
				owner, project, _ := strings.Cut(a.Spec.ProjectID, ".")
				refuse(a.Head(), r.Runtime.Spec.App, owner, project)
			}
		}
	}
}

func (d *Desired) instanceOrNil(key Key) *Instance {
	if d == nil {
		return nil
	}
	return d.Instance(key)
}

func (d *Desired) attachment(tenant, runtime, name string) *Attachment {
	if d == nil {
		return nil
	}
	in := d.Platform.SharedRuntimes
	if t := d.Tenants[tenant]; tenant != "" {
		if t == nil {
			return nil
		}
		in = t.SharedRuntimes
	}
	if r := in[runtime]; r != nil {
		return r.Attachments[name]
	}
	return nil
}
