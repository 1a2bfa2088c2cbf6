package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// Rules of a config that its definition in CUE cannot express.

// configProblems collects problems.
type configProblems []schema.ConfigProblem

func (c *configProblems) add(path, format string, args ...any) {
	*c = append(*c, schema.ConfigProblem{Path: path, Message: fmt.Sprintf(format, args...)})
}

// configCheck finds the problems of a config. Each method checks one part of it.
type configCheck struct {
	set *Config
	configProblems
}

// check returns the problems of a config by itself.
func (s *Config) check() []schema.ConfigProblem {
	c := configCheck{set: s}
	c.partitions()
	c.allQoS()
	c.topology()
	c.options()
	c.reservations()
	if !isFree(s.UsersAccount()) {
		c.add("account", "invalid name %q", s.Account)
	}
	for i, kind := range s.PrivateData {
		if !slices.Contains(profile.PrivateData(), kind) {
			c.add(item("private_data", i), "%q is not one of %s", kind, strings.Join(profile.PrivateData(), ", "))
		}
	}
	if s.Identity != "" && s.Identity != IdentityManaged && s.Identity != identityExternal {
		c.add("identity", "%q is neither %s nor %s", s.Identity, IdentityManaged, identityExternal)
	}
	if s.Confinement != "" && s.Confinement != confinementCgroup && s.Confinement != ConfinementNone {
		c.add("confinement", "%q is neither %s nor %s", s.Confinement, confinementCgroup, ConfinementNone)
	}
	for name, months := range map[string]int{"records_months": s.Retention.RecordsMonths, "usage_months": s.Retention.UsageMonths} {
		if months < 0 || months > maxRetention {
			c.add("retention."+name, "is %d", months)
		}
	}
	c.programs()
	if s.Scheduler.IntervalSeconds < 1 {
		c.add("scheduler.interval_seconds", "is %d", s.Scheduler.IntervalSeconds)
	}
	return c.configProblems
}

// isFree reports whether a partition, a QoS or an account may have a name: Slurm reads these
// words, in any case, as all of them, as settings of each, or as the administrator.
func isFree(name string) bool {
	return profile.IsName(name) && !slices.Contains([]string{"all", "default", "root"}, strings.ToLower(name))
}

func (c *configCheck) partitions() {
	seen := map[string]bool{}
	chosen := ""
	for i, p := range c.set.Partitions {
		at := item("partitions", i)
		switch {
		case !isFree(p.Name):
			c.add(at+".name", "invalid name %q", p.Name)
		case seen[strings.ToLower(p.Name)]:
			c.add(at+".name", "the partition %s is listed twice: accounting does not tell upper from lower case", p.Name)
		}
		seen[strings.ToLower(p.Name)] = true
		if p.Default && chosen != "" {
			c.add(at+".default", "only one partition can be the default, and %s is", chosen)
		} else if p.Default {
			chosen = p.Name
		}
		c.partition(at, p)
	}
}

// partition checks the fields of one partition that depend on others.
func (c *configCheck) partition(at string, p Partition) {
	if p.MaxTimeMinutes < 0 {
		c.add(at+".max_time_minutes", "is negative")
	}
	if longest := c.set.maxTime(p); longest > 0 && p.DefaultTimeMinutes > longest {
		c.add(at+".default_time_minutes", "is %d, more than the partition's longest time, which is %d", p.DefaultTimeMinutes, longest)
	}
	if p.PreemptMode != "" && (c.set.Preemption == nil || c.set.Preemption.By != preemptPartition) {
		c.add(at+".preempt_mode", "has no effect without preemption.by: %s", preemptPartition)
	}
	for i, name := range p.AllowAccounts {
		if name != c.set.UsersAccount() && !projectID.MatchString(name) {
			c.add(item(at+".allow_accounts", i),
				"there is no account %s: there is %s, or that of an attached project by its id, as <tenant>.<project>", name,
				c.set.UsersAccount())
		}
	}
	for i, name := range p.AllowQOS {
		if known := c.set.qosNames(); !slices.Contains(known, name) {
			c.add(item(at+".allow_qos", i), "there is no QoS %s: there is %s", name, strings.Join(known, ", "))
		}
	}
	if known := c.set.qosNames(); p.QOS != "" && !slices.Contains(known, p.QOS) {
		c.add(at+".qos", "there is no QoS %s: there is %s", p.QOS, strings.Join(known, ", "))
	}
}

