package githubtest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Request is a request that the server got.
type Request struct {
	Op     string // such as "GET /repos/{owner}/{repo}/pulls"
	URL    string // path and query
	Body   string
	Status int // of the answer; 0: the connection was cut
}

// Write says whether the request may change something.
func (r Request) Write() bool { return !strings.HasPrefix(r.Op, "GET ") }

// Writes counts write requests.
type Writes struct{ Creating, Editing, Deleting int }

// traffic is the list of requests.
type traffic struct {
	*base
	requests []Request
}

// Requests lists the API requests so far.
func (t *traffic) Requests() []Request {
	defer t.lock()()
	return slices.Clone(t.requests)
}

// Forget empties the list of requests.
func (t *traffic) Forget() {
	defer t.lock()()
	t.requests = nil
}

// Writes counts the write requests among Requests, whatever their results.
func (t *traffic) Writes() (w Writes) {
	defer t.lock()()
	for _, r := range t.requests {
		switch kindOf(r.Op) {
		case creating:
			w.Creating++
		case editing:
			w.Editing++
		case deleting:
			w.Deleting++
		}
	}
	return w
}

// call is a request that is being served.
type call struct {
	*http.Request
	op    string
	query url.Values
	body  []byte
	who   Token
}

// number is a numeric part of the path; -1 if it is not a number.
func (c *call) number(name string) int64 {
	n, err := strconv.ParseInt(c.PathValue(name), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// reply is an answer. The header of a list is completed when it is paged.
type reply struct {
	status int
	header http.Header
	body   any    // nil: none
	list   []any  // instead of a body; nil: none
	under  string // field of the list, next to total_count; "": the list is the body
}

func ok(body any) reply { return reply{status: http.StatusOK, body: body} }

func created(body any) reply { return reply{status: http.StatusCreated, body: body} }

func list(items []any) reply { return reply{status: http.StatusOK, list: items} }

// problem is an error answer.
func problem(status int, message string) *reply {
	about := "https://docs.github.com/rest"
	if message == secondaryLimit {
		about += "/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits"
	}
	return &reply{status: status, body: obj{"message": message, "documentation_url": about}}
}

func invalid(format string, args ...any) reply {
	return *problem(http.StatusUnprocessableEntity, "Validation Failed: "+fmt.Sprintf(format, args...))
}

var (
	notFound  = *problem(http.StatusNotFound, "Not Found")
	forbidden = *problem(http.StatusForbidden, "Resource not accessible by integration")
)

type handler func(*call) reply

// withBody decodes the body, which fits the description, for a handler.
func withBody[T any](serve func(*call, T) reply) handler {
	return func(c *call) reply {
		var body T
		if err := json.Unmarshal(c.body, &body); err != nil {
			return *problem(http.StatusBadRequest, "Problems parsing JSON: "+err.Error())
		}
		return serve(c, body)
	}
}

// route is an operation, named as in GitHub's description, with the permissions one of
// which an App's token needs.
type route struct {
	op, needs string
	serve     handler
}

// handler serves Git under /owner/repo.git and the API under everything else.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	prefix := "/" + s.o.Owner + "/" + s.o.Repo + ".git"
	mux.Handle(prefix+"/", http.StripPrefix(prefix, s.transport()))
	for _, r := range s.routes() {
		// A pattern may not match comments/7 and {issue_number}/comments equally well.
		pattern := strings.Replace(r.op, "GET /repos/{owner}/{repo}/issues/{issue_number}/comments",
			"GET /repos/{owner}/{repo}/issues/{issue_number}/{comments}", 1)
		mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) { s.serve(w, req, r) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		s.serve(w, req, route{op: req.Method + " " + req.URL.Path})
	})
	return mux
}

// maxRequest is the largest request body in bytes.
const maxRequest = 10 << 20

// serve serves one request: faults, identity, limits, description, operation.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, to route) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest))
	if err != nil {
		return
	}
	c := &call{Request: r, op: to.op, query: r.URL.Query(), body: body}
	unlock := s.lock()
	fault := cmp.Or(s.nextFault(c.op), &Fault{DelayOnly: true})
	who, refused := s.authenticate(r.URL.Path, bearer(r))
	unlock()
	if c.who = who; refused == nil {
		defer s.enter(who.actor())()
	}
	pause(r.Context(), s.o.Latency+fault.Delay)
	a := &reply{}
	if fault.Carry || fault.DelayOnly {
		if a = refused; a == nil {
			a = s.admit(c, to)
		}
	}
	if !fault.DelayOnly {
		a = fault.reply()
	}
	data := a.encode()
	unlock = s.lock()
	s.requests = append(s.requests, Request{Op: c.op, URL: r.URL.RequestURI(), Body: string(body), Status: a.status})
	unlock()
	if a.status == 0 {
		panic(http.ErrAbortHandler) // closes the connection without an answer
	}
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	w.Write(data)
}

