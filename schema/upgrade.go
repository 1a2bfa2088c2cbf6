package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// CodeUpgradeFrom is the code of a finding about a change of version that the
// new version's upgrade_from does not admit.
const CodeUpgradeFrom = "lifecycle.upgrade-from"

// admits says whether an instance of version from may change to this version.
// Without upgrade_from it may come from any version; an empty list admits none.
func (m *Manifest) admits(from string) bool {
	return m.UpgradeFrom == nil || slices.Contains(m.UpgradeFrom, from)
}

// Upgrades finds instances and shared runtimes that change to a version whose
// upgrade_from does not name the version in force. before is in force; after
// is what would be. A unit that is new, or that changes to another app, is not
// an upgrade. A unit that moved within its tenant is found by its uid. Pure.
func Upgrades(before, after *Desired) []Diagnostic {
	var out []Diagnostic
	if before.Platform != nil && after.Platform != nil {
		out = append(out, sharedUpgrades(after, before.Platform.SharedRuntimes, after.Platform.SharedRuntimes)...)
	}
	for _, tenant := range slices.Sorted(maps.Keys(after.Tenants)) {
		was, is := before.Tenants[tenant], after.Tenants[tenant]
		if was == nil || was == is {
			continue
		}
		out = append(out, sharedUpgrades(after, was.SharedRuntimes, is.SharedRuntimes)...)
		out = append(out, instanceUpgrades(after, was, is)...)
	}
	return out
}

func sharedUpgrades(after *Desired, was, is map[string]*SharedRuntimeEstate) (out []Diagnostic) {
	for _, name := range slices.Sorted(maps.Keys(is)) {
		old, now := was[name], is[name]
		if old == nil || old == now || old.Runtime == nil || now.Runtime == nil {
			continue
		}
		o, n := &old.Runtime.Spec, &now.Runtime.Spec
		out = append(out, upgrade(after, &now.Runtime.Header, [2]string{o.App, n.App}, o.Version, n.Version)...)
	}
	return out
}

func instanceUpgrades(after *Desired, was, is *TenantEstate) (out []Diagnostic) {
	byUID := map[string]*Instance{}
	for _, p := range was.Projects {
		for _, i := range p.Instances {
			if i.UID != "" {
				byUID[i.UID] = i
			}
		}
	}
	for _, project := range slices.Sorted(maps.Keys(is.Projects)) {
		now := is.Projects[project].Instances
		for _, name := range slices.Sorted(maps.Keys(now)) {
			i := now[name]
			old := byUID[i.UID]
			if p := was.Projects[project]; old == nil && p != nil {
				old = p.Instances[name]
			}
			if old != nil && old != i {
				out = append(out, upgrade(after, &i.Header, [2]string{old.Spec.App, i.Spec.App}, old.Spec.Version, i.Spec.Version)...)
			}
		}
	}
	return out
}

// upgrade is the finding about one unit's change of version, if it is not admitted.
func upgrade(after *Desired, h *Header, apps [2]string, from, to string) []Diagnostic {
	if apps[0] != apps[1] || from == to {
		return nil
	}
	v := after.Version(apps[1], to)
	if v == nil || v.Spec.Manifest.admits(from) {
		return nil
	}
	at := v.At("spec.manifest.upgrade_from")
	admitted, next := "from no version", "create a new instance of "+to+" and delete this one"
	if list := v.Spec.Manifest.UpgradeFrom; len(list) > 0 {
		admitted, next = "only from "+strings.Join(list, ", "), "change to one of these first"
	}
	return []Diagnostic{h.finding("spec.version", SeverityError, CodeUpgradeFrom,
		fmt.Sprintf("spec.version: version %s is in force here, and %s of %s can be reached %s (%s:%d): %s, or have the platform add %s to upgrade_from", from, to, apps[1], admitted, at.File, at.Line, next, from))}
}
