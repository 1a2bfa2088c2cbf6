package github

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	readAttempts = 4                // of a read
	limitWaits   = 3                // limits that one request waits for
	maxReply     = 16 << 20         // bytes
	cacheBudget  = 8 << 20          // bytes of answers kept for conditional reads
	holdOff      = time.Minute      // first wait for a limit without a stated end
	atOnce       = 50               // concurrent requests; GitHub allows 100
	maxHold      = 70 * time.Minute // the longest wait that a header may cause; the primary window is an hour
)

// transport is the only place that knows the forge's limits. It adds the token, limits
// the rate, waits for limits, sets deadlines, retries reads and makes them conditional.
// It repeats a write only if the forge said that it was not carried out.
type transport struct {
	base    http.RoundTripper
	api     *url.URL // the server that the token is for
	token   TokenSource
	timeout time.Duration
	maxWait time.Duration
	now     func() time.Time
	sleep   func(context.Context, time.Duration) error
	log     *slog.Logger
	pacer   *Pacer
	cache   *cache
	places  chan struct{} // slots of concurrent requests
	metrics *metrics
}

// metrics count the requests to one forge.
type metrics struct {
	requests  *prometheus.CounterVec
	limited   *prometheus.CounterVec
	remaining prometheus.Gauge
}

func newTransport(o Options, api *url.URL, token TokenSource, pacer *Pacer, m *metrics) *transport {
	return &transport{
		base: o.Transport, api: api, token: token, timeout: o.Timeout, maxWait: o.MaxWait,
		now: o.Clock.Now, sleep: o.Clock.Sleep, log: o.Log, pacer: pacer, cache: newCache(cacheBudget),
		places: make(chan struct{}, atOnce), metrics: m,
	}
}

// newMetrics makes the metrics and registers them with r, unless it is nil.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_forge_requests_total",
			Help: "Requests to the forge, by operation and status code; 0: no answer.",
		}, []string{"op", "code"}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_forge_limited_total",
			Help: "Waits for a limit of the forge or Berth's own rate limit, by kind.",
		}, []string{"limit"}),
		remaining: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_forge_rate_remaining",
			Help: "Requests left in the forge's current window, from its last answer.",
		}),
	}
	if r != nil {
		for _, c := range []prometheus.Collector{m.requests, m.limited, m.remaining} {
			if err := r.Register(c); err != nil {
				return nil, fmt.Errorf("github: register metrics: %w", err)
			}
		}
	}
	return m, nil
}

// opKey is the context key of an operation's name.
type opKey struct{}

// op names the operation of a request, for metrics.
func op(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, opKey{}, name)
}

// RoundTrip implements http.RoundTripper. The answer's body is in memory.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := drain(req)
	if err != nil {
		return nil, err
	}
	if req.URL.Scheme != t.api.Scheme || req.URL.Host != t.api.Host {
		// A redirect, or a link of the forge: the token must not go to another host.
		return nil, fmt.Errorf("no request to %s: the token is for %s", req.URL.Host, t.api.Host)
	}
	r := &retries{transport: t, req: req, most: 1}
	if req.Method == http.MethodGet {
		r.most = readAttempts
	}
	for {
		a, err := t.attempt(req, body)
		again, err := r.next(a, err)
		if err != nil {
			return nil, err
		}
		if !again {
			return a.resp, nil
		}
	}
}

// attempt is one sending of a request.
type attempt struct {
	token string
	sent  time.Time
	resp  *http.Response
}

// attempt sends a request when the rate limit allows it. The error is a *sentError if it
// was sent.
func (t *transport) attempt(req *http.Request, body []byte) (a attempt, err error) {
	if a.token, err = t.credential(req.Context()); err != nil {
		return a, err
	}
	leave, err := t.enter(req.Context(), req.Method)
	if err != nil {
		return a, err
	}
	defer leave()
	a.sent = t.now()
	a.resp, err = t.once(req, body, a.token)
	return a, err
}

// retries decides when a request is sent again.
type retries struct {
	*transport
	req         *http.Request
	tries, most int  // failed attempts, and how many are allowed
	limits      int  // that it met
	renewed     bool // after the forge refused a token
}

// next says whether a request is sent again after an attempt.
func (r *retries) next(a attempt, err error) (again bool, _ error) {
	var lost *sentError
	switch {
	case errors.As(err, &lost):
		return r.failed(err)
	case err != nil:
		return false, err
	}
	if limit := r.limit(a.resp, r.req.Method, a.sent); limit != nil {
		r.metrics.limited.WithLabelValues(limit.Why).Inc()
		r.log.Warn("forge rate limit reached", "limit", limit.Why, "status", a.resp.StatusCode, "until", limit.Until)
		if r.limits++; r.limits > limitWaits {
			return false, limit
		}
		return true, nil // enter waits or returns the limit
	}
	switch code := a.resp.StatusCode; {
	case code == http.StatusUnauthorized && !r.renewed:
		// The request was not carried out. A token can end early when keys are replaced.
		r.renewed = true
		next, err := r.credential(context.WithValue(r.req.Context(), refusedKey{}, a.token))
		return err == nil && next != a.token, err
	case code >= http.StatusInternalServerError:
		return r.failed(nil)
	case code < http.StatusMultipleChoices:
		r.pacer.passed(r.req.Method, a.sent)
	}
	return false, nil
}

// failed waits before another attempt, if one is left.
func (r *retries) failed(err error) (again bool, _ error) {
	if r.tries++; r.tries >= r.most || r.req.Context().Err() != nil {
		return false, err
	}
	if err := r.sleep(r.req.Context(), time.Duration(2<<r.tries)*100*time.Millisecond); err != nil {
		return false, err
	}
	return true, nil
}

