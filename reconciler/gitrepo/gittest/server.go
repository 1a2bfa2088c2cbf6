// Package gittest runs a real Git server on a loopback port: `git http-backend`
// over one bare repository, with faults that can be switched on. Tests use it.
// The demo uses it in place of a forge.
//
// It must not know Berth, only Git and HTTP. It needs the git program.
package gittest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// RepoName is the path of the only repository of a Server.
const RepoName = "estate.git"

// maxBody bounds the body of one request in bytes; tests and demos push far less.
const maxBody = 256 << 20

// config is the configuration of the repository. It starts no maintenance after a push.
const config = `[core]
	repositoryFormatVersion = 0
	bare = true
[http]
	receivepack = true
[uploadpack]
	allowAnySHA1InWant = true
[receive]
	fsckObjects = true
	autogc = false
[gc]
	auto = 0
`

// Options configure a Server.
type Options struct {
	Dir   string // directory of the bare repository; must be empty or missing
	Addr  string // listen address; empty: a free port on 127.0.0.1
	Token string // password that every request must carry; empty: no password
	Files map[string]string
	// Empty leaves the repository without a commit; Files must be nil then.
	Empty bool
	// InProcess answers the pushes and fetches of a daemon in this process. A push through git takes
	// four processes and a fetch two, most of the processor time of a test.
	InProcess bool
}

// InProcess sets Options.InProcess.
func InProcess(o *Options) { o.InProcess = true }

// Server serves one bare repository. Its methods are safe for concurrent use.
type Server struct {
	URL string // URL of the repository, without credentials
	Dir string // directory of the bare repository

	token     string
	git       string // the program
	backend   *cgi.Handler
	inProcess bool // answers pushes and fetches that are not shallow
	http      *http.Server
	stop      chan struct{}

	mu     sync.Mutex
	faults Faults
	seen   map[string]int
	refs   advertised
	busy   sync.WaitGroup // requests being answered
}

// Faults are the simulated failures of a Server. The zero value has no failure.
type Faults struct {
	Down         bool // close every connection without a response
	Hang         bool // accept requests and never respond
	Unauthorized bool // respond 401 to every request
	// DropReplies is the number of pushes that are executed and whose response is
	// lost.
	DropReplies int
}

// TB is the part of testing.TB that New needs.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
	TempDir() string
}

// New starts a Server for a test and commits files to main. The server is closed
// when the test ends.
func New(t TB, files map[string]string, with ...func(*Options)) *Server {
	t.Helper()
	o := Options{Dir: filepath.Join(t.TempDir(), RepoName), Files: files, Empty: files == nil}
	for _, set := range with {
		set(&o)
	}
	s, err := Start(o)
	if err != nil {
		t.Fatalf("git server: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// Start creates the bare repository and serves it until Close.
func Start(o Options) (*Server, error) {
	core, err := programs()
	if err != nil {
		return nil, err
	}
	if filepath.Base(o.Dir) != RepoName {
		o.Dir = filepath.Join(o.Dir, RepoName)
	}
	s := &Server{
		Dir:       o.Dir,
		token:     o.Token,
		git:       filepath.Join(core, "git"),
		inProcess: o.InProcess,
		stop:      make(chan struct{}),
		seen:      map[string]int{},
		refs:      advertised{first: map[string]*httptest.ResponseRecorder{}},
		backend: &cgi.Handler{
			Path:   filepath.Join(core, "git-http-backend"),
			Env:    append(environment(), "GIT_PROJECT_ROOT="+filepath.Dir(o.Dir), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=berth"),
			Stderr: io.Discard,
		},
	}
	if err := s.create(); err != nil {
		return nil, err
	}
	if !o.Empty {
		if _, err := s.Commit("main", Commit{Message: "First commit", Files: o.Files}); err != nil {
			return nil, err
		}
	}
	addr := o.Addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s.URL = "http://" + l.Addr().String() + "/" + RepoName
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.http.Serve(l) }() // ends with ErrServerClosed at Close
	return s, nil
}

// programs returns the directory of git's programs.
var programs = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return "", fmt.Errorf("find git: %w; install git", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// Close stops the server. The repository remains on disk.
func (s *Server) Close() {
	s.mu.Lock()
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.mu.Unlock()
	_ = s.http.Close()
	s.busy.Wait() // git may still write for a request whose client disconnected
}

// SetFaults sets the faults for all later requests.
func (s *Server) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Requests counts the requests since the last ResetRequests by method and
// service: "GET git-upload-pack" is a ref advertisement, "POST git-receive-pack"
// a push.
func (s *Server) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]int, len(s.seen))
	for k, v := range s.seen {
		out[k] = v
	}
	return out
}

// ResetRequests sets the counts to zero.
func (s *Server) ResetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.seen)
}

