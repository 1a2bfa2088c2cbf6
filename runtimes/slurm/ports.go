package slurm

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
)

// choosePorts picks two ports that no other record of the host has. The first
// choice depends on the name only, so a cluster mostly gets the same ports again.
func choosePorts(cluster string, others []record) (ports, error) {
	used := map[int]bool{}
	for _, o := range others {
		used[o.Ports.Slurmctld], used[o.Ports.Slurmdbd] = true, true
	}
	h := fnv.New32a()
	h.Write([]byte(cluster))
	const pairs = (lastPort - firstPort + 1) / 2
	start := int(h.Sum32() % pairs)
	for i := range pairs {
		p := firstPort + 2*((start+i)%pairs)
		if !used[p] && !used[p+1] {
			return ports{Slurmctld: p, Slurmdbd: p + 1}, nil
		}
	}
	return ports{}, fmt.Errorf("no free ports from %d to %d: %d other instances use them", firstPort, lastPort, len(others))
}

// portsOf returns the ports in the slurm.conf of a stack that lost its record. Its daemons may run.
func portsOf(conf []byte) (ports, bool) {
	found := regexp.MustCompile(`(?m)^SlurmctldPort=([0-9]{1,5})$`).FindSubmatch(conf)
	if found == nil {
		return ports{}, false
	}
	p, err := strconv.Atoi(string(found[1]))
	return ports{Slurmctld: p, Slurmdbd: p + 1}, err == nil && p >= firstPort && p < lastPort && (p-firstPort)%2 == 0
}

// shortName returns the host name up to the first dot, which Slurm compares.
func shortName(hostname string) string {
	short, _, _ := strings.Cut(hostname, ".")
	return short
}
