package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
)

// A person's change by scontrol is in slurmctld's memory alone, and the next reconfigure reverts it to the file that
// Berth wrote. So it is a difference.

// ChangedByHand returns the differences of partitions and nodes between slurmctld and the slurm.conf of the cluster.
// closes reports whether Berth is closing a partition: that one is left out.
func (c *Cluster) ChangedByHand(partitions []cli.Partition, nodes []cli.Node, closes func(partition string) bool) []string {
	conf, err := c.slurmConf()
	if err != nil {
		return nil // nothing was written that could be compared
	}
	return append(changedPartitions(conf.lines, partitions, closes), changedNodes(conf.lines, nodes)...)
}

// unwritten are the values that a partition has in slurmctld where its line in slurm.conf does not have the key
// (slurm.conf(5)). Keys that are not here are not compared, such as JobDefaults and PreemptMode.
var unwritten = map[string]string{
	"State": "UP", "MaxTime": "UNLIMITED", "DefaultTime": "NONE", "AllowAccounts": "ALL", "AllowQos": "ALL", "Hidden": "NO",
	"RootOnly": "NO", "MaxNodes": "UNLIMITED", "PriorityTier": "1", "Default": "NO", "OverSubscribe": "NO",
	"AllowGroups": "ALL", "ReqResv": "NO", "AllocNodes": "ALL", "Exclusive": "NO", "ExclusiveUser": "NO", "ExclusiveTopo": "NO",
	"GraceTime": "0", "LLN": "NO", "MinNodes": "0", "MaxCPUsPerNode": "UNLIMITED", "MaxCPUsPerSocket": "UNLIMITED",
	"MaxMemPerNode": "UNLIMITED",
	"DefMemPerNode": "UNLIMITED", "OverTimeLimit": "NONE", "PriorityJobFactor": "1", "QoS": "N/A",
	// These are printed if they are set.
	"DenyAccounts": notSet, "DenyQos": notSet, "DefMemPerCPU": notSet, "MaxMemPerCPU": notSet, "TRESBillingWeights": notSet,
}

const notSet = "(none)"

// writtenAs is the key in slurm.conf of a value that scontrol prints under another one.
var writtenAs = map[string]string{"QoS": "QOS"}

// changedPartitions returns how the partitions in slurmctld differ from slurm.conf, such as "partition main is
// DOWN by hand; it is declared UP". Those that Berth is closing are left out.
func changedPartitions(conf confLines, known []cli.Partition, closes func(string) bool) (changed []string) {
	written := conf.Partitions()
	for _, p := range known {
		if !slices.Contains(written, p.Name) && !closes(p.Name) {
			changed = append(changed, "partition "+p.Name+" was made by hand")
		}
	}
	for _, line := range conf.of(profile.PartitionName) {
		name, values := line.object(), line.values()
		if closes(name) {
			continue
		}
		i := slices.IndexFunc(known, func(p cli.Partition) bool { return p.Name == name })
		if i < 0 {
			changed = append(changed, "partition "+name+" was deleted by hand")
			continue
		}
		changed = append(changed, changedValues(name, values, known[i].Values)...)
		if _, printed := known[i].Values["Nodes"]; printed {
			want := nodesOfLine(conf, values["Nodes"])
			if lost := without(want, known[i].Nodes); lost != "" {
				changed = append(changed, fmt.Sprintf("partition %s lacks %s in slurmctld", name, lost))
			}
			if more := without(known[i].Nodes, want); more != "" {
				changed = append(changed, fmt.Sprintf("partition %s has %s in slurmctld only", name, more))
			}
		}
	}
	return changed
}

// changedValues returns how the values of a partition in slurmctld, as scontrol printed them, differ from those of its line. A value that
// is not written has the default of Slurm, and one that is not printed is unknown.
func changedValues(name string, written, printed map[string]string) (changed []string) {
	for _, key := range slices.Sorted(maps.Keys(unwritten)) {
		want, isWritten := written[cmp.Or(writtenAs[key], key)]
		if !isWritten {
			want = unwritten[key]
		}
		got, isPrinted := printed[key]
		if !isPrinted && unwritten[key] == notSet {
			got, isPrinted = notSet, true
		}
		switch {
		case !isPrinted || partitionValue(key, got) == partitionValue(key, want):
		case key == "State":
			changed = append(changed, fmt.Sprintf("partition %s is %s by hand; it is declared %s", name, got, want))
		default:
			changed = append(changed, fmt.Sprintf("partition %s has %s %s in slurmctld, and %s in slurm.conf",
				name, key, partitionValue(key, got), partitionValue(key, want)))
		}
	}
	return changed
}

// changedNodes returns how the nodes in slurmctld differ from slurm.conf, whose lines give no weight. Their shape is compared
// elsewhere.
func changedNodes(conf confLines, known []cli.Node) (changed []string) {
	sorted := func(list []string) string { return strings.Join(slices.Sorted(slices.Values(list)), ",") }
	for _, line := range conf.of(profile.NodeName) {
		name, values := line.object(), line.values()
		i := slices.IndexFunc(known, func(n cli.Node) bool { return n.Name == name })
		if i < 0 {
			continue
		}
		n := known[i]
		if got, want := sorted(n.Features), sorted(strings.Split(values["Feature"], ",")); got != want {
			changed = append(changed, fmt.Sprintf("node %s has the features %s in slurmctld, and %s in slurm.conf", name, got, want))
		}
		if n.Weight != 1 {
			changed = append(changed, fmt.Sprintf("node %s has the weight %d in slurmctld, and 1 in slurm.conf", name, n.Weight))
		}
		if want := values["NodeAddr"]; n.Address != "" && want != "" && n.Address != want {
			changed = append(changed, fmt.Sprintf("node %s has the address %s in slurmctld, and %s in slurm.conf", name, n.Address, want))
		}
	}
	return changed
}

// values returns the values of the line of a partition or node, by key.
func (l confLine) values() map[string]string {
	values := map[string]string{}
	for word := range strings.FieldsSeq(strings.TrimPrefix(l.value, l.object())) {
		key, value, _ := strings.Cut(word, "=")
		values[key] = value
	}
	return values
}

// partitionValue returns a value in one form: slurm.conf has minutes, and scontrol prints D-HH:MM:SS; a list has
// no order, and Slurm keeps accounts and QoS in lower case.
func partitionValue(key, value string) string {
	switch key {
	case "MaxTime", "DefaultTime":
		if minutes, err := strconv.Atoi(value); err == nil {
			return fmt.Sprintf("%d-%02d:%02d:00", minutes/(24*60), minutes/60%24, minutes%60)
		}
		if !strings.Contains(value, "-") && strings.Contains(value, ":") {
			return "0-" + value
		}
	case "AllowAccounts", "AllowQos":
		list := strings.Split(strings.ToLower(value), ",")
		slices.Sort(list)
		return strings.Join(list, ",")
	case "QoS":
		if value != unwritten[key] {
			return strings.ToLower(value)
		}
	}
	return value
}

// nodesOfLine returns the nodes of a partition's line.
func nodesOfLine(conf confLines, declared string) (nodes []string) {
	if declared != "ALL" {
		return strings.Split(declared, ",")
	}
	for _, line := range conf.of(profile.NodeName) {
		nodes = append(nodes, line.object())
	}
	return nodes
}

// without lists the nodes of a list that another one lacks. A cluster without workers has the node none.
func without(nodes, other []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(nodes),
		func(n string) bool { return n == "" || n == "none" || slices.Contains(other, n) }), ", ")
}
