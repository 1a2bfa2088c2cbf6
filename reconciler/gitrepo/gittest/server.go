// Package gittest is a real Git server on a loopback port: `git http-backend`
// over one bare repository, with faults that can be switched on. Tests use it,
// and the demo, which needs a forge's Git side without a forge.
//
// It must not know Berth: only Git and HTTP. It needs the git program.
package gittest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// RepoName is the path of the one repository a Server serves.
const RepoName = "estate.git"

// maxBody bounds one request; tests and demos push far less.
const maxBody = 256 << 20

// Options say how a Server starts.
type Options struct {
	Dir   string // where the bare repository is put; must be empty or missing
	Addr  string // listen address; empty: a free port on 127.0.0.1
	Token string // password every request must carry; empty: none asked
	Files map[string]string
	// Empty leaves the repository without a commit, Files must be nil then.
	Empty bool
}

// Server serves one bare repository. Its methods are safe for concurrent use.
type Server struct {
	URL string // of the repository, without credentials
	Dir string // the bare repository itself

	token   string
	backend *cgi.Handler
	http    *http.Server
	stop    chan struct{}

	mu     sync.Mutex
	faults Faults
	seen   map[string]int
	busy   sync.WaitGroup // requests being answered
}

// Faults is what a Server does wrong. The zero value serves.
type Faults struct {
	Down         bool // cut every connection without an answer
	Hang         bool // take requests and never answer
	Unauthorized bool // answer 401 whatever is sent
	// DropReplies lets this many pushes through and then cuts the connection
	// instead of answering: the effect is there, the reply is lost.
	DropReplies int
}

// TB is what New needs of a *testing.T or *testing.B.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
	TempDir() string
}

// New starts a Server for a test, with files committed on main. It is closed
// when the test ends.
func New(t TB, files map[string]string) *Server {
	t.Helper()
	s, err := Start(Options{Dir: filepath.Join(t.TempDir(), RepoName), Files: files, Empty: files == nil})
	if err != nil {
		t.Fatalf("git server: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// Start makes the bare repository and serves it until Close.
func Start(o Options) (*Server, error) {
	core, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return nil, fmt.Errorf("find git: %w; install git", err)
	}
	if filepath.Base(o.Dir) != RepoName {
		o.Dir = filepath.Join(o.Dir, RepoName)
	}
	s := &Server{
		Dir:   o.Dir,
		token: o.Token,
		stop:  make(chan struct{}),
		seen:  map[string]int{},
		backend: &cgi.Handler{
			Path:   filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"),
			Env:    append(environment(), "GIT_PROJECT_ROOT="+filepath.Dir(o.Dir), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=berth"),
			Stderr: io.Discard,
		},
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	setup := [][]string{
		{"init", "-q", "--bare", "--initial-branch=main", "."},
		{"config", "http.receivepack", "true"},
		{"config", "uploadpack.allowAnySHA1InWant", "true"},
		{"config", "receive.fsckObjects", "true"},
		{"config", "gc.auto", "0"},
	}
	for _, args := range setup {
		if _, err := s.Git(args...); err != nil {
			return nil, err
		}
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

// Close stops serving. The repository stays where it is.
func (s *Server) Close() {
	s.mu.Lock()
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.mu.Unlock()
	_ = s.http.Close()
	s.busy.Wait() // git may still be writing for a request whose client has gone
}

// SetFaults switches faults on or off, for requests from now on.
func (s *Server) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Requests counts what was asked since the last ResetRequests, by method and
// the service behind it: "GET git-upload-pack" is a ref advertisement, "POST
// git-receive-pack" a push.
func (s *Server) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]int, len(s.seen))
	for k, v := range s.seen {
		out[k] = v
	}
	return out
}

// ResetRequests forgets the counts.
func (s *Server) ResetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.seen)
}

// ServeHTTP answers one request, or fails to, as the faults say.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.busy.Add(1)
	defer s.busy.Done()
	service := r.URL.Query().Get("service")
	if service == "" {
		service = filepath.Base(r.URL.Path)
	}
	push := r.Method == http.MethodPost && service == "git-receive-pack"

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
	// CGI wants a length, and git sends large bodies in chunks.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	if drop {
		s.backend.ServeHTTP(nowhere{}, r)
		panic(http.ErrAbortHandler)
	}
	s.backend.ServeHTTP(w, r)
}

// environment is what git runs with: nothing of the user's, and a fixed
// identity.
func environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}
}

// Git runs git in the bare repository and returns what it printed, without the
// last newline.
func (s *Server) Git(args ...string) (string, error) {
	return s.GitInput(nil, args...)
}

// GitInput is Git with something on standard input.
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

// nowhere is an answer nobody gets.
type nowhere struct{}

func (nowhere) Header() http.Header         { return http.Header{} }
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) WriteHeader(int)             {}
