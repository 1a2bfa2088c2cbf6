package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// names are those that the entries of a log have, by the flag that selects one. A log that has no
// entry with a name does not know it: the name may be mistyped.
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
