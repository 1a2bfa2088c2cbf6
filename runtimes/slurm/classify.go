package slurm

import (
	"maps"
	"slices"
	"strings"

	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
)

// activationOf returns what makes the daemons take over a changed parameter of slurm.conf: one
// of the table, or one that a person has added. A change that needs a restart must not be
// tried with a reconfigure: for some parameters slurmctld exits with "fatal", and the
// client gets no error. An unknown version is treated as 22.05, whose restarts are right for
// all.
func activationOf(name string, version cli.Version) profile.Activation {
	for _, p := range (profile.Stack{}).SlurmConf() {
		switch {
		case !strings.EqualFold(p.Name, name):
		case version.Reexecutes() && slices.Contains(profile.TakenOverAnew(), p.Name):
			return profile.Reconfigure
		default:
			return p.Needs
		}
	}
	if slices.Contains([]string{"jobcontainertype", "maxjobcount", "plugindir", "schedulertype"}, name) {
		return profile.RestartAll
	}
	return profile.Reconfigure
}

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
			how = max(how, activationOf(name, version))
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
