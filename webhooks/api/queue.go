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
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/reconciler/queueing"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/queue"
)

// live answers a request about a running unit.
type live func(*API, *liveCall) (answer, *failure)

// queued is a live that asks the queue.
func queued(f func(*queueing.Service, *liveCall) (answer, *failure)) live {
	return func(_ *API, l *liveCall) (answer, *failure) {
		if l.live.Queues == nil {
			return answer{}, starting()
		}
		return f(l.live.Queues, l)
	}
}

func starting() *failure {
	return &failure{code: codeNotReady, after: retryAfter, message: "this daemon is starting, or does not lead: try again in a few seconds"}
}

// liveCall is a permitted call for an instance, or for a project: then the instance of the caller has no name.
type liveCall struct {
	*call
	caller queueing.Caller
	query  url.Values
	live   Live
	effect func() // records the effect of the call; nil: it has none to record here
}

// Bounds of the body of a request. A script as JSON may be twice as long. A caller sends a short body at once, and a
// longer one with slowBody bytes a second or more.
const (
	slowBody    = 64 << 10
	maxBody     = 2*queue.MaxScript + 64<<10
	bodyTimeout = 10 * time.Second
)

const jobs = "/queue/jobs"

// queueRoutes adds the paths of queues and nodes (requirement B1).
func queueRoutes(add func(string, route)) {
	one := oneInst + jobs + "/{job_id}"
	add(oneInst+jobs, route{family: Queue, permission: authority.QueueRead, method: http.MethodGet, live: queued(listJobs),
		query: []string{"state", "user", "live"}})
	add(oneInst+jobs, route{family: Queue, permission: authority.QueueSubmit, method: http.MethodPost, live: queued(submitJob),
		effect: "queue.submit"})
	add(one, route{family: Queue, permission: authority.QueueRead, method: http.MethodGet, live: queued(readJob),
		query: []string{"submitted_at", "live"}})
	add(one, route{family: Queue, permission: authority.QueueCancel, method: http.MethodDelete, live: queued(cancelJob),
		effect: "queue.cancel", query: []string{"submitted_at"}})
	// The output of a job is read as its owner, so the ledger of the host and the audit have it.
	add(one+"/output", route{family: Queue, permission: authority.QueueRead, method: http.MethodGet, live: queued(readOutput),
		effect: "queue.output", query: []string{"submitted_at", "bytes"}})
	add(oneInst+"/queue/readiness",
		route{family: Queue, permission: authority.QueueRead, method: http.MethodGet, live: queued(readReadiness)})
	add(oneInst+"/nodes", route{family: Queue, permission: authority.NodeRead, method: http.MethodGet, live: queued(listNodes),
		query: []string{"live"}})
	add(oneInst+"/nodes/{node}/operations",
		route{family: Queue, permission: authority.NodeOperate, method: http.MethodPost, live: operateNode, effect: "node.operate"})
}

// ask answers a permitted call by asking the unit. An effect outside admin paths is recorded just before it
// happens; at admin paths the record is stored already.
func (a *API) ask(c *call) (answer, *failure) {
	query, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return answer{}, &failure{code: codeQuery, message: "the query is malformed: percent-encode it"}
	}
	for name := range query {
		if !slices.Contains(c.route.query, name) || len(query[name]) > 1 {
			return answer{}, &failure{code: codeQuery,
				message: fmt.Sprintf("the query parameter %.40q is not known here, or given twice: use %s", name,
					cmp.Or(strings.Join(c.route.query, ", "), "none"))}
		}
	}
	r := &reading{View: c.view, params: c.params, tenant: c.tenant, project: c.project, sight: sight{schedulers: true}}
	var name string
	if c.params["app_instance_id"] != "" {
		var ok bool
		if name, ok = r.instanceName(); !ok {
			return answer{}, notFound()
		}
	}
	l := &liveCall{call: c, caller: queueing.Caller{Instance: schema.InstanceKey(c.tenant, c.project, name), Login: c.who.actor.Login,
		CorrelationID: c.correlation, Verb: cmp.Or(c.route.effect, "queue.read")}, query: query, live: a.o.Live()}
	if c.route.effect != "" && !c.route.admin && l.live.Effect != nil {
		l.effect = func() {
			r := a.record(c, c.decision)
			r.RecordID = randomID()
			l.live.Effect(r)
		}
	}
	return c.route.live(a, l)
}

// begins records the effect of a call, just before it happens: a call that is refused has none.
func (l *liveCall) begins() {
	if l.effect != nil {
		l.effect()
	}
}

