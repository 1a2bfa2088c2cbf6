package githubtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// git runs Git's own commands on the bare repository: Berth uses go-git, and the server
// side is real Git.
type git struct{ dir string }

// environment excludes the machine's and the user's Git configuration.
func environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
	}
}

func (g git) runEnv(env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"--git-dir", g.dir}, args...)...)
	cmd.Env = append(environment(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimRight(string(out), "\n"), nil
}

func (g git) run(args ...string) (string, error) { return g.runEnv(nil, args...) }

// branches returns the commit of each branch.
func (g git) branches() (map[string]string, error) {
	out, err := g.run("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads")
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for line := range strings.Lines(out) {
		commit, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		m[strings.TrimPrefix(ref, "refs/heads/")] = commit
	}
	return m, nil
}

// head is the name of the default branch.
func (g git) head() (string, error) { return g.run("symbolic-ref", "--short", "HEAD") }

// isCommit says whether a commit exists. A true result is kept.
func (s *Server) isCommit(id string) bool {
	if !s.commits[id] {
		_, err := s.git.run("rev-parse", "--verify", "--quiet", "--end-of-options", id+"^{commit}")
		s.commits[id] = err == nil
	}
	return s.commits[id]
}

// isAncestor says whether a is b, or one of its ancestors. Git is asked once of
// each commit that is new here: a forge asks this of every pull request at every
// push.
func (s *Server) isAncestor(a, b string) bool {
	if _, known := s.parents[b]; !known {
		out, err := s.git.run("rev-list", "--parents", b, "--")
		if err != nil {
			return false
		}
		for line := range strings.Lines(out) {
			if ids := strings.Fields(line); s.parents[ids[0]] == nil {
				s.parents[ids[0]] = ids[1:]
			}
		}
	}
	seen := map[string]bool{b: true}
	for queue := []string{b}; len(queue) > 0; queue = queue[1:] {
		if queue[0] == a {
			return true
		}
		for _, p := range s.parents[queue[0]] {
			if !seen[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
	}
	return false
}

// merge is the tree of a merge; ok is false if there are conflicts.
func (g git) merge(base, head string) (tree string, ok bool) {
	out, err := g.run("merge-tree", "--write-tree", "--no-messages", base, head)
	tree, _, _ = strings.Cut(out, "\n")
	return tree, err == nil
}

// commit makes a commit and returns its id.
func (g git) commit(tree, message, login string, at time.Time, parents ...string) (string, error) {
	args := []string{"commit-tree", tree, "-m", message}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	date := fmt.Sprintf("%d +0000", at.Unix())
	return g.runEnv([]string{
		"GIT_AUTHOR_NAME=" + login, "GIT_AUTHOR_EMAIL=" + login + "@users.noreply.example.com", "GIT_AUTHOR_DATE=" + date,
		"GIT_COMMITTER_NAME=GitHub", "GIT_COMMITTER_EMAIL=noreply@example.com", "GIT_COMMITTER_DATE=" + date,
	}, args...)
}

// update moves a ref from old; "": the ref is absent.
func (g git) update(ref, to, old string) error {
	if old == "" {
		old = strings.Repeat("0", 40)
	}
	_, err := g.run("update-ref", ref, to, old)
	return err
}

// logged is a commit as a push event shows it.
type logged struct {
	id, tree, message                string
	author, authorMail, authored     string
	committer, committerMail, stored string
}

// log lists the commits from (not included) to to, oldest first, at most 20. An
// empty from lists the newest only.
func (g git) log(from, to string) ([]logged, error) {
	args := []string{"log", "-z", "--reverse", "--max-count=20", "--format=%H%x01%T%x01%an%x01%ae%x01%aI%x01%cn%x01%ce%x01%cI%x01%B", to}
	if from == "" {
		args = append(args, "--max-count=1")
	} else {
		args = append(args, "^"+from)
	}
	out, err := g.run(append(args, "--")...)
	if err != nil {
		return nil, err
	}
	var list []logged
	for _, entry := range strings.Split(strings.TrimRight(out, "\x00"), "\x00") {
		f := strings.SplitN(entry, "\x01", 9)
		if len(f) == 9 {
			list = append(list, logged{f[0], f[1], strings.TrimSpace(f[8]), f[2], f[3], f[4], f[5], f[6], f[7]})
		}
	}
	return list, nil
}

// maxPush is how large a push of unknown length may be, in bytes.
const maxPush = 256 << 20

// gitHandler serves Git over HTTP with Git's own http-backend, to the owner only if there
// is one. A push is visible in the API before it is answered.
func (s *Server) gitHandler(repoDir, owner string) http.Handler {
	dir, err := filepath.Abs(repoDir)
	if err != nil {
		dir = repoDir
	}
	backend := &cgi.Handler{
		Path: "/bin/sh",
		Args: []string{"-c", "exec git http-backend"},
		Env: append(environment(), "GIT_PROJECT_ROOT="+dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=git",
			"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=http.receivepack", "GIT_CONFIG_VALUE_0=true",
			"GIT_CONFIG_KEY_1=safe.directory", "GIT_CONFIG_VALUE_1=*"),
		InheritEnv: []string{"PATH"},
		Stderr:     io.Discard,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pause(r.Context(), s.o.Latency)
		_, password, _ := r.BasicAuth()
		s.mu.Lock()
		who, bad := s.identify("git", password)
		s.mu.Unlock()
		service := path.Base(r.URL.Path)
		if q := r.URL.Query().Get("service"); q != "" {
			service = q
		}
		if bad == nil && (!who.may(service) || owner != "" && who.as() != owner) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if bad != nil {
			w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.ContentLength < 0 { // CGI must know the length; Git does not for a large push
			data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPush))
			if err != nil {
				w.WriteHeader(http.StatusRequestEntityTooLarge)
				return
			}
			r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
		}
		backend.ServeHTTP(w, r)
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
			if err := s.Sync(); err != nil {
				s.o.Log.Error("githubtest: after a push", "error", err)
			}
		}
	})
}
