package inspect

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// names are the values of the flags of a filter, and the values that exist for each of them in a
// log and in the documents in force. A flag with another value is probably mistyped.
type names struct {
	flags  map[string]string          // the value of each flag; empty: the flag is not given
	exists map[string]map[string]bool // values, by flag
}

func wanted(flags map[string]string) names {
	return names{flags, map[string]map[string]bool{}}
}

// add adds a value, if the flag is given.
func (n names) add(flag, value string) {
	if n.flags[flag] == "" || value == "" {
		return
	}
	if n.exists[flag] == nil {
		n.exists[flag] = map[string]bool{}
	}
	n.exists[flag][value] = true
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

// maxListed bounds the values in a message.
const maxListed = 5

// check returns an error for each flag whose value does not exist. entry is a noun for the entries
// that were searched.
func (n names) check(entry string) error {
	var errs []error
	for flag, value := range schema.Sorted(n.flags) {
		if value == "" || n.exists[flag][value] {
			continue
		}
		all := slices.Sorted(maps.Keys(n.exists[flag]))
		message := fmt.Sprintf("--%s: no %s has %q", flag, entry, value)
		switch like := nearestName(value, all); {
		case like != "":
			message += fmt.Sprintf(": did you mean %q?", like)
		case flag == "correlation":
		case len(all) > maxListed:
			message += "; known are " + strings.Join(all[:maxListed], ", ") + " and others"
		case len(all) > 0:
			message += "; known are " + strings.Join(all, ", ")
		}
		errs = append(errs, errors.New(message))
	}
	return errors.Join(errs...)
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
