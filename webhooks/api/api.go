package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/reconciler/queueing"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/authority"
)

//go:embed openapi.yaml
var openAPI []byte

// Source returns the current view of the estate; false before the first commit is decided.
type Source func() (plan.View, bool)

// Person is the token of a user at the forge.
type Person struct {
	Login string
	Hash  [sha256.Size]byte // SHA-256 of the token
}

// Options say what an API works with. Zero rates take the defaults named.
type Options struct {
	Estate         string   // name of the estate: the audience of service accounts' tokens
	Administrators []string // logins that are platform_superadmin by berth.yaml
	Source         Source
	People         func() []Person // the valid tokens; called for each request
	// Identify returns the login that a token of the identity provider names, and "" without an error
	// for a token of another issuer. The error is ErrProvider if the provider does not answer: the token
	// may be valid. Nil: no provider is configured.
	Identify func(ctx context.Context, token string) (login string, err error)
	Off      []Family // families that are disabled (requirement A16)
	// Audit records each use of an admin path before the answer. Denials of one user
	// within a minute become one record. An allowed request is answered only if Audit
	// returns nil: then the record is stored (requirement B2).
	Audit func(audit.Record) error
	// Refused records the refusals of service accounts outside admin paths, those of one
	// account within a minute as one record. nil: Audit does.
	Refused func(audit.Record)
	Live    func() Live // what answers for running units now; nil: nothing does
	// Leader returns the URL of this API at the leader while this daemon is its standby, else "".
	// Nil: this daemon is never a standby.
	Leader       func() string
	PerPrincipal Rate // requests of one person or account: 50/s, 200 at once
	PerAdmin     Rate // requests of one of them for admin paths: 1/s, 5 at once
	PerFailure   Rate // logged authentication failures of one address: 1/s, 20 at once
	Log          *slog.Logger
	Now          func() time.Time
}

// Live is what asks and changes running units. It is zero while the estate starts.
type Live struct {
	Queues     *queueing.Service
	Operations Operations
	// Effect records an effect of a permitted call outside admin paths, before it happens.
	Effect func(audit.Record)
}

// API answers /api/v1/…; make it with New.
type API struct {
	o          Options
	routes     []*route
	principals *limiter
	admins     *limiter
	denials    *denials // of admin paths
	refusals   *denials // of service accounts elsewhere
	failures   *limiter
}

