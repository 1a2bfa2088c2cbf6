package schema

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Codes of findings about the modes of queue maps.
const (
	CodeQueueMode     = "queues.mode"     // a warning: the mode changes
	CodeQueueRollback = "queues.rollback" // a project leaves real-policy without a rollback, or real-policy has one
	CodeQueueExpired  = "queues.expired"  // a change while a rollback has expired
	CodeQueueRunbook  = "queues.runbook"  // the runbook of real-policy or of a rollback is not published
	CodeQueueContract = "queues.contract" // a mode was chosen by another text of the contract
)

// QueueModes returns the check of the modes of queue maps in a change of an estate (requirement C5, document
// CUT). A change of a mode fulfils the five points of CUT's list for a review. After the last day of a rollback,
// changes of instances and attachments that use the map are refused, until it is renewed or removed. The mode
// itself stays. contract is the contract's page of this program as version+digest. It has no @, which the forge would make a link in
// comments. The check is pure; its before may be nil.
func QueueModes(contract string) func(before, after *Desired, today string) []Diagnostic {
	return func(before, after *Desired, today string) []Diagnostic {
		before = before.OrEmpty()
		var out []Diagnostic
		for _, m := range after.QueueMaps() {
			if old := before.mapNamed(m.Key); old == nil || old.Blob != m.Blob {
				c := modeChange{m: m, old: old, before: before, after: after, contract: contract, today: today}
				out = append(out, c.findings()...)
			}
		}
		out = append(out, servedOtherwise(before, after, out)...)
		out = append(out, servedByExpired(before, after, today)...)
		out = append(out, lostRunbooks(before, after)...)
		SortDiagnostics(out)
		return out
	}
}

// modeChange is a map that a change of the estate adds or alters.
type modeChange struct {
	m, old   *QueueMap // old is nil for a new map
	before   *Desired
	after    *Desired
	contract string
	today    string
}

// isReviewed reports whether the points of CUT's list count: the mode of the map changes, or the map is new and
// is for real-policy or for a rollback.
func (c *modeChange) isReviewed() bool {
	if c.old != nil {
		return modeOf(c.old) != modeOf(c.m)
	}
	return modeOf(c.m) == ModeRealPolicy || c.m.Spec.Rollback != nil
}

// findings returns an error for each point that is missing, and a warning with all points if the mode changes.
func (c *modeChange) findings() (out []Diagnostic) {
	for _, missing := range []*Diagnostic{c.way(), c.expired(), c.runbook(), c.page()} {
		if missing != nil {
			out = append(out, *missing)
		}
	}
	if c.isReviewed() {
		out = append(out, c.m.finding(SeverityWarning, CodeQueueMode, "spec.mode", "%s", c.list(out)))
	}
	return out
}

func (c *modeChange) refuse(code, path, format string, args ...any) *Diagnostic {
	d := c.m.finding(SeverityError, code, path, format, args...)
	return &d
}

// way refuses a way out of real-policy without a rollback, and a rollback to real-policy.
func (c *modeChange) way() *Diagnostic {
	mode := modeOf(c.m)
	switch {
	case c.old != nil && modeOf(c.old) == ModeRealPolicy && mode != ModeRealPolicy && c.m.Spec.Rollback == nil:
		return c.refuse(CodeQueueRollback, "spec.mode",
			"the mode goes back from %s to %s: add spec.rollback with owner, reason, expires_at, follow_up and runbook", ModeRealPolicy,
			mode)
	case mode == ModeRealPolicy && c.m.Spec.Rollback != nil:
		return c.refuse(CodeQueueRollback, "spec.rollback", "mode %s cannot be a rollback: remove spec.rollback", ModeRealPolicy)
	}
	return nil
}

// expired refuses a rollback whose last day is over.
func (c *modeChange) expired() *Diagnostic {
	if !c.m.Expired(c.today) {
		return nil
	}
	return c.refuse(CodeQueueExpired, "spec.rollback.expires_at", "the rollback expired on %s: set a later day, or remove spec.rollback",
		c.m.Spec.Rollback.ExpiresAt)
}

