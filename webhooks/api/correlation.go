package api

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
)

var (
	correlationForm = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9._]{7,63}$`)
	// changeForm is the form of reconciler.CorrelationID. Each caller can compute the id of a commit: as
	// the id of requests it would mix them into the trace of the change.
	changeForm = regexp.MustCompile(`^c[0-9a-f]{20}$`)
	traceForm  = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$`)
	noTrace    = strings.Repeat("0", 32)
)

// correlationID is the caller's correlation id if it is valid and not that of a change, else its trace id, else
// a new one.
func correlationID(h http.Header) string {
	if id := h.Get("X-Correlation-ID"); correlationForm.MatchString(id) && !changeForm.MatchString(id) {
		return id
	}
	if m := traceForm.FindStringSubmatch(h.Get("Traceparent")); m != nil && m[1] != noTrace {
		return m[1]
	}
	var id [10]byte
	_, _ = rand.Read(id[:]) // never fails
	return "r" + hex.EncodeToString(id[:])
}
