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
	codeAuthInvalid  = "auth.invalid"            // 401: a token that is not taken
	codePermission   = "permission.denied"       // 403: for what no tenant or project hides
	codeEndpoint     = "endpoint.not_allowed"    // 403: not among the account's allowed_endpoints
	codeNotFound     = "resource.not_found"      // 404: not there, or not for who asks
	codeFeature      = "feature.disabled"        // 404: switched off (requirement A16)
	codeWrite        = "write.by_pull_request"   // 405: what can be written, but not here
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
	codeUnaudited    = "audit.unavailable"       // 503: an admin path, and its audit record cannot be kept (requirement B2)
	codeNotReady     = "not_ready"               // 503
)

// failure is an answer that is no success.
type failure struct {
	status  int
	code    string
	message string         // what, and what to do; never a secret
	details map[string]any // for machines
	after   time.Duration  // Retry-After
	allow   string         // Allow
	cause   error          // for the log only
}

func (f *failure) Error() string { return f.code + ": " + f.message }

// notFound is one answer for what is not there and for what is not for who
// asks, so that nobody learns names by asking.
func notFound() *failure {
	return &failure{status: http.StatusNotFound, code: codeNotFound,
		message: "there is nothing of that name, or not for you: check the path, and who you are"}
}

// Nowhere answers where there is no API as one answers for what is not there.
func Nowhere(w http.ResponseWriter, r *http.Request) {
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

// write answers with the failure. ids are of what was asked for.
func (f *failure) write(w http.ResponseWriter, correlation string, ids [][2]string) {
	var e envelope
	e.Error.Code, e.Error.Message, e.Error.CorrelationID, e.Error.Details = f.code, f.message, correlation, map[string]any{}
	for _, id := range ids {
		e.Error.Details[id[0]] = id[1]
	}
	maps.Copy(e.Error.Details, f.details)
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings all the way down
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