// New makes an API. Estate, Source, Audit and Log are needed.
func New(o Options) (*API, error) {
	if o.Estate == "" || o.Source == nil || o.Audit == nil || o.Log == nil {
		return nil, errors.New("api: estate, source, audit and log are needed")
	}
	for _, f := range o.Off {
		if !slices.Contains(Families(), f) {
			return nil, fmt.Errorf("api: unknown family %q", f)
		}
	}
	if o.PerPrincipal == (Rate{}) {
		o.PerPrincipal = Rate{50, 200}
	}
	if o.PerAdmin == (Rate{}) {
		o.PerAdmin = Rate{1, 5}
	}
	if o.PerFailure == (Rate{}) {
		o.PerFailure = Rate{1, 20}
	}
	if o.Identify == nil {
		o.Identify = func(context.Context, string) (string, error) { return "", nil }
	}
	if o.Live == nil {
		o.Live = func() Live { return Live{} }
	}
	if o.Leader == nil {
		o.Leader = func() string { return "" }
	}
	if o.People == nil {
		o.People = func() []Person { return nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	record := func(r audit.Record) { _ = o.Audit(r) } // a denial needs no stored record
	if o.Refused == nil {
		o.Refused = record
	}
	return &API{
		o: o, routes: routes(), denials: newDenials(record), refusals: newDenials(o.Refused),
		principals: newLimiter(o.PerPrincipal), admins: newLimiter(o.PerAdmin), failures: newLimiter(o.PerFailure),
	}, nil
}

const (
	maxURL     = 2 << 10
	maxReason  = 200
	retryAfter = 5 * time.Second
)

// call is one request.
type call struct {
	*http.Request
	correlation string
	route       *route
	params      map[string]string
	tenant      string
	project     string
	who         principal
	decision    authority.Decision // on the permission of the route; zero until it is made
	view        plan.View          // zero until it is needed
	deadline    func(time.Time)    // until which the body must arrive
}

// ids returns the names and values of the ids in the path, for logs and errors
// (requirement A11). They do not show whether the resource exists.
func (c *call) ids() (out [][2]string) {
	if c.tenant != "" {
		out = append(out, [2]string{"org_id", c.tenant})
	}
	if c.project != "" {
		out = append(out, [2]string{"project_id", c.tenant + "." + c.project})
	}
	for _, name := range []string{"app_slug", "app_instance_id", "shared_runtime_id"} {
		if value := c.params[name]; value != "" {
			out = append(out, [2]string{name, value})
		}
	}
	return out
}

// answer is the body of a successful answer.
type answer struct {
	mediaType string
	body      []byte
	status    int  // 0: 200
	truncated bool // body is the end of something longer
}

func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := a.o.Now()
	control := http.NewResponseController(w)
	c := &call{Request: r, correlation: correlationID(r.Header), deadline: func(t time.Time) { _ = control.SetReadDeadline(t) }}
	defer func() { c.deadline(time.Now().Add(bodyTimeout)) }() // of a body that no route reads
	h := w.Header()
	head(h, c.correlation)

	got, fail := a.safely(c)
	status, failed := cmp.Or(got.status, http.StatusOK), code("")
	switch {
	case fail != nil:
		status, failed = fail.code.status(), fail.code
		fail.write(w, c.correlation, c.ids())
	default:
		if got.truncated {
			h.Set("X-Output-Truncated", "true")
		}
		sum := sha256.Sum256([]byte(c.who.name + "\x00" + r.URL.RequestURI() + "\x00" + age.ReplaceAllString(string(got.body), "")))
		etag := `"` + hex.EncodeToString(sum[:16]) + `"`
		h.Set("ETag", etag)
		h.Set("Cache-Control", "private, no-cache")
		if status == http.StatusOK && matches(r.Header.Get("If-None-Match"), etag) {
			status = http.StatusNotModified
			w.WriteHeader(status)
			break
		}
		h.Set("Content-Type", got.mediaType)
		h.Set("Content-Length", strconv.Itoa(len(got.body)))
		w.WriteHeader(status)
		_, _ = w.Write(got.body) // the client may have disconnected
	}
	a.log(c, status, failed, fail, a.o.Now().Sub(start))
}

// age is the part of an answer that changes while what it shows stays the same.
var age = regexp.MustCompile(`"age_seconds":\d+`)

// head sets the headers of every answer.
func head(h http.Header, correlation string) {
	h.Set("X-Correlation-ID", correlation)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Vary", "Authorization")
}

// safely answers a call. A panic fails that call only.
func (a *API) safely(c *call) (got answer, fail *failure) {
	defer func() {
		if p := recover(); p != nil {
			fail = &failure{code: codeInternal,
				message: "internal error: give Berth's operators the correlation id",
				cause:   fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	return a.answer(c)
}

// answer checks a call step by step. A caller learns nothing before authentication.
func (a *API) answer(c *call) (answer, *failure) {
	for _, check := range []func(*call) *failure{
		checkLength, a.checkLeader, a.authenticate, a.limit, a.loadView, a.find, a.admit, checkContext, a.checkEndpoint, a.checkFamily,
	} {
		if fail := check(c); fail != nil {
			return answer{}, fail
		}
	}
	if c.route == nil {
		return a.document(c)
	}
	sees, fail := a.authorise(c)
	if fail != nil {
		return answer{}, fail
	}
	if c.route.live != nil {
		return a.ask(c)
	}
	return c.read(sees)
}

func checkLength(c *call) *failure {
	if len(c.URL.Path)+len(c.URL.RawQuery) > maxURL {
		return &failure{code: codeTooLong, message: fmt.Sprintf("path and query may have at most %d bytes", maxURL)}
	}
	return nil
}

// checkLeader sends a caller to the daemon that leads. It comes before authentication, as the caller
// authenticates there, and the address needs no protection.
func (a *API) checkLeader(c *call) *failure {
	if leader := a.o.Leader(); leader != "" {
		target := c.RequestURI // as the caller sent it, below the prefix of an estate
		if !strings.HasPrefix(target, "/") {
			target = c.URL.RequestURI()
		}
		return &failure{code: codeStandby, location: leader + target,
			message: "this daemon stands by: send the same request to the address in Location"}
	}
	return nil
}

// limit bounds the requests of one caller.
func (a *API) limit(c *call) *failure {
	if !a.principals.allow(c.who.name, a.o.Now()) {
		return &failure{code: codeRate, after: time.Second,
			message: "too many requests: ask less often, with If-None-Match and larger pages"}
	}
	return nil
}

func (a *API) checkFamily(c *call) *failure {
	if c.route != nil && slices.Contains(a.o.Off, c.route.family) {
		return &failure{code: codeFeature, details: map[string]any{"family": string(c.route.family)},
			message: fmt.Sprintf("%s is disabled here: set api.%s in berth.yaml to enable it", c.route.family, c.route.family)}
	}
	return nil
}

// loadView takes the current view, once.
func (a *API) loadView(c *call) *failure {
	if c.view.Desired != nil {
		return nil
	}
	view, ready := a.o.Source()
	if !ready {
		return &failure{code: codeNotReady, after: retryAfter,
			message: "no commit is decided yet: try again in a few seconds"}
	}
	c.view = view
	return nil
}

// find finds the route, or returns the fault of the path or the method.
func (a *API) find(c *call) *failure {
	if c.URL.RawPath != "" { // no valid name needs such an encoding
		return notFound()
	}
	if c.URL.Path == openAPIPath {
		if c.Method != http.MethodGet && c.Method != http.MethodHead {
			return &failure{code: codeMethod, allow: "GET, HEAD", message: "this path is read-only"}
		}
		return nil
	}
	segments := strings.Split(c.URL.Path, "/")
	var other *failure
	var allowed []string
	for _, r := range a.routes {
		params, ok := r.match(segments)
		if !ok {
			continue
		}
		tenant, project, ok := owner(params)
		if !ok {
			continue
		}
		if slices.Contains(r.methods(), c.Method) {
			c.route, c.params, c.tenant, c.project = r, params, tenant, project
			return nil
		}
		allowed = append(allowed, r.methods()...)
		if other == nil {
			other = notAllowed(r, tenant, project, params)
			c.params, c.tenant, c.project = params, tenant, project
		}
	}
	if other != nil {
		other.allow = strings.Join(allowed, ", ") // an empty header: no method is allowed (RFC 9110, 10.2.1)
		return other
	}
	return notFound()
}

func notAllowed(r *route, tenant, project string, params map[string]string) *failure {
	f := &failure{code: codeMethod, message: "this path does not take the method: the header Allow names those it takes"}
	if r.writes != "" {
		file := r.file(tenant, project, params)
		f.code, f.details = codeWrite, map[string]any{"file": file}
		f.message = fmt.Sprintf("a write is a merged pull request: change %s in the estate's repository", file)
	}
	return f
}

// endpoint is the method and the path's template, as in a service account's allowed_endpoints.
func (c *call) endpoint() string {
	if c.route == nil {
		return "GET " + openAPIPath
	}
	return c.route.endpoint()
}

// checkContext checks that X-Project-ID agrees with the path (requirement A18), and that
// X-Break-Glass is on an admin path only (B2).
func checkContext(c *call) *failure {
	for _, id := range c.Header.Values("X-Project-ID") {
		tenant, project, ok := splitProject(id)
		if !ok || c.tenant != "" && tenant != c.tenant || c.project != "" && project != c.project {
			return &failure{code: codeProject,
				message: "X-Project-ID names another project than the path: remove the header, or set it to <tenant>.<project> of the path"}
		}
		if before := c.who.within; before != (authority.Scope{}) && before != (authority.Scope{Tenant: tenant, Project: project}) {
			return &failure{code: codeProject, message: "X-Project-ID is given twice with different projects: give it once"}
		}
		c.who.within = authority.Scope{Tenant: tenant, Project: project}
	}
	reasons := c.Header.Values("X-Break-Glass")
	if c.route == nil || !c.route.admin {
		if len(reasons) > 0 {
			return &failure{code: codeMisplaced, message: "X-Break-Glass is valid for paths under " + admin + " only: remove it"}
		}
		return nil
	}
	reason := strings.TrimSpace(strings.Join(reasons, " "))
	if reason == "" || len(reason) > maxReason || !printable(reason) {
		return &failure{code: codeBreakGlass,
			message: fmt.Sprintf("an admin path needs the header X-Break-Glass with the reason, at most %d printable characters; it is "+
				"audited", maxReason)}
	}
	c.who.actor.BreakGlass = reason
	return nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// document answers with openapi.yaml.
func (a *API) document(c *call) (answer, *failure) {
	if !accepts(c.Header.Values("Accept"), "application/yaml") {
		return answer{}, &failure{code: codeAccept, message: "the answer is application/yaml: change the Accept header"}
	}
	return answer{mediaType: "application/yaml", body: openAPI}, nil
}

// read makes the answer of a permitted call.
func (c *call) read(sees sight) (answer, *failure) {
	if !accepts(c.Header.Values("Accept"), "application/json") {
		return answer{}, &failure{code: codeAccept, message: "answers are application/json: change the Accept header"}
	}
	query, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return answer{}, &failure{code: codeQuery, message: "the query is malformed: percent-encode it"}
	}
	r := &reading{View: c.view, params: c.params, tenant: c.tenant, project: c.project, sight: sees,
		privacy: privacy{sees.platform, c.view.Desired.Tenants}}
	var value any
	if c.route.list != nil {
		l := c.route.list(r)
		if l == nil {
			return answer{}, notFound()
		}
		p, fail := l.cut(c.URL.Path, query)
		if fail != nil {
			return answer{}, fail
		}
		value = p
	} else {
		if len(query) > 0 {
			return answer{}, &failure{code: codeQuery, message: "a single resource takes no query: remove it"}
		}
		if value = c.route.item(r); value == nil {
			return answer{}, notFound()
		}
	}
	body, err := json.Marshal(value)
	if err != nil {
		return answer{}, &failure{code: codeInternal, message: "internal error: give Berth's operators the correlation id", cause: err}
	}
	return answer{mediaType: "application/json", body: append(body, '\n')}, nil
}

// log logs a call by its route, never by the raw path (requirement A11). A success is
// logged at debug level.
func (a *API) log(c *call, status int, failed code, fail *failure, took time.Duration) {
	level := slog.LevelDebug
	switch {
	case status >= 500 && failed != codeNotReady:
		level = slog.LevelError
	case fail != nil && fail.cause == errQuiet:
		return // the address has used its share of the log
	case status >= 400:
		level = slog.LevelInfo
	}
	attrs := []any{"method", c.Method, "status", status, "correlation_id", c.correlation, "took", took}
	add := func(name, value string) {
		if value != "" {
			attrs = append(attrs, name, value)
		}
	}
	if c.route != nil {
		add("route", c.route.template)
	}
	add("code", string(failed))
	add("principal", c.who.name)
	for _, id := range c.ids() {
		add(id[0], id[1])
	}
	if c.params["app_instance_id"] != "" && c.view.Desired != nil {
		add("app_slug", c.view.Desired.AppOf(c.key()))
	}
	if fail != nil && fail.cause != nil {
		attrs = append(attrs, "error", fail.cause)
	}
	a.o.Log.Log(c.Context(), level, "API request", attrs...)
}

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

// project returns a project in force, or nil.
func project(d *schema.Desired, tenant, name string) *schema.Project {
	if t := d.Tenants[tenant]; t != nil && t.Tenant != nil {
		if p := t.Projects[name]; p != nil {
			return p.Project
		}
	}
	return nil
}
