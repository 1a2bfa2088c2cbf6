package githubtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Token is the owner of a token.
type Token struct {
	Login string // of a user; for an App its slug: it acts as "slug[bot]"
	App   bool   // may write check runs
	// Permissions of an App's token, such as "checks": "write"; nil: all. GitHub makes such
	// tokens with App.Permissions.
	Permissions map[string]string
}

// as is the login it acts as.
func (t Token) as() string {
	if t.App {
		return t.Login + "[bot]"
	}
	return t.Login
}

// Options of a Server. RepoDir, Owner, Repo and Log are needed.
type Options struct {
	RepoDir     string // a bare repository; its HEAD names the default branch
	Owner, Repo string
	Tokens      map[string]Token // by token
	App         *App             // makes more tokens; nil: no App
	// Permissions of users in the repository: admin, maintain, write, triage, read.
	// Others have none.
	Permissions map[string]string
	// Required lists the checks that must pass before the merge queue merges.
	Required []string
	// Secret signs deliveries to WebhookURL; "": no webhook.
	Secret     []byte
	WebhookURL string
	Limits     Limits
	// Latency of each answer, Git's included; answers are concurrent.
	Latency time.Duration
	// Address to listen at; a free port of 127.0.0.1 if empty.
	Address string
	Now     func() time.Time // time.Now if nil
	Log     *slog.Logger
}

// Server is the test server. All methods are safe for concurrent use.
type Server struct {
	o    Options
	desc *description
	git  git
	url  string // without a slash at the end
	main string // the default branch

	http    *http.Server
	served  chan struct{}
	courier *courier

	mu          sync.Mutex // everything below
	lastID      int64
	pulls       []*pull // by number, from 1
	checks      []*checkRun
	comments    []*comment
	reviews     []*review
	statuses    []*status
	users       map[string]int64
	gone        map[string]bool // deleted accounts
	permissions map[string]string
	issued      map[string]issued // by token
	branches    map[string]string // as last seen
	forks       map[string]*fork  // by owner
	queue       []*group
	commits     map[string]bool
	parents     map[string][]string // of commits
	faults      []*Fault
	storm       Storm
	requests    []Request
	violations  []string
	beyond      bool               // the current answer is known to differ from the description
	spent       map[string]*budget // by login
}

// Request is a request that the server got.
type Request struct {
	Op     string // such as "GET /repos/{owner}/{repo}/pulls"
	URL    string // path and query
	Body   string
	Status int // of the answer; 0: the connection was cut
}

// Write says whether the request may change something.
func (r Request) Write() bool { return !strings.HasPrefix(r.Op, "GET ") }

// New makes a server for a repository and starts it.
func New(o Options) (*Server, error) {
	if o.RepoDir == "" || o.Owner == "" || o.Repo == "" || o.Log == nil {
		return nil, errors.New("githubtest: RepoDir, Owner, Repo and Log are needed")
	}
	if o.WebhookURL != "" && len(o.Secret) == 0 {
		return nil, errors.New("githubtest: deliveries need a Secret")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Address == "" {
		o.Address = "127.0.0.1:0"
	}
	o.Limits.defaults()
	desc, err := loadDescription()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, err
	}
	s := &Server{
		o: o, desc: desc, git: git{dir: o.RepoDir}, url: "http://" + l.Addr().String(),
		lastID: 1000, users: map[string]int64{}, issued: map[string]issued{}, spent: map[string]*budget{},
		commits: map[string]bool{}, parents: map[string][]string{},
		forks: map[string]*fork{}, gone: map[string]bool{}, permissions: map[string]string{},
		served: make(chan struct{}),
	}
	if s.main, err = s.git.head(); err == nil {
		s.branches, err = s.git.branches()
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	maps.Copy(s.permissions, o.Permissions)
	s.courier = newCourier(s)
	s.http = &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error("githubtest: server ended", "error", err)
		}
	}()
	return s, nil
}

// Close stops the server and its deliveries, and waits for their end.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.http.Close()
	}
	<-s.served
	s.courier.close()
	for login := range maps.Clone(s.forks) {
		s.DeleteFork(login)
	}
}

// APIURL is the base URL of the REST API, with a slash at the end.
func (s *Server) APIURL() string { return s.url + "/" }

// CloneURL is the Git URL. Its password is any of the tokens.
func (s *Server) CloneURL() string { return fmt.Sprintf("%s/%s/%s.git", s.url, s.o.Owner, s.o.Repo) }

