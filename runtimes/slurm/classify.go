package slurm

import (
	"maps"
	"slices"
	"strings"

	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
)

// classify compares two states of a slurm.conf of Slurm version. Slurm compares hashes of
// the text, so a changed comment needs a reconfigure.
func classify(before, after []byte, version cli.Version) profile.Activation {
	if string(before) == string(after) {
		return profile.None
	}
	old, now := parameters(before), parameters(after)
	how := profile.Reconfigure
	names := maps.Clone(old)
	maps.Copy(names, now)
	for name := range names {
		if !slices.Equal(old[name], now[name]) {
			how = max(how, profile.ActivationOf(name, string(version)))
		}
	}
	return how
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
