package slurm

import (
	"maps"
	"slices"
	"strings"

	"berth/runtimes/slurm/profile"
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

// needsRestart reports whether a changed parameter needs a restart: one of a table, or
// one that a person may have added.
func needsRestart(name string) bool {
	added := []string{"jobcontainertype", "maxjobcount", "plugindir", "schedulertype"}
	return slices.Contains(added, name) || slices.ContainsFunc(profile.Stack{}.SlurmConf(), func(p profile.Parameter) bool {
		return p.Restart && strings.EqualFold(p.Name, name)
	})
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
		if needsRestart(name) {
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