// credential returns the token for the next request. A failure is not retried.
func (t *transport) credential(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	token, err := t.token(ctx)
	if err != nil {
		return "", fmt.Errorf("get a token: %w", err)
	}
	return token, nil
}

// enter waits until a request may be sent, and takes a slot. If a limit comes into
// effect while it waits, it waits for that too and reserves again, so that the waiting
// requests are not all sent at once.
func (t *transport) enter(ctx context.Context, method string) (leave func(), err error) {
	latest := t.now().Add(t.maxWait)
	for {
		if err := t.waitForLimits(ctx, latest); err != nil {
			return nil, err
		}
		now := t.now()
		d, ok := t.pacer.reserve(method, now, latest.Sub(now))
		if !ok {
			t.metrics.limited.WithLabelValues("pace").Inc()
			return nil, &LimitError{Until: now.Add(d), Why: "pace"}
		}
		if d > 0 {
			if err := t.sleep(ctx, d); err != nil {
				return nil, err
			}
		}
		select {
		case t.places <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if t.pacer.held(t.now()) == nil {
			return func() { <-t.places }, nil
		}
		<-t.places
	}
}

// waitForLimits waits until no limit of the forge is in effect. It returns the limit that is in effect for longer than until
// latest.
func (t *transport) waitForLimits(ctx context.Context, latest time.Time) error {
	for {
		now := t.now()
		hold := t.pacer.held(now)
		switch {
		case hold == nil:
			return nil
		case hold.Until.After(latest):
			return hold
		}
		if err := t.sleep(ctx, hold.Until.Sub(now)); err != nil {
			return err
		}
	}
}

// once sends one request and reads the whole answer. The error is a *sentError.
func (t *transport) once(req *http.Request, body []byte, token string) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), t.timeout)
	defer cancel()
	out := req.Clone(ctx)
	if body != nil {
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	out.Header.Set("Authorization", "Bearer "+token)
	key, seen := t.cache.prepare(out)

	name, _ := ctx.Value(opKey{}).(string)
	resp, err := t.base.RoundTrip(out)
	if err != nil {
		t.metrics.requests.WithLabelValues(name, "0").Inc()
		return nil, &sentError{err}
	}
	defer resp.Body.Close()
	t.metrics.requests.WithLabelValues(name, strconv.Itoa(resp.StatusCode)).Inc()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	if err != nil {
		return nil, &sentError{fmt.Errorf("answer was cut off: %w", err)}
	}
	if len(data) > maxReply {
		return nil, &sentError{fmt.Errorf("answer is larger than %d MiB", maxReply>>20)}
	}
	if resp.StatusCode >= 300 && token != "" {
		// Some servers and proxies repeat the request in their answer, and go-github's
		// errors quote it.
		data = bytes.ReplaceAll(data, []byte(token), []byte("***"))
		for _, values := range resp.Header {
			for i, v := range values {
				values[i] = strings.ReplaceAll(v, token, "***")
			}
		}
	}
	if n, err := strconv.Atoi(resp.Header.Get("X-RateLimit-Remaining")); err == nil {
		t.metrics.remaining.Set(float64(n))
	}
	if resp.StatusCode == http.StatusNotModified && seen != nil {
		// New headers, such as Link, replace the stored ones.
		header := seen.header.Clone()
		maps.Copy(header, resp.Header)
		resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
		resp.Header, data = header, seen.body
	} else if !grows(out.URL, resp.Header, data) {
		t.cache.keep(key, resp, data)
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	return resp, nil
}

// limit recognises a limit in an answer and stops the Pacer. It removes the rate limit
// headers: go-github would act on them too, by the wall clock.
func (t *transport) limit(resp *http.Response, method string, sent time.Time) *LimitError {
	data, _ := io.ReadAll(resp.Body) // once keeps it in memory
	resp.Body = io.NopCloser(bytes.NewReader(data))
	now := t.now()
	limit := classify(resp, data, now)
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-RateLimit-Used"} {
		resp.Header.Del(name)
	}
	if limit == nil {
		return nil
	}
	return t.pacer.stop(limit, method, sent, now)
}

// classify returns the limit of an answer, or nil; Until is zero if the answer has no
// end. An end in the past counts as none: the local clock may be ahead.
func classify(resp *http.Response, body []byte, now time.Time) *LimitError {
	if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusTooManyRequests {
		return nil
	}
	h := resp.Header
	after := h.Get("Retry-After")
	limit := &LimitError{Why: "secondary"}
	switch seconds, err := strconv.Atoi(after); {
	case after != "" && err == nil && seconds >= 0:
		limit.Until = now.Add(time.Duration(min(seconds, int(maxHold/time.Second))) * time.Second)
	case h.Get("X-RateLimit-Remaining") == "0":
		limit.Why = "primary"
		if at, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64); err == nil {
			// One more second: the forge counts whole seconds.
			limit.Until = time.Unix(at, 0).Add(time.Second)
		}
	case resp.StatusCode == http.StatusTooManyRequests:
	case strings.Contains(string(body), "secondary rate limit"), strings.Contains(string(body), "secondary-rate-limits"):
	default:
		return nil // a permission error
	}
	if !limit.Until.After(now) {
		limit.Until = time.Time{}
	}
	return limit
}

// drain reads a request's body, so that it can be sent more than once.
func drain(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	data, err := io.ReadAll(req.Body)
	return data, errors.Join(err, req.Body.Close())
}