// queueFailure is the failure of an error of a queue. Only the log has the names of hosts.
func queueFailure(err error) *failure {
	f := &failure{message: err.Error(), cause: err}
	switch {
	case errors.Is(err, queue.ErrNotFound):
		f = notFound()
		f.cause = err
	case errors.Is(err, queue.ErrNoOutput):
		f.code = codeNoOutput
	case errors.Is(err, queue.ErrConfiguration):
		f.code = codeConfiguration
	case errors.Is(err, queue.ErrConflict):
		f.code = codeConflict
	case errors.Is(err, queue.ErrDenied):
		f.code = codeQueueDenied
	case errors.Is(err, queue.ErrUnavailable), errors.Is(err, runtimes.ErrStaleEpoch), errors.Is(err, context.Canceled),
		errors.Is(err, context.DeadlineExceeded):
		f.code, f.after, f.message = codeQueueUnavailable, retryAfter,
			"the scheduler did not answer: send the same request again; with the same Idempotency-Key it never makes a second job"
		if operr := new(runtimes.OpError); !errors.As(err, &operr) && !errors.Is(err, runtimes.ErrUnreachable) &&
			!errors.Is(err, runtimes.ErrUncertain) {
			f.message = "the queue does not answer now: " + strings.TrimPrefix(err.Error(), queue.ErrUnavailable.Error()+": ")
		}
	default:
		f.code, f.message = codeInternal, "internal error: give Berth's operators the correlation id"
	}
	return f
}

// answered is a value as JSON, or the failure of an error.
func answered(status int, value any, err error) (answer, *failure) {
	if err != nil {
		return answer{}, queueFailure(err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return answer{}, &failure{code: codeInternal, message: "internal error: give Berth's operators the correlation id", cause: err}
	}
	return answer{mediaType: "application/json", body: append(text, '\n'), status: status}, nil
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

func listJobs(q *queueing.Service, l *liveCall) (answer, *failure) {
	live, fail := l.wantsLive()
	if fail != nil {
		return answer{}, fail
	}
	list, err := q.Jobs(l.Context(), l.caller, live)
	state, user := l.query.Get("state"), l.query.Get("user")
	list.Items = slices.DeleteFunc(list.Items, func(j queue.Job) bool {
		return state != "" && !strings.EqualFold(j.State, state) || user != "" && j.User != user
	})
	return answered(http.StatusOK, list, err)
}

func submitJob(q *queueing.Service, l *liveCall) (answer, *failure) {
	key, fail := l.key()
	if fail != nil {
		return answer{}, fail
	}
	var r queue.Request
	if fail := l.body(&r); fail != nil {
		return answer{}, fail
	}
	if err := r.Check(); err != nil {
		return answer{}, queueFailure(err)
	}
	l.begins()
	job, err := q.Submit(l.Context(), l.caller, key, r)
	return answered(http.StatusCreated, job, err)
}

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

func readJob(q *queueing.Service, l *liveCall) (answer, *failure) {
	ref, fail := l.ref()
	if fail != nil {
		return answer{}, fail
	}
	live, fail := l.wantsLive()
	if fail != nil {
		return answer{}, fail
	}
	job, err := q.Job(l.Context(), l.caller, ref, live)
	return answered(http.StatusOK, job, err)
}

func cancelJob(q *queueing.Service, l *liveCall) (answer, *failure) {
	ref, fail := l.ref()
	if fail != nil {
		return answer{}, fail
	}
	l.begins()
	job, err := q.Cancel(l.Context(), l.caller, ref)
	return answered(http.StatusAccepted, job, err)
}

func readOutput(q *queueing.Service, l *liveCall) (answer, *failure) {
	ref, fail := l.ref()
	if fail != nil {
		return answer{}, fail
	}
	limit := queue.MaxOutput
	if text := l.query.Get("bytes"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > queue.MaxOutput {
			return answer{}, &failure{code: codeQuery, message: fmt.Sprintf("bytes is from 1 to %d", queue.MaxOutput)}
		}
		limit = n
	}
	l.begins()
	out, err := q.Output(l.Context(), l.caller, ref, limit)
	if err != nil {
		return answer{}, queueFailure(err)
	}
	return answer{mediaType: "text/plain; charset=utf-8", body: out.Text, truncated: out.Truncated}, nil
}

// listNodes lists nodes as members of the unit. Only the platform reads the names of nodes.
func listNodes(q *queueing.Service, l *liveCall) (answer, *failure) {
	live, fail := l.wantsLive()
	if fail != nil {
		return answer{}, fail
	}
	list, err := q.Nodes(l.Context(), l.caller, live)
	for i := range list.Items {
		if !l.route.admin {
			list.Items[i].Node = ""
		}
	}
	return answered(http.StatusOK, list, err)
}

func readReadiness(q *queueing.Service, l *liveCall) (answer, *failure) {
	r, err := q.Readiness(l.Context(), l.caller)
	return answered(http.StatusOK, r, err)
}
