package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/reconciler/fair"
	"berth/reconciler/queueing"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/policy"
)

//go:embed openapi.yaml
var openAPI []byte

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
	Events  EventLog    // nil: there are no streams of events
	// Leader returns the URL of this API at the leader while this daemon is its standby, else "".
	// Nil: this daemon is never a standby.
	Leader       func() string
	PerPrincipal Rate // requests of one person or account: 50/s, 200 at once
	PerTenant    Rate // requests of all service accounts of one tenant: 200/s, 800 at once
	PerAdmin     Rate // requests of one of them for admin paths: 1/s, 5 at once
	PerFailure   Rate // logged authentication failures of one address: 1/s, 20 at once
	Log          *slog.Logger
	Now          func() time.Time
}

const (
	// answersAtATime are read from the view at a time. Reading is computation, so more at a time would be no faster.
	answersAtATime = 16
)

// API answers /api/v1/…; make it with New.
type API struct {
	o             Options
	routes        []*route
	principals    *limiter
	tenants       *limiter
	owners        *limiter // by the owners that policies bound
	answering     *fair.Slots
	authenticator *authenticator
	authoriser    *authoriser
	feed          *feed
	eventKinds    map[string]schema.Kind
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
	o = o.withDefaults()
	return &API{
		o: o, routes: routes(), principals: newLimiter(o.PerPrincipal), tenants: newLimiter(o.PerTenant), owners: newLimiter(Rate{}),
		answering: fair.NewSlots(answersAtATime),
		authenticator: &authenticator{estate: o.Estate, people: o.People, identify: o.Identify, source: o.Source,
			failures: newLimiter(o.PerFailure), now: o.Now},
		authoriser: &authoriser{
			auditor:        &auditor{store: o.Audit, denials: newDenials(o.denied), refusals: newDenials(o.Refused), now: o.Now},
			administrators: o.Administrators, admins: newLimiter(o.PerAdmin)},
		feed: newFeed(o.Events, o.Log), eventKinds: eventKinds(),
	}, nil
}

// EndStreams ends the streams of events at once, and refuses new ones.
func (a *API) EndStreams() { a.feed.close() }

// withDefaults returns o with the defaults set.
func (o Options) withDefaults() Options {
	o.PerPrincipal = cmp.Or(o.PerPrincipal, Rate{50, 200})
	o.PerTenant = cmp.Or(o.PerTenant, Rate{200, 800})
	o.PerAdmin = cmp.Or(o.PerAdmin, Rate{1, 5})
	o.PerFailure = cmp.Or(o.PerFailure, Rate{1, 20})
	if o.Identify == nil {
		o.Identify = func(context.Context, string) (string, error) { return "", nil }
	}
	if o.Live == nil {
		o.Live = func() Live { return Live{} }
	}
	if o.Events == nil {
		o.Events = noEventLog{}
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
	if o.Refused == nil {
		o.Refused = o.denied
	}
	return o
}

// denied records a denial, which needs no stored record.
func (o Options) denied(r audit.Record) { _ = o.Audit(r) }

func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := a.o.Now()
	control := http.NewResponseController(w)
	c := &call{Request: r, correlation: correlationID(r.Header), deadline: func(t time.Time) { _ = control.SetReadDeadline(t) }}
	defer func() { c.deadline(time.Now().Add(bodyTimeout)) }() // of a body that no route reads
	h := w.Header()
	head(h, c.correlation)

	got, fail := safely(func() (answer, *failure) { return a.answer(c) })
	if fail == nil && got.stream != nil {
		fail = got.stream(w)
	}
	status, failed := cmp.Or(got.status, http.StatusOK), code("")
	switch {
	case fail != nil:
		status, failed = fail.code.status(), fail.code
		fail.write(w, c.correlation, c.ids())
	case got.stream != nil:
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

// safely answers a call. A panic fails that call only.
func safely(do func() (answer, *failure)) (got answer, fail *failure) {
	defer func() {
		if p := recover(); p != nil {
			fail = &failure{code: codeInternal,
				message: "internal error: give Berth's operators the correlation id",
				cause:   fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	return do()
}

// answer checks a call step by step. A caller learns nothing before authentication.
func (a *API) answer(c *call) (answer, *failure) {
	for _, check := range []func(*call) *failure{
		checkLength, a.checkLeader, a.authenticator.authenticate, a.limit, a.o.Source.load, a.limitByPolicy, a.find, a.authoriser.admit,
		checkProject, checkBreakGlass, a.authoriser.checkEndpoint, a.checkFamily,
	} {
		if fail := check(c); fail != nil {
			return answer{}, fail
		}
	}
	if c.route == nil {
		return a.document(c)
	}
	if c.route.streams {
		return a.openStream(c)
	}
	sees, fail := a.authoriser.authorise(c)
	if fail != nil {
		return answer{}, fail
	}
	if c.route.live != nil {
		return a.ask(c)
	}
	give, err := a.answering.Take(c.Context(), c.owner())
	if err != nil { // the client disconnected
		return answer{}, &failure{code: codeNotReady, after: retryAfter, cause: err, message: "the request was withdrawn"}
	}
	defer give()
	return c.read(sees)
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

// limit bounds the requests of one caller, and those of all service accounts of a tenant: it may declare very many.
func (a *API) limit(c *call) *failure {
	if !a.principals.allow(c.who.name, a.o.Now()) || c.who.account != nil && !a.tenants.allow(c.who.account.Key.Tenant, a.o.Now()) {
		return &failure{code: codeRate, after: time.Second,
			message: "too many requests: ask less often, with If-None-Match and larger pages"}
	}
	return nil
}

// limitByPolicy bounds the requests of the service accounts of a project and of its tenant by the policies in force.
func (a *API) limitByPolicy(c *call) *failure {
	if c.who.account == nil {
		return nil
	}
	of := c.who.account.Key
	for _, b := range policy.RequestsPerMinute(c.view.Desired, of.Tenant, of.Project) {
		if !a.owners.allowAt(b.Owner, Rate{float64(b.Most) / 60, b.Most}, a.o.Now()) {
			return &failure{code: codeRate, after: time.Minute / time.Duration(b.Most),
				message: fmt.Sprintf("too many requests: policy allows the service accounts of %s %d in a minute; ask less often", b.Owner, b.Most)}
		}
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
		tenant, project, ok := ownerOf(params)
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
	return asJSON(http.StatusOK, value)
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
		CorrelationID: c.correlation, Verb: cmp.Or(c.route.effect, "queue.read")}, query: query, live: a.o.Live(), authoriser: a.authoriser}
	if c.route.effect != "" && !c.route.admin && l.live.Effect != nil {
		l.effect = func() {
			r := a.authoriser.record(c, c.decision)
			r.RecordID = randomID()
			l.live.Effect(r)
		}
	}
	return c.route.live(l)
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

// NotServed answers a path of an API that is not served, as an API answers an unknown
// path.
func NotServed(w http.ResponseWriter, r *http.Request) {
	correlation := correlationID(r.Header)
	head(w.Header(), correlation)
	notFound().write(w, correlation, nil)
}