// runbook refuses a runbook that nobody can read. A page that the same change deletes counts: lostRunbooks
// refuses the deletion, which another user may have made.
func (c *modeChange) runbook() *Diagnostic {
	const advice = "name the path of a README.md below platform/, or an https link"
	for _, page := range c.m.runbooks() {
		if !c.after.Publishes(page.text) && !c.before.Publishes(page.text) {
			return c.refuse(CodeQueueRunbook, page.path, "the runbook %q is not published: %s", page.text, advice)
		}
	}
	if modeOf(c.m) == ModeRealPolicy && c.m.Spec.Runbook == "" {
		return c.refuse(CodeQueueRunbook, "spec.mode", "mode %s needs spec.runbook, the page that says how to go back: %s", ModeRealPolicy,
			advice)
	}
	return nil
}

// page refuses a change of the mode that was made by another text of the contract.
func (c *modeChange) page() *Diagnostic {
	switch was := c.m.Spec.Contract; {
	case !c.isReviewed() || was == c.contract:
		return nil
	case was == "":
		return c.refuse(CodeQueueContract, "spec.mode",
			"the change does not name the page of the contract: read it, and set spec.contract to %s", c.contract)
	case !sameVersion(was, c.contract):
		return c.refuse(CodeQueueContract, "spec.contract",
			"%s is another version of the contract than this Berth's: read its page, and set spec.contract to %s", was, c.contract)
	default:
		return c.refuse(CodeQueueContract, "spec.contract",
			"the page of the contract has another text than %s: read it again, and set spec.contract to %s", was, c.contract)
	}
}

func sameVersion(a, b string) bool {
	version, _, _ := strings.Cut(a, "+")
	other, _, _ := strings.Cut(b, "+")
	return version == other
}

// runbook is a page that a map names.
type runbook struct{ path, text string }

// runbooks lists the pages that a map names.
func (m *QueueMap) runbooks() (all []runbook) {
	if m.Spec.Runbook != "" {
		all = append(all, runbook{"spec.runbook", m.Spec.Runbook})
	}
	if r := m.Spec.Rollback; r != nil {
		all = append(all, runbook{"spec.rollback.runbook", r.Runbook})
	}
	return all
}

// list is CUT's list for a review, with each point as fulfilled or missing. missing are the errors of the change.
// The first and the fourth point hold by construction: the check states the transition itself, and no mode has
// other rules for tenants, keys or retries.
func (c *modeChange) list(missing []Diagnostic) string {
	lacks := func(codes ...string) bool {
		return slices.ContainsFunc(missing, func(d Diagnostic) bool { return slices.Contains(codes, d.Code) })
	}
	was := "no map"
	if c.old != nil {
		was = modeOf(c.old)
	}
	owner := "no rollback is declared; runbook " + cmp.Or(c.m.Spec.Runbook, "not needed")
	if r := c.m.Spec.Rollback; r != nil {
		owner = fmt.Sprintf("%s answers for the rollback until %s, %s removes it, runbook %s", r.Owner, r.ExpiresAt, r.FollowUp, r.Runbook)
	}
	version, _, _ := strings.Cut(c.contract, "+")
	var b strings.Builder
	fmt.Fprintf(&b, "the mode changes from %s to %s for %s", was, modeOf(c.m), c.m.serves())
	for i, point := range []struct {
		name, detail string
		missing      bool
	}{
		{"transition stated", "from " + was + " to " + modeOf(c.m), false},
		{"field semantics unchanged and documented", version, lacks(CodeQueueContract) && !sameVersion(c.m.Spec.Contract, c.contract)},
		{"owner, expiry and removal task", owner, lacks(CodeQueueRollback, CodeQueueExpired, CodeQueueRunbook)},
		{"tenancy, idempotency and retry unchanged", "who sees which jobs, idempotency keys and retries are the same in each mode", false},
		{"contract page in the same change", c.contract, lacks(CodeQueueContract)},
	} {
		state := "fulfilled"
		if point.missing {
			state = "missing"
		}
		fmt.Fprintf(&b, "; %d. %s: %s (%s)", i+1, point.name, state, point.detail)
	}
	return b.String()
}

// switched are the projects whose mode changes although the mode of their map does not.
type switched struct {
	at       *QueueMap // that the change alters
	from, to string
	rollback bool // the map that serves them now declares one
	projects []string
}