// admit performs a call within the limits of its sender.
func (s *Server) admit(c *call, to route) *reply {
	defer s.lock()()
	if c.UserAgent() == "" {
		s.violation("%s: no User-Agent", c.op)
		return problem(http.StatusForbidden,
			"Request forbidden by administrative rules. Please make sure your request has a User-Agent header.")
	}
	if !c.who.may(to.needs, c.Method != http.MethodGet) {
		return &forbidden
	}
	use := s.budgetOf(c.who.actor())
	if a := use.refuse(s.o.Now(), kindOf(c.op)); a != nil {
		return a
	}
	a := s.perform(c, to.serve)
	if match := c.Header.Get("If-None-Match"); a.status == http.StatusOK && match != "" && match == a.header.Get("ETag") {
		// The ETag is of the body alone, and a 304 need not repeat more of the header.
		a.status, a.body = http.StatusNotModified, nil
		a.header.Del("Link")
	}
	use.count(s.o.Now(), kindOf(c.op), a.status == http.StatusNotModified)
	use.writeHeader(a.header)
	return a
}

// perform calls the handler of an operation, and checks the request and the answer
// against the description.
func (s *Server) perform(c *call, serve handler) *reply {
	a := notFound
	owner := c.PathValue("owner")
	switch err := s.desc.request(c.op, c.body); {
	case serve == nil:
		s.violation("%s: not served here", c.op)
	case owner != "" && (!strings.EqualFold(owner, s.o.Owner) || !strings.EqualFold(c.PathValue("repo"), s.o.Repo)):
	case err != nil:
		s.violation("%s: request: %v", c.op, err)
		a = *problem(http.StatusUnprocessableEntity, "Invalid request.\n\n"+err.Error())
	default:
		if err := s.desc.query(c.op, c.query); err != nil {
			s.violation("%s %s: %v", c.op, c.URL.RawQuery, err)
		}
		a = serve(c)
	}
	return s.finish(c, a)
}

const (
	perPage    = 30
	maxPerPage = 100
)

// pageSize is the number of items of a list in one answer.
func (s *base) pageSize(c *call) int {
	if n, err := strconv.Atoi(c.query.Get("per_page")); err == nil && n > 0 {
		return min(n, s.o.Limits.PerPage)
	}
	return min(perPage, s.o.Limits.PerPage)
}

// finish cuts a list into pages, completes the answer as described, and adds the ETag.
func (s *Server) finish(c *call, a reply) *reply {
	if a.header == nil {
		a.header = http.Header{}
	}
	if a.list != nil {
		s.paginate(c, &a)
	}
	if a.body == nil {
		return &a
	}
	data, err := s.desc.response(c.op, a.status, a.encode())
	if err != nil {
		s.violation("%s: our answer: %v", c.op, err)
	}
	a.body = json.RawMessage(data)
	sum := sha256.Sum256(data)
	if a.status < http.StatusBadRequest {
		a.header.Set("ETag", `W/"`+hex.EncodeToString(sum[:])+`"`)
	}
	return &a
}

// paginate makes the requested page of a list the body of an answer, with links to the
// other pages.
func (s *Server) paginate(c *call, a *reply) {
	size, page := s.pageSize(c), 1
	if n, err := strconv.Atoi(c.query.Get("page")); err == nil && n > 0 {
		page = n
	}
	last := max(1, (len(a.list)+size-1)/size)
	part := a.list[min((page-1)*size, len(a.list)):min(page*size, len(a.list))]
	var links []string
	link := func(n int, rel string) {
		links = append(links, s.link(c, "page", strconv.Itoa(n), rel))
	}
	if page > 1 {
		link(page-1, "prev")
	}
	if page < last {
		link(page+1, "next")
		link(last, "last")
	}
	if len(links) > 0 {
		a.header.Set("Link", strings.Join(links, ", "))
	}
	a.body = part
	if a.under != "" {
		a.body = obj{"total_count": len(a.list), a.under: part}
	}
}

// link is an entry of the Link header: the same request with another parameter.
func (s *base) link(c *call, parameter, value, rel string) string {
	q := maps.Clone(c.query)
	q.Set(parameter, value)
	return fmt.Sprintf(`<%s%s?%s>; rel=%q`, s.url, c.URL.Path, q.Encode(), rel)
}

// encode is the body in JSON, and sets its type.
func (a *reply) encode() []byte {
	if a.header == nil {
		a.header = http.Header{}
	}
	if a.body == nil {
		return nil
	}
	a.header.Set("Content-Type", "application/json; charset=utf-8")
	return encode(a.body)
}

func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // it has only maps, strings and numbers
	}
	return b.Bytes()
}

// pause waits, or until the client disconnects.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "token") {
		return token
	}
	return ""
}
