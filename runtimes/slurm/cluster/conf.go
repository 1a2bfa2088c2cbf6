package cluster

import (
	"maps"
	"slices"
	"strings"

	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
)

// confLine is a line of slurm.conf: NodeName=gpu-1 CPUs=4 has the name NodeName.
type confLine struct{ name, value string }

// object returns the node or the partition of a line that has one.
func (l confLine) object() string {
	object, _, _ := strings.Cut(l.value, " ")
	return object
}

// confLines are the lines of slurm.conf, without comments.
type confLines []confLine

// ParseConf returns the lines of a slurm.conf on a host. Slurm takes names in any case.
func ParseConf(text []byte) (all confLines) {
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		all = append(all, confLine{strings.TrimSpace(name), strings.TrimSpace(value)})
	}
	return all
}

// of returns the lines of a name.
func (c confLines) of(name string) (all []confLine) {
	for _, l := range c {
		if strings.EqualFold(l.name, name) {
			all = append(all, l)
		}
	}
	return all
}

// Partitions returns the names of the partitions.
func (c confLines) Partitions() (names []string) {
	for _, l := range c.of(profile.PartitionName) {
		names = append(names, l.object())
	}
	return names
}

// grouped returns the values by the key of their lines. The order of values is kept, as the first one of some parameters wins.
func (c confLines) grouped(key func(confLine) string) map[string][]string {
	out := map[string][]string{}
	for _, l := range c {
		out[key(l)] = append(out[key(l)], l.value)
	}
	return out
}

// classify compares the lines of two slurm.conf of a version of Slurm.
func classify(before, after confLines, version cli.Version) profile.Activation {
	if slices.Equal(before, after) {
		return profile.None
	}
	byName := func(l confLine) string { return strings.ToLower(l.name) }
	old, now := before.grouped(byName), after.grouped(byName)
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

// ClassifyText compares a slurm.conf on a host with another one. Slurm compares hashes of the text, so a changed comment needs a
// reconfigure.
func ClassifyText(before, after []byte, version cli.Version) profile.Activation {
	if string(before) == string(after) {
		return profile.None
	}
	return max(profile.Reconfigure, classify(ParseConf(before), ParseConf(after), version))
}

// ActivationOf returns what makes slurmctld take over changed files, of which slurm.conf needs conf.
func ActivationOf(s profile.Stack, conf profile.Activation, changed map[string]File) profile.Activation {
	for path := range changed {
		switch path {
		case s.Conf(), s.Accounts(), s.DBDConf(), s.LogRotation():
		default:
			conf = max(conf, profile.Reconfigure)
		}
	}
	return conf
}

// StepsAfter returns the steps that follow the write of changed files, which slurmctld takes over as how says.
func StepsAfter(s profile.Stack, version cli.Version, how profile.Activation, changed map[string]File) Steps {
	_, database := changed[s.DBDConf()]
	_, cgroup := changed[s.CgroupConf()] // which slurmd reads at its start
	return Steps{
		Restart: how >= profile.RestartController, Workers: how >= profile.RestartAll || cgroup && !version.Reexecutes(),
		Reconfigure: how >= profile.Reconfigure, Database: database,
	}
}
