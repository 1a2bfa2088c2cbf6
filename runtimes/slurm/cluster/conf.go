package cluster

import (
	"strings"

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
