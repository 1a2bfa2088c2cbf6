package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"berth/schema"
)

// Name returns the name of the cluster of key: readable, and unique by a
// hash. It has at most 40 characters, because names of tables in the
// database, which have 64, contain it.
func Name(key schema.Key) string {
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
	FirstPort = 20000
	LastPort  = 27999
)
