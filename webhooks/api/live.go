package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/url"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/reconciler/queueing"
	"berth/schema/audit"
	"berth/schema/queue"
)

// Live is what asks and changes running units. It is zero while the estate starts.
type Live struct {
	Queues     *queueing.Service
	Operations Operations
	// Effect records an effect of a permitted call outside admin paths, before it happens.
	Effect func(audit.Record)
}

// Operations takes operations on members of a unit.
type Operations interface {
	// RequestOperation returns the operation once berth/status has it. The same id is never done twice:
	// the error wraps plan.ErrOperationID if another operation has it.
	RequestOperation(ctx context.Context, r plan.OperationRequest) (plan.Operation, error)
}

// live answers a request about a running unit.
type live func(*liveCall) (answer, *failure)

// liveCall is a permitted call for an instance, or for a project: then the instance of the caller has no name.
type liveCall struct {
	*call
	caller     queueing.Caller
	query      url.Values
	live       Live
	authoriser *authoriser
	effect     func() // records the effect of the call; nil: it has none to record here
}

func starting() *failure {
	return &failure{code: codeNotReady, after: retryAfter, message: "this daemon is starting, or does not lead: try again in a few seconds"}
}

// begins records the effect of a call, just before it happens: a call that is refused has none.
func (l *liveCall) begins() {
	if l.effect != nil {
		l.effect()
	}
}

// wantsLive reports whether the caller asks for a read of the unit now.
func (l *liveCall) wantsLive() (bool, *failure) {
	switch l.query.Get("live") {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	}
	return false, &failure{code: codeQuery, message: "live is true or false"}
}

// ref is the job that the path names.
func (l *liveCall) ref() (queue.Ref, *failure) {
	ref := queue.Ref{JobID: l.params["job_id"]}
	if text := l.query.Get("submitted_at"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return ref, &failure{code: codeQuery, message: "submitted_at must be a time such as 2026-11-24T10:00:00Z"}
		}
		ref.Submitted = at
	}
	return ref, nil
}

// key is the idempotency key of the request.
func (l *liveCall) key() (string, *failure) {
	keys := l.Header.Values("Idempotency-Key")
	if len(keys) != 1 || queue.CheckKey(keys[0]) != nil {
		return "", &failure{code: codeKey,
			message: "send one header Idempotency-Key with 1 to 64 letters, digits, dots, dashes and underscores: a repeated request " +
				"with the same key has no second effect"}
	}
	return keys[0], nil
}

// Bounds of the body of a request. A script as JSON may be twice as long. A caller sends a short body at once, and a
// longer one with slowBody bytes a second or more.
const (
	slowBody    = 64 << 10
	maxBody     = 2*queue.MaxScript + 64<<10
	bodyTimeout = 10 * time.Second
)

// body decodes the body of a request.
func (l *liveCall) body(into any) *failure {
	media, _, err := mime.ParseMediaType(l.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return &failure{code: codeBody, message: "the body must be application/json: set Content-Type"}
	}
	l.deadline(time.Now().Add(bodyTimeout + time.Duration(min(max(l.ContentLength, 0), maxBody)/slowBody)*time.Second))
	text, err := io.ReadAll(io.LimitReader(l.Body, maxBody+1))
	l.deadline(time.Time{})
	if err != nil {
		return &failure{code: codeBody, cause: err, message: "the body ended early"}
	}
	if len(text) > maxBody {
		return &failure{code: codeBody, message: fmt.Sprintf("the body is larger than %d bytes", maxBody)}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil || d.More() {
		return &failure{code: codeBody, cause: err,
			message: "the body is not what this path takes: " + shortened(cmp.Or(err, errors.New("more than one value")))}
	}
	return nil
}

func shortened(err error) string {
	text := strings.TrimPrefix(err.Error(), "json: ")
	return text[:min(len(text), 200)]
}