// Requests lists the API requests so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Forget empties the list of requests.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// Violations lists the mismatches with GitHub: requests that GitHub would refuse or
// misread, and answers that GitHub would not give.
func (s *Server) Violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.violations)
}

// violation adds a violation. The caller holds mu.
func (s *Server) violation(format string, args ...any) {
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
}

// call is a request that is being served.
type call struct {
	op    string
	path  map[string]string
	at    string // the requested path
	query url.Values
	body  []byte
	who   Token
	token string
}

// decode reads the body, which fits the description, into v.
func (c *call) decode(v any) *problem {
	if err := json.Unmarshal(c.body, v); err != nil {
		return &problem{http.StatusBadRequest, "Problems parsing JSON: " + err.Error()}
	}
	return nil
}

// problem is an error answer.
type problem struct {
	status  int
	message string
}

var notThere = &problem{http.StatusNotFound, "Not Found"}

// reply is an answer. Lists are paged on the way out.
type reply struct {
	status int
	body   any // nil: none
	list   []any
	link   string // of a list that is already paged
	under  string // field of the list, next to total_count; "": the list is the body
}

type route struct {
	segments []string
	serve    func(*call) (reply, *problem)
}

// handler serves Git under /owner/repo.git and the API under everything else.
func (s *Server) handler() http.Handler {
	routes := map[string]route{}
	for op, serve := range s.operations() {
		_, path, _ := strings.Cut(op, " ")
		routes[op] = route{strings.Split(path, "/"), serve}
	}
	names := slices.Sorted(maps.Keys(routes))
	repo := "/" + s.o.Owner + "/" + s.o.Repo + ".git"
	gitHandler := http.StripPrefix(repo, s.gitHandler(s.o.RepoDir, ""))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, repo+"/") {
			gitHandler.ServeHTTP(w, r)
			return
		}
		if f, prefix := s.forkOf(r.URL.Path); f != nil {
			http.StripPrefix(prefix, s.gitHandler(f.git.dir, f.login)).ServeHTTP(w, r)
			return
		}
		c := &call{op: r.Method + " " + r.URL.Path, at: r.URL.Path, query: r.URL.Query()}
		var serve func(*call) (reply, *problem)
		best := -1
		for _, op := range names {
			method, _, _ := strings.Cut(op, " ")
			if method != r.Method {
				continue
			}
			// comments/7 matches both {issue_number}/7 and comments/{id}: the more
			// literal pattern wins.
			if params, literal, ok := match(routes[op].segments, strings.Split(r.URL.Path, "/")); ok && literal > best {
				c.op, c.path, serve, best = op, params, routes[op].serve, literal
			}
		}
		s.serve(w, r, c, serve)
	})
}

// match compares a path with a pattern and counts the literal segments.
func match(pattern, path []string) (params map[string]string, literal int, ok bool) {
	if len(pattern) != len(path) {
		return nil, 0, false
	}
	params = map[string]string{}
	for i, p := range pattern {
		switch {
		case strings.HasPrefix(p, "{"):
			params[strings.Trim(p, "{}")] = path[i]
		case p == path[i]:
			literal++
		default:
			return nil, 0, false
		}
	}
	return params, literal, true
}

// answer is the HTTP answer.
type wire struct {
	status int
	header http.Header
	body   []byte
}

// serve handles one request: identity, limits, faults, description, operation.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, c *call, serve func(*call) (reply, *problem)) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 10<<20))
	if err != nil {
		return
	}
	c.body = body
	s.mu.Lock()
	fault := s.fault(c.op)
	c.token = bearer(r)
	var bad *problem
	c.who, bad = s.identify(c.op, c.token)
	s.mu.Unlock()
	if bad == nil {
		defer s.enter(c.who.as())()
	}
	wait := s.o.Latency
	if fault != nil {
		wait += fault.Delay
	}
	pause(r.Context(), wait)
	var a wire
	if fault == nil || fault.Carry || fault.passes() {
		if bad != nil {
			a = problemWire(bad)
		} else {
			a = s.carryOut(r, c, serve)
		}
	}
	cutOff := false
	if fault != nil && !fault.passes() {
		if cutOff = fault.Status == 0; !cutOff {
			a = problemWire(&problem{fault.Status, fault.Message})
			for k, v := range fault.Header {
				a.header.Set(k, v)
			}
		}
	}
	s.mu.Lock()
	note := Request{Op: c.op, URL: r.URL.RequestURI(), Body: string(body), Status: a.status}
	if cutOff {
		note.Status = 0
	}
	s.requests = append(s.requests, note)
	s.mu.Unlock()
	if cutOff {
		panic(http.ErrAbortHandler) // closes the connection without an answer
	}
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// carryOut performs the operation and makes the answer.
func (s *Server) carryOut(r *http.Request, c *call, serve func(*call) (reply, *problem)) wire {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Header.Get("User-Agent") == "" {
		s.violation("%s: no User-Agent", c.op)
		return problemWire(&problem{http.StatusForbidden, "Request forbidden by administrative rules. Please make sure your request has a User-Agent header."})
	}
	if !c.who.may(c.op) {
		return problemWire(forbidden)
	}
	spent := s.budgetOf(c.who.as())
	if refused := spent.refuse(s.o.Now(), kind(c.op), s.o.Limits); refused != nil {
		return *refused
	}
	a := s.perform(r, c, serve)
	if match := r.Header.Get("If-None-Match"); a.status == http.StatusOK && match != "" && match == a.header.Get("ETag") {
		// The ETag is of the body alone, and a 304 need not repeat more of the header.
		a.status, a.body = http.StatusNotModified, nil
		a.header.Del("Link")
	}
	spent.count(s.o.Now(), kind(c.op), a.status == http.StatusNotModified)
	spent.head(a.header, s.o.Limits)
	return a
}