// servedOtherwise warns of projects that get another mode by another map, by fewer projects in applies_to or by
// a deletion. It refuses to take them out of real-policy in this way without a rollback. It leaves out files
// that have such a finding already.
func servedOtherwise(before, after *Desired, found []Diagnostic) (out []Diagnostic) {
	for _, s := range switchedBy(before, after) {
		slices.Sort(s.projects)
		names := strings.Join(s.projects, ", ")
		has := func(severity Severity) bool {
			return slices.ContainsFunc(found, func(d Diagnostic) bool { return d.File == s.at.File && d.Severity == severity })
		}
		switch {
		case s.from == ModeRealPolicy && !s.rollback:
			if !has(SeverityError) {
				out = append(out, s.at.finding(SeverityError, CodeQueueRollback, "spec",
					"the change takes %s out of mode %s: set another mode with spec.rollback in the map that serves them", names,
					ModeRealPolicy))
			}
		case !has(SeverityWarning):
			out = append(out, s.at.finding(SeverityWarning, CodeQueueMode, "spec", "the mode changes from %s to %s for %s", s.from, s.to,
				names))
		}
	}
	return out
}

// switchedBy groups the projects by the map that the change alters, and by their modes.
func switchedBy(before, after *Desired) []*switched {
	used := map[queueUser]bool{}
	for _, u := range before.queueUsers() {
		used[u] = true
	}
	all := map[string]*switched{}
	for _, u := range after.queueUsers() {
		if !used[u] {
			continue
		}
		used[u] = false // a project is named once
		was, is := before.queueMap(u), after.queueMap(u)
		if modeOf(was) == modeOf(is) || was != nil && is != nil && was.Key == is.Key {
			continue
		}
		at := is // the map that changed
		if was != nil && (is == nil || !altered(before, is)) {
			at = cmp.Or(after.mapNamed(was.Key), was) // was itself if it is deleted
		}
		s := &switched{at: at, from: modeOf(was), to: modeOf(is), rollback: is != nil && is.Spec.Rollback != nil}
		key := fmt.Sprint(at.File, " ", s.from, " ", s.to, " ", s.rollback)
		if all[key] == nil {
			all[key] = s
		}
		all[key].projects = append(all[key].projects, u.tenant+"."+u.project)
	}
	return slices.Collect(maps.Values(all))
}

// altered reports whether a map is new since before, or another one there.
func altered(before *Desired, m *QueueMap) bool {
	old := before.mapNamed(m.Key)
	return old == nil || old.Blob != m.Blob
}

// lostRunbooks refuses to delete a page that a map in real-policy or with a rollback names.
func lostRunbooks(before, after *Desired) (out []Diagnostic) {
	for _, m := range after.QueueMaps() {
		for _, page := range m.runbooks() {
			isNeeded := page.path != "spec.runbook" || modeOf(m) == ModeRealPolicy
			if !isNeeded || after.Publishes(page.text) || !before.Publishes(page.text) {
				continue
			}
			at := m.At(page.path)
			out = append(out, Diagnostic{Severity: SeverityError, Code: CodeQueueRunbook, File: page.text, Line: 1, Column: 1,
				Message: fmt.Sprintf("it is the runbook of the queue map %s (%s:%d): name another page there first", m.Key.Name, at.File,
					at.Line)})
		}
	}
	return out
}

// servedByExpired refuses new and changed instances and attachments whose map in force has an expired rollback. A
// renewal counts once it is in force, so that nobody lifts the refusal by a map that is held.
func servedByExpired(before, after *Desired, today string) (out []Diagnostic) {
	if !slices.ContainsFunc(before.QueueMaps(), func(m *QueueMap) bool { return m.Expired(today) }) {
		return nil
	}
	blobs := map[Key]string{}
	for h := range before.queueUsers() {
		blobs[h.Key] = h.Blob
	}
	for h, u := range after.queueUsers() {
		m := before.queueMap(u)
		if blob, existed := blobs[h.Key]; existed && blob == h.Blob || m == nil || !m.Expired(today) {
			continue
		}
		r, at, here := m.Spec.Rollback, m.At("spec.rollback.expires_at"), h.At("spec")
		out = append(out, Diagnostic{Severity: SeverityError, Code: CodeQueueExpired, File: here.File, Line: here.Line, Column: here.Column,
			Path: "spec",
			Message: fmt.Sprintf("its queues are mapped by %s, whose rollback expired on %s (%s:%d): %s renews or removes it first, in a "+
				"change of its own (%s)", m.Key.Name, r.ExpiresAt, at.File, at.Line, r.Owner, r.FollowUp)})
	}
	return out
}
