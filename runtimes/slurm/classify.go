package slurm

import (
	"maps"
	"slices"
	"strings"
)

// class says what it takes to bring a changed slurm.conf into effect. What
// needs a restart must not be tried by a reconfigure: slurmctld ends with
// "fatal" over some of it, and the client learns nothing.
type class int

const (
	unchanged   class = iota
	live              // text only; nothing to do
	reconfigure       // scontrol reconfigure
	restart           // slurmctld restarts; jobs go on
)

// restartOnly are the parameters Slurm 22.05 reads at start only.
var restartOnly = []string{
	"accountingstorageenforce", "accountingstoragehost", "accountingstorageport", "accountingstoragepass", "accountingstoragetype",
	"authinfo", "authtype", "clustername", "credtype", "grestypes", "jobcontainertype", "maxjobcount", "maxnodecount", "plugindir",
	"proctracktype", "schedulertype", "selecttype", "selecttypeparameters", "slurmctldhost", "slurmctldparameters", "slurmctldport",
	"slurmdport", "slurmuser", "statesavelocation", "switchtype", "taskplugin", "treewidth",
}

// classify compares two slurm.conf.
func classify(before, after []byte) class {
	if string(before) == string(after) {
		return unchanged
	}
	old, now := parameters(before), parameters(after)
	c := live
	names := maps.Clone(old)
	maps.Copy(names, now)
	for name := range names {
		if slices.Equal(old[name], now[name]) {
			continue
		}
		if slices.Contains(restartOnly, name) {
			return restart
		}
		c = reconfigure
	}
	return c
}

// parameters are the lines of a slurm.conf by lower-case name; a line of nodes,
// sets or partitions is known by its first word. The order of lines of one name
// counts, as the first of some wins.
func parameters(conf []byte) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(string(conf)) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		name = strings.ToLower(strings.TrimSpace(name))
		out[name] = append(out[name], strings.TrimSpace(value))
	}
	return out
}

// partitionsOf are the names of a slurm.conf's partitions.
func partitionsOf(conf []byte) []string {
	var names []string
	for _, line := range parameters(conf)["partitionname"] {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	return names
}
