package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"berth/reconciler/queueing"
	"berth/runtimes"
	"berth/schema/queue"
)

// queued is a live that asks the queue.
func queued(f func(*queueing.Service, *liveCall) (answer, *failure)) live {
	return func(l *liveCall) (answer, *failure) {
		if l.live.Queues == nil {
			return answer{}, starting()
		}
		return f(l.live.Queues, l)
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
	return asJSON(status, value)
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