// ServeHTTP serves one request with the current faults.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.busy.Add(1)
	defer s.busy.Done()
	service := r.URL.Query().Get("service")
	if service == "" {
		service = filepath.Base(r.URL.Path)
	}
	push := r.Method == http.MethodPost && service == "git-receive-pack"
	fetch := r.Method == http.MethodPost && service == "git-upload-pack"

	s.mu.Lock()
	s.seen[r.Method+" "+service]++
	f := s.faults
	drop := push && f.DropReplies > 0
	if drop {
		s.faults.DropReplies--
	}
	s.mu.Unlock()

	switch {
	case f.Down:
		panic(http.ErrAbortHandler)
	case f.Hang:
		select {
		case <-r.Context().Done():
		case <-s.stop:
		}
		panic(http.ErrAbortHandler)
	}
	if _, password, _ := r.BasicAuth(); f.Unauthorized || (s.token != "" && password != s.token) {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	// CGI requires a content length, and git sends large bodies in chunks.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	if drop {
		w = discardResponse{}
	}
	if !s.inProcess || !(push && s.receive(w, body) || fetch && s.upload(w, body)) {
		s.answer(w, r, service)
	}
	if drop {
		panic(http.ErrAbortHandler)
	}
}

// answer answers a request by git, and one for the refs by git's first answer.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, service string) {
	if r.Method == http.MethodGet && (service == "git-upload-pack" || service == "git-receive-pack") {
		s.advertise(w, r)
		return
	}
	s.serve(w, r)
}

// create makes the repository as `git init --bare` does, by gitrepository-layout(5).
func (s *Server) create() error {
	return errors.Join(
		os.MkdirAll(filepath.Join(s.Dir, "objects", "info"), 0o755),
		os.MkdirAll(filepath.Join(s.Dir, "objects", "pack"), 0o755),
		os.MkdirAll(filepath.Join(s.Dir, "refs", "heads"), 0o755),
		os.WriteFile(filepath.Join(s.Dir, "config"), []byte(config), 0o644),
		os.WriteFile(filepath.Join(s.Dir, "HEAD"), []byte("ref: refs/heads/main\n"), 0o644),
	)
}

// environment returns the environment of git: no user configuration, and a
// repository of any owner is accepted.
func environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}
}

// Git runs git in the bare repository and returns its output without the last
// newline.
func (s *Server) Git(args ...string) (string, error) {
	return s.GitInput(nil, args...)
}

// GitInput is Git with a standard input.
func (s *Server) GitInput(stdin io.Reader, args ...string) (string, error) {
	out, err := s.run(stdin, args...)
	return strings.TrimSuffix(string(out), "\n"), err
}

func (s *Server) run(stdin io.Reader, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = s.Dir, environment(), stdin
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// discardResponse drops the response.
type discardResponse struct{}

func (discardResponse) Header() http.Header         { return http.Header{} }
func (discardResponse) Write(p []byte) (int, error) { return len(p), nil }
func (discardResponse) WriteHeader(int)             {}