func (s *Server) perform(r *http.Request, c *call, serve func(*call) (reply, *problem)) wire {
	if serve == nil {
		s.violation("%s: not served here", c.op)
		return problemWire(notThere)
	}
	if owner, ok := c.path["owner"]; ok && (!strings.EqualFold(owner, s.o.Owner) || !strings.EqualFold(c.path["repo"], s.o.Repo)) {
		return problemWire(notThere)
	}
	if err := s.desc.query(c.op, c.query); err != nil {
		s.violation("%s %s: %v", c.op, r.URL.RawQuery, err)
	}
	if err := s.desc.request(c.op, c.body); err != nil {
		s.violation("%s: request: %v", c.op, err)
		return problemWire(&problem{http.StatusUnprocessableEntity, "Invalid request.\n\n" + err.Error()})
	}
	s.beyond = false
	rep, bad := serve(c)
	if bad != nil {
		return problemWire(bad)
	}
	a := s.write(r, rep)
	if err := s.desc.response(c.op, a.status, a.body); err != nil && !s.beyond {
		s.violation("%s: our answer: %v", c.op, err)
	}
	return a
}

const (
	perPage    = 30
	maxPerPage = 100
)

// write makes the answer of a reply; of a list, one page.
func (s *Server) write(r *http.Request, rep reply) wire {
	a := wire{status: rep.status, header: http.Header{}}
	body := rep.body
	if body == nil && rep.list != nil {
		size, page := perPage, 1
		q := r.URL.Query()
		if n, err := strconv.Atoi(q.Get("per_page")); err == nil && n > 0 {
			size = n
		}
		size = min(size, s.o.Limits.PerPage)
		if n, err := strconv.Atoi(q.Get("page")); err == nil && n > 0 {
			page = n
		}
		last := max(1, (len(rep.list)+size-1)/size)
		part := rep.list[min((page-1)*size, len(rep.list)):min(page*size, len(rep.list))]
		var links []string
		link := func(n int, rel string) {
			q.Set("page", strconv.Itoa(n))
			links = append(links, fmt.Sprintf(`<%s%s?%s>; rel=%q`, s.url, r.URL.Path, q.Encode(), rel))
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
		body = part
		if rep.under != "" {
			body = obj{"total_count": len(rep.list), rep.under: part}
		}
	}
	if rep.link != "" {
		a.header.Set("Link", rep.link)
	}
	if body == nil {
		return a
	}
	a.body = encode(body)
	sum := sha256.Sum256(a.body)
	a.header.Set("ETag", `W/"`+hex.EncodeToString(sum[:])+`"`)
	a.header.Set("Content-Type", "application/json; charset=utf-8")
	return a
}

func problemWire(p *problem) wire {
	h := http.Header{}
	h.Set("Content-Type", "application/json; charset=utf-8")
	about := "https://docs.github.com/rest"
	if p.message == secondary {
		about += "/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits"
	}
	return wire{p.status, h, encode(obj{"message": p.message, "documentation_url": about})}
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

func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // it has only maps, strings and numbers
	}
	return b.Bytes()
}

func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "token") {
		return token
	}
	return ""
}

// ForgetViolations empties the list, for a test that causes violations on purpose.
func (s *Server) ForgetViolations() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = nil
}
