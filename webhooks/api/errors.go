package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// code is an error code: stable, as people branch on it (requirement A12).
type code string

const (
	codeAuthRequired code = "auth.required"         // no token
	codeAuthInvalid  code = "auth.invalid"          // an invalid token
	codePermission   code = "permission.denied"     // for resources that are not hidden
	codeEndpoint     code = "endpoint.not_allowed"  // not among the account's allowed_endpoints
	codeNotFound     code = "resource.not_found"    // unknown, or hidden from the caller
	codeFeature      code = "feature.disabled"      // a disabled family (requirement A16)
	codeWrite        code = "write.by_pull_request" // writable by a pull request only
	codeMethod       code = "method.not_allowed"
	codeAccept       code = "accept.unsupported"
	codeProject      code = "project.mismatch" // X-Project-ID and path disagree (requirement A18)
	codeCursor       code = "cursor.invalid"
	codeQuery        code = "query.invalid"
	codePlace        code = "last_event_id.invalid"   // of a stream of events (requirement E7)
	codeBreakGlass   code = "break_glass.no_reason"   // an admin path without X-Break-Glass
	codeMisplaced    code = "break_glass.not_allowed" // X-Break-Glass elsewhere
	codeTooLong      code = "request.too_long"
	codeRate         code = "rate.limited"
	codeInternal     code = "internal"
	codeUnaudited    code = "audit.unavailable" // the audit record of an admin path cannot be stored (requirement B2)
	codeNotReady     code = "not_ready"
	codeStandby      code = "leader.elsewhere" // this daemon is a standby; Location points to the leader

	codeKey              code = "idempotency_key.invalid" // none, several, or not in its form
	codeBody             code = "body.invalid"
	codeConfiguration    code = "queue.configuration" // the map of queues is wrong (requirement C3)
	codeNoOutput         code = "queue.no_output"     // the job has no file that its user may read
	codeQueueDenied      code = "queue.denied"        // by the map of queues or a limit of the scheduler
	codeConflict         code = "idempotency_key.used"
	codeOperation        code = "operation.refused"
	codeQueueUnavailable code = "queue.unavailable"
)

// status is the HTTP status of a code.
func (c code) status() int {
	switch c {
	case codeStandby:
		return http.StatusTemporaryRedirect
	case codeProject, codeCursor, codeQuery, codePlace, codeBreakGlass, codeMisplaced, codeKey, codeBody:
		return http.StatusBadRequest
	case codeAuthRequired, codeAuthInvalid:
		return http.StatusUnauthorized
	case codePermission, codeEndpoint:
		return http.StatusForbidden
	case codeNotFound, codeFeature, codeNoOutput:
		return http.StatusNotFound
	case codeWrite, codeMethod:
		return http.StatusMethodNotAllowed
	case codeAccept:
		return http.StatusNotAcceptable
	case codeTooLong:
		return http.StatusRequestURITooLong
	case codeRate:
		return http.StatusTooManyRequests
	case codeConfiguration, codeQueueDenied, codeOperation:
		return http.StatusUnprocessableEntity
	case codeConflict:
		return http.StatusConflict
	case codeUnaudited, codeNotReady, codeQueueUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// retryAfter is how long a caller waits for what is not there yet.
const retryAfter = 5 * time.Second

// failure is an error answer.
type failure struct {
	code     code
	message  string         // the fault and the next step; never a secret
	details  map[string]any // for machines
	after    time.Duration  // Retry-After
	allow    string         // Allow
	location string         // Location
	cause    error          // for the log only
}

func (f *failure) Error() string { return string(f.code) + ": " + f.message }

// notFound is the same answer for an unknown and for a hidden resource, so that a
// caller cannot discover names.
func notFound() *failure {
	return &failure{code: codeNotFound, message: "not found, or hidden from you: check the path and your token"}
}

// envelope is the canonical error (requirement A12).
type envelope struct {
	Error struct {
		Code          code           `json:"code"`
		Message       string         `json:"message"`
		CorrelationID string         `json:"correlation_id"`
		Details       map[string]any `json:"details"`
	} `json:"error"`
}

// write answers with the failure and the ids of the path.
func (f *failure) write(w http.ResponseWriter, correlation string, ids [][2]string) {
	var e envelope
	e.Error.Code, e.Error.Message, e.Error.CorrelationID, e.Error.Details = f.code, f.message, correlation, map[string]any{}
	for _, id := range ids {
		e.Error.Details[id[0]] = id[1]
	}
	maps.Copy(e.Error.Details, f.details)
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // it has only strings
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if f.code.status() == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="berth"`)
	}
	if f.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int((f.after+time.Second-1)/time.Second)))
	}
	if f.location != "" {
		h.Set("Location", f.location)
	}
	if f.code.status() == http.StatusMethodNotAllowed {
		h.Set("Allow", f.allow)
	}
	w.WriteHeader(f.code.status())
	_, _ = w.Write(append(body, '\n')) // who is gone needs no answer
}
