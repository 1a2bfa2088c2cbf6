package schema

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// CodeUpgradeFrom is the code of a finding about a change of version that the
// new version's upgrade_from does not admit.
const CodeUpgradeFrom = "lifecycle.upgrade-from"

// CodeUpgradeWindow is the code of a finding about a change of version that the
// software cannot make in one step. CodeUpgradeStep is that of a unit that begins with
// a version that is only a step of an upgrade.
const (
	CodeUpgradeWindow = "lifecycle.upgrade-window"
	CodeUpgradeStep   = "lifecycle.upgrade-step"
)

// admits says whether an instance of version from may change to this version.
// Without upgrade_from it may come from any version; an empty list admits none.
func (m *Manifest) admits(from string) bool {
	return m.UpgradeFrom == nil || slices.Contains(m.UpgradeFrom, from)
}

// Upgrades finds instances and shared runtimes that change to a version whose
// upgrade_from does not name the version in force, or that its software cannot reach in
// one step. before is in force; after is what would be. A unit that is new, or that
// changes to another app, is not an upgrade. A unit that moved within its tenant is
// found by its uid. Pure.
func Upgrades(before, after *Desired) []Diagnostic {
	u := upgrades{before, after}
	var out []Diagnostic
	if after.Platform != nil {
		out = append(out, u.shared(cmp.Or(before.Platform, &Platform{}).SharedRuntimes, after.Platform.SharedRuntimes)...)
	}
	for was, is := range Changed(before.Tenants, after.Tenants) {
		out = append(out, u.shared(was.SharedRuntimes, is.SharedRuntimes)...)
		out = append(out, u.instances(was, is)...)
	}
	return out
}

// upgrades finds changes of version between two estates.
type upgrades struct{ before, after *Desired }

// selected is the version that a unit runs; zero: the unit does not exist.
type selected struct{ app, version string }

// selectedBy returns the version that the unit of key runs.
func (d *Desired) selectedBy(key Key) selected {
	switch doc := d.Document(key).(type) {
	case *SharedRuntime:
		return doc.selected()
	case *Instance:
		return doc.selected()
	}
	return selected{}
}

// selected returns the version that r runs. r may be nil.
func (r *SharedRuntime) selected() selected {
	if r == nil {
		return selected{}
	}
	return selected{r.Spec.App, r.Spec.Version}
}

func (i *Instance) selected() selected { return selected{i.Spec.App, i.Spec.Version} }

// units yields each shared runtime and each instance with the version that it runs, in no order.
func (d *Desired) units() iter.Seq2[Key, selected] {
	return func(yield func(Key, selected) bool) {
		for _, s := range d.sharedRuntimes() {
			if !yield(s.Runtime.Key, s.Runtime.selected()) {
				return
			}
		}
		for i := range d.instances() {
			if !yield(i.Key, i.selected()) {
				return
			}
		}
	}
}

func (u upgrades) shared(was, is map[string]*SharedRuntimeEstate) (out []Diagnostic) {
	for old, now := range Changed(was, is) {
		if r := now.Runtime; r != nil {
			out = append(out, u.change(&r.Header, old.Runtime.selected(), r.selected())...)
		}
	}
	return out
}

func (u upgrades) instances(was, is *TenantEstate) (out []Diagnostic) {
	byUID := map[string]*Instance{} // of the projects that differ: an instance moves between two of them
	for _, p := range Changed(is.Projects, was.Projects) {
		for _, i := range p.Instances {
			byUID[i.UID] = i
		}
	}
	delete(byUID, "")
	for old, p := range Changed(was.Projects, is.Projects) {
		for was, i := range Changed(old.Instances, p.Instances) {
			was = cmp.Or(byUID[i.UID], was)
			out = append(out, u.change(&i.Header, was.selected(), i.selected())...)
		}
	}
	return out
}

// change is the finding about the version of one unit, if there is one.
func (u upgrades) change(h *Header, from, to selected) []Diagnostic {
	v := u.after.Version(h.Key.Tenant, to.app, to.version)
	if from == to || v == nil {
		return nil
	}
	if from.app != to.app {
		if release := v.Release(); release != nil && release.Step {
			return []Diagnostic{h.finding(SeverityError, CodeUpgradeStep, "spec.version",
				"spec.version: %s is %s, which Berth does not run and which is only a step of an upgrade: choose a version "+
					"of %s", v.Key.Name, v.Spec.Version, strings.Join(v.Releases.Run(), ", "))}
		}
		return nil
	}
	if !v.Spec.Manifest.admits(from.version) {
		return []Diagnostic{notAdmitted(h, from.version, v)}
	}
	return u.window(h, from, v)
}

// notAdmitted is the finding about a version whose upgrade_from does not name from.
func notAdmitted(h *Header, from string, v *AppVersion) Diagnostic {
	at := v.At("spec.manifest.upgrade_from")
	admitted, next := "from no version", "create a new instance of "+v.Key.Name+" and delete this one"
	if list := v.Spec.Manifest.UpgradeFrom; len(list) > 0 {
		admitted, next = "only from "+strings.Join(list, ", "), "change to one of these first"
	}
	return h.finding(SeverityError, CodeUpgradeFrom, "spec.version",
		"spec.version: version %s is in force here, and %s of %s can be reached %s (%s:%d): %s, or have the platform add %s "+
			"to upgrade_from", from, v.Key.Name, v.Key.Parent, admitted, at.File, at.Line, next, from)
}

// window is the finding about a version whose software does not take over the data of
// the one in force.
func (u upgrades) window(h *Header, from selected, v *AppVersion) []Diagnostic {
	old := u.before.Version(h.Key.Tenant, from.app, from.version)
	if old == nil || old.Spec.RuntimeBackend != v.Spec.RuntimeBackend {
		return nil
	}
	was, is := v.Releases.Of(old.Spec.Version), v.Release()
	if was == nil || is == nil || was.Series == is.Series || slices.Contains(is.From, was.Series) {
		return nil
	}
	at := v.At("spec.version")
	next := "there is no way back: restore a backup of before the upgrade, or create a new instance of " + v.Key.Name +
		" and delete this one"
	if path := v.Releases.Path(was.Series, is.Series); path != nil {
		next = fmt.Sprintf("upgrade in the steps %s, each in a change of its own that comes into force before the next; change to a "+
			"version of %s first", strings.Join(path, " → "), path[1])
	}
	return []Diagnostic{h.finding(SeverityError, CodeUpgradeWindow, "spec.version",
		"spec.version: version %s (%s) is in force here, and %s of %s (%s, %s:%d) does not take over its data: %s",
		from.version, old.Spec.Version, v.Key.Name, v.Key.Parent, v.Spec.Version, at.File, at.Line, next)}
}
