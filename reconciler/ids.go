package reconciler

import (
	"crypto/sha256"
	"encoding/hex"
)

// CorrelationID returns the id that all logs, ledgers, events, statuses and
// comments caused by a commit of main share (requirement A11). It depends on the
// commit alone, so it is the same after a restart.
func CorrelationID(commit string) string {
	sum := sha256.Sum256([]byte("berth correlation " + commit))
	return "c" + hex.EncodeToString(sum[:])[:20]
}

// Short returns the first ten digits of a commit or digest, for people.
func Short(id string) string { return id[:min(10, len(id))] }
