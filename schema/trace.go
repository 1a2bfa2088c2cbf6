package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// TraceID is the W3C trace id of a correlation id: the id itself if it has that form, else the beginning of its
// SHA-256.
func TraceID(correlationID string) string {
	if isTraceID(correlationID) {
		return correlationID
	}
	sum := sha256.Sum256([]byte(correlationID))
	return hex.EncodeToString(sum[:16])
}

// isTraceID reports whether s has 32 lower-case hexadecimal digits that are not all zero.
func isTraceID(s string) bool {
	return len(s) == 32 && strings.Trim(s, "0123456789abcdef") == "" && strings.Trim(s, "0") != ""
}
