package slurm

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"

	"berth/runtimes/slurm/cluster"
)

// choosePorts picks two ports that no other record of the host has. The first
// choice depends on the name only, so a cluster mostly gets the same ports again.
func choosePorts(name string, others []record) (cluster.Ports, error) {
	used := map[int]bool{}
	for _, o := range others {
		used[o.Ports.Slurmctld], used[o.Ports.Slurmdbd] = true, true
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	const pairs = (cluster.LastPort - cluster.FirstPort + 1) / 2
	start := int(h.Sum32() % pairs)
	for i := range pairs {
		p := cluster.FirstPort + 2*((start+i)%pairs)
		if !used[p] && !used[p+1] {
			return cluster.Ports{Slurmctld: p, Slurmdbd: p + 1}, nil
		}
	}
	return cluster.Ports{}, fmt.Errorf("no free ports from %d to %d: %d other instances use them", cluster.FirstPort, cluster.LastPort,
		len(others))
}

// portsOf returns the ports in the slurm.conf of a stack that lost its record. Its daemons may run.
func portsOf(conf []byte) (cluster.Ports, bool) {
	found := regexp.MustCompile(`(?m)^SlurmctldPort=([0-9]{1,5})$`).FindSubmatch(conf)
	if found == nil {
		return cluster.Ports{}, false
	}
	p, err := strconv.Atoi(string(found[1]))
	return cluster.Ports{Slurmctld: p, Slurmdbd: p + 1}, err == nil && p >= cluster.FirstPort && p < cluster.LastPort &&
		(p-cluster.FirstPort)%2 == 0
}

// shortName returns the host name up to the first dot, which Slurm compares.
func shortName(hostname string) string {
	short, _, _ := strings.Cut(hostname, ".")
	return short
}