// qosNames returns the names of the QoS: that of each cluster, and the declared ones.
func (s *Config) qosNames() []string {
	names := []string{accounting.Normal}
	for _, q := range s.QoS {
		if q.Name != accounting.Normal {
			names = append(names, q.Name)
		}
	}
	return names
}

// topology checks that the switches are a tree, or several.
func (c *configCheck) topology() {
	index, parent := map[string]int{}, map[string]string{}
	for i, sw := range c.set.Topology.Switches {
		index[sw.Name] = i
	}
	under := func(at, child, name string) {
		if of := parent[child]; of != "" {
			c.add(at, "%s is below the switch %s already", strings.TrimPrefix(child, "node "), of)
			return
		}
		parent[child] = name
	}
	for i, sw := range c.set.Topology.Switches {
		at := item("topology.switches", i)
		if (len(sw.Nodes) > 0) == (len(sw.Switches) > 0) {
			c.add(at, "a switch has either nodes or switches")
		}
		for k, node := range sw.Nodes {
			under(item(at+".nodes", k), "node "+node, sw.Name)
		}
		for k, child := range sw.Switches {
			if _, ok := index[child]; !ok {
				c.add(item(at+".switches", k), "there is no switch %s", child)
				continue
			}
			under(item(at+".switches", k), child, sw.Name)
		}
	}
	for i, sw := range c.set.Topology.Switches {
		for at, steps := parent[sw.Name], 0; at != ""; at, steps = parent[at], steps+1 {
			if at == sw.Name || steps > len(parent) {
				c.add(item("topology.switches", i)+".switches", "the switch %s is below itself", sw.Name)
				break
			}
		}
	}
}

// options checks the options by the table of parameters.
func (c *configCheck) options() {
	for _, name := range slices.Sorted(maps.Keys(c.set.Options)) {
		p, ok := findOption(name)
		switch value := string(c.set.Options[name]); {
		case !ok:
			c.add("options."+name, "is no option; the options are %s", strings.Join(optionNames(""), ", "))
		case !p.Allowed.Allow(value):
			c.add("options."+name, "%q is not an allowed value: want %s", value, p.Allowed)
		}
	}
}

// version checks what depends on the version: its release of Slurm and its roles.
func (c *configCheck) version(v *schema.AppVersion) {
	for _, name := range slices.Sorted(maps.Keys(c.set.Options)) {
		if p, ok := findOption(name); ok && p.Classes.On(v.Spec.Version) == profile.Unsupported {
			c.add("options."+name, "Slurm %s does not know it; its options are %s", v.Spec.Version,
				strings.Join(optionNames(v.Spec.Version), ", "))
		}
	}
	var roles []string
	for _, name := range slices.Sorted(maps.Keys(v.Spec.Manifest.Roles)) {
		if !v.Spec.Manifest.Roles[name].ControlPlane {
			roles = append(roles, name)
		}
	}
	for i, p := range c.set.Partitions {
		if p.Nodes == nil {
			continue
		}
		for k, role := range p.Nodes.Roles {
			if !slices.Contains(roles, role) {
				c.add(item(item("partitions", i)+".nodes.roles", k), "the version has no role %s for workers: there is %s", role,
					strings.Join(roles, ", "))
			}
		}
	}
}

// findOption returns the row of an option.
func findOption(name string) (profile.Parameter, bool) {
	all := profile.Options()
	i := slices.IndexFunc(all, func(p profile.Parameter) bool { return p.Name == name })
	if i < 0 {
		return profile.Parameter{}, false
	}
	return all[i], true
}

// optionNames returns the options that a version of Slurm knows; empty: all.
func optionNames(version string) []string {
	var names []string
	for _, p := range profile.Options() {
		if version == "" || p.Classes.On(version) != profile.Unsupported {
			names = append(names, p.Name)
		}
	}
	return names
}

func item(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }
