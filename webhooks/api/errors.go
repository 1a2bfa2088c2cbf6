package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// Error codes: stable, as people branch on them (requirement A12).
const (
	codeAuthRequired = "auth.required"           // 401: no token
	codeAuthInvalid  = "auth.invalid"            // 401: an invalid token
	codePermission   = "permission.denied"       // 403: for resources that are not hidden
	codeEndpoint     = "endpoint.not_allowed"    // 403: not among the account's allowed_endpoints
	codeNotFound     = "resource.not_found"      // 404: unknown, or hidden from the caller
	codeFeature      = "feature.disabled"        // 404: a disabled family (requirement A16)
	codeWrite        = "write.by_pull_request"   // 405: writable by a pull request only
	codeMethod       = "method.not_allowed"      // 405
	codeAccept       = "accept.unsupported"      // 406
	codeProject      = "project.mismatch"        // 400: X-Project-ID and path disagree (requirement A18)
	codeCursor       = "cursor.invalid"          // 400
	codeQuery        = "query.invalid"           // 400
	codeBreakGlass   = "break_glass.no_reason"   // 400: an admin path without X-Break-Glass
	codeMisplaced    = "break_glass.not_allowed" // 400: X-Break-Glass elsewhere
	codeTooLong      = "request.too_long"        // 414
	codeRate         = "rate.limited"            // 429
	codeInternal     = "internal"                // 500
	codeUnaudited    = "audit.unavailable"       // 503: the audit record of an admin path cannot be stored (requirement B2)
	codeNotReady     = "not_ready"               // 503
)

// failure is an error answer.
type failure struct {
	status  int
	code    string
	message string         // the fault and the next step; never a secret
	details map[string]any // for machines
	after   time.Duration  // Retry-After
	allow   string         // Allow
	cause   error          // for the log only
}

func (f *failure) Error() string { return f.code + ": " + f.message }

// notFound is the same answer for an unknown and for a hidden resource, so that a
// caller cannot discover names.
func notFound() *failure {
	return &failure{status: http.StatusNotFound, code: codeNotFound,
		message: "not found, or hidden from you: check the path and your token"}
}

// NotServed answers a path of an API that is not served, as an API answers an unknown
// path.
func NotServed(w http.ResponseWriter, r *http.Request) {
	correlation := correlationID(r.Header)
	head(w.Header(), correlation)
	notFound().write(w, correlation, nil)
}

// envelope is the canonical error (requirement A12).
type envelope struct {
	Error struct {
		Code          string         `json:"code"`
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
	if f.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="berth"`)
	}
	if f.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int((f.after+time.Second-1)/time.Second)))
	}
	if f.status == http.StatusMethodNotAllowed {
		h.Set("Allow", f.allow)
	}
	w.WriteHeader(f.status)
	_, _ = w.Write(append(body, '\n')) // who is gone needs no answer
}
