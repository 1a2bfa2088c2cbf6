package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// names are the values that the entries of a log and the documents in force have, by the flag that
// filters on them. A value that is not among them may be mistyped.
type names map[string]map[string]bool

func (n names) add(flag, name string) {
	if name == "" {
		return
	}
	if n[flag] == nil {
		n[flag] = map[string]bool{}
	}
	n[flag][name] = true
}

// addUnits adds the tenants, projects and instances in force.
func (n names) addUnits(d *schema.Desired) {
	for _, t := range d.Tenants {
		n.add("org", t.Name)
		for name := range t.Projects {
			n.add("project", t.Name+"."+name)
		}
	}
	for _, name := range unitNames(d) {
		n.add("instance", name)
	}
}

// maxListed bounds the names in a message.
const maxListed = 5

// check returns an error if name is not empty and no entry has it. entries says what the log has.
func (n names) check(flag, name, entries string) error {
	if name == "" || n[flag][name] {
		return nil
	}
	all := slices.Sorted(maps.Keys(n[flag]))
	message := fmt.Sprintf("--%s: no %s has %q", flag, entries, name)
	switch like := nearestName(name, all); {
	case like != "":
		return fmt.Errorf("%s: did you mean %q?", message, like)
	case len(all) == 0 || flag == "correlation":
		return fmt.Errorf("%s", message)
	case len(all) > maxListed:
		return fmt.Errorf("%s; known are %s and others", message, strings.Join(all[:maxListed], ", "))
	}
	return fmt.Errorf("%s; known are %s", message, strings.Join(all, ", "))
}

// nearestName is the name that is like one, or that ends with it, as train does for
// physics.lattice/train.
func nearestName(name string, all []string) string {
	if i := slices.IndexFunc(all, func(n string) bool { return strings.HasSuffix(n, "/"+name) || strings.HasSuffix(n, "."+name) }); i >= 0 {
		return all[i]
	}
	return load.Nearest(name, all)
}

// unitNames are the names of the instances and of the tenants' shared runtimes, as the commands
// take them.
func unitNames(d *schema.Desired) (all []string) {
	for _, t := range d.Tenants {
		for name := range t.SharedRuntimes {
			all = append(all, t.Name+"/"+name)
		}
		for _, p := range t.Projects {
			for _, i := range p.Instances {
				all = append(all, i.Key.ResourceName())
			}
		}
	}
	slices.Sort(all)
	return all
}
