package slurm

import (
	"maps"
	"slices"
	"strings"
)

// class is the way in which slurmctld takes over a changed slurm.conf. A change that
// needs a restart must not be tried with a reconfigure: for some parameters
// slurmctld exits with "fatal", and the client gets no error.
type class int

const (
	unchanged   class = iota
	live              // comments only; nothing to do
	reconfigure       // scontrol reconfigure
	restart           // slurmctld restarts; jobs continue
)

// restartOnly are the parameters that Slurm 22.05 reads only at start.
var restartOnly = []string{
	"accountingstorageenforce", "accountingstoragehost", "accountingstorageport", "accountingstoragepass", "accountingstoragetype",
	"authinfo", "authtype", "clustername", "credtype", "grestypes", "jobcontainertype", "maxjobcount", "maxnodecount", "plugindir",
	"proctracktype", "schedulertype", "selecttype", "selecttypeparameters", "slurmctldhost", "slurmctldparameters", "slurmctldport",
	"slurmdport", "slurmuser", "statesavelocation", "switchtype", "taskplugin", "treewidth",
}

// classify compares two versions of slurm.conf.
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

// parameters returns the values of a slurm.conf by lower-case name. A line of nodes,
// sets or partitions has the name of its first word. The order of values is kept,
// as the first one of some parameters wins.
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

// partitionsOf returns the names of the partitions in a slurm.conf.
func partitionsOf(conf []byte) []string {
	var names []string
	for _, line := range parameters(conf)["partitionname"] {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	return names
}
