package slurm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"

	"berth/schema"
)

// ClusterName returns the name of the cluster of key: readable, and unique by a
// hash. It is at most 40 characters long, as it is part of names of tables in the
// database, which have 64.
func ClusterName(key schema.Key) string {
	sum := sha256.Sum256([]byte(key.String()))
	readable := strings.ReplaceAll(strings.Join([]string{key.Tenant, key.Project, key.Name}, "_"), "-", "_")
	if readable[0] < 'a' || readable[0] > 'z' {
		readable = "c" + readable
	}
	const hash = 8
	readable = strings.TrimRight(readable[:min(len(readable), 40-1-hash)], "_")
	return readable + "_" + hex.EncodeToString(sum[:])[:hash]
}

// The range of ports of stacks, below the ephemeral ports.
const (
	firstPort = 20000
	lastPort  = 27999
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
