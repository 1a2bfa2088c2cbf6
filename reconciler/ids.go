package reconciler

import (
	"crypto/sha256"
	"encoding/hex"
)

// CorrelationID joins everything that a commit of main causes: logs, ledgers,
// events, status, comments (requirement A11). It follows from the commit alone, so
// that it is the same after a restart.
func CorrelationID(commit string) string {
	sum := sha256.Sum256([]byte("berth correlation " + commit))
	return "c" + hex.EncodeToString(sum[:])[:20]
}

// Short is the beginning of a commit's or digest's id, for people.
func Short(id string) string { return id[:min(10, len(id))] }
