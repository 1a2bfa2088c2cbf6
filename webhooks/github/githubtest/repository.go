package githubtest

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// fork is a user's fork of the repository.
type fork struct {
	id       int64
	git      git
	branches map[string]string // as last seen
}

// repository is the Git repository, with its forks.
type repository struct {
	*accounts
	git      git
	main     string              // the default branch
	branches map[string]string   // as last seen
	forks    map[string]*fork    // by owner
	parents  map[string][]string // of each known commit
}

// knows says whether a commit exists, and reads its history if it is new here.
func (r *repository) knows(commit string) bool {
	if _, known := r.parents[commit]; !known {
		out, err := r.git.run("rev-list", "--parents", "--end-of-options", commit, "--")
		if err != nil {
			return false
		}
		for line := range strings.Lines(out) {
			ids := strings.Fields(line)
			r.parents[ids[0]] = ids[1:]
		}
	}
	_, known := r.parents[commit]
	return known
}

// isAncestor says whether a is b, or one of its ancestors. Git is asked once about each
// new commit, because every push asks this about every pull request.
func (r *repository) isAncestor(a, b string) bool {
	if !r.knows(b) {
		return false
	}
	seen := map[string]bool{b: true}
	for queue := []string{b}; len(queue) > 0; queue = queue[1:] {
		if queue[0] == a {
			return true
		}
		for _, p := range r.parents[queue[0]] {
			if !seen[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
	}
	return false
}

// Fork makes a user's fork and returns the directory of its bare repository, which Close
// deletes. Sync notices changes made there.
func (r *repository) Fork(login string) (dir string, err error) {
	defer r.lock()()
	if f := r.forks[login]; f != nil {
		return f.git.dir, nil
	}
	if login == r.o.Owner {
		return "", fmt.Errorf("%s owns the repository", login)
	}
	temp, err := os.MkdirTemp("", "githubtest-fork-")
	if err != nil {
		return "", err
	}
	f := &fork{id: r.id(), git: git{filepath.Join(temp, r.o.Repo+".git")}}
	cmd := exec.Command("git", "clone", "-q", "--bare", r.git.dir, f.git.dir)
	cmd.Env = environment()
	out, err := cmd.CombinedOutput()
	if err == nil {
		f.branches, err = f.git.branches()
	}
	if err != nil {
		os.RemoveAll(temp)
		return "", fmt.Errorf("fork for %s: %w: %s", login, err, out)
	}
	r.forks[login] = f
	return f.git.dir, nil
}

func (r *repository) getRepository(*call) reply { return ok(r.shape(r.o.Owner)) }

// shape is the repository, or a user's fork of it.
func (r *repository) shape(owner string) obj {
	id := int64(1)
	if f := r.forks[owner]; f != nil {
		id = f.id
	}
	name := owner + "/" + r.o.Repo
	return obj{
		"id": id, "node_id": nodeID("Repository", id), "name": r.o.Repo, "full_name": name, "owner": r.userShape(owner),
		"private": true, "fork": owner != r.o.Owner, "default_branch": r.main, "html_url": r.url + "/" + name,
		"url": r.url + "/repos/" + name, "clone_url": r.url + "/" + name + ".git",
	}
}

// emit sends an event of the repository to the webhook, by the owner unless the body has
// a sender.
func (r *repository) emit(name, action string, body obj) {
	shape := obj{"repository": r.shape(r.o.Owner), "sender": r.userShape(r.o.Owner)}
	if action != "" {
		shape["action"] = action
	}
	if app := r.o.App; app != nil {
		shape["installation"] = obj{"id": app.Installation, "node_id": nodeID("Installation", app.Installation)}
	}
	maps.Copy(shape, body)
	data, err := r.desc.webhook(name, action, encode(shape))
	if err != nil {
		r.violation("our webhook %s %s: %v", name, action, err)
	}
	r.webhook.add(Delivery{Event: name, Action: action, Body: data})
}

// Ping sends the event of a new webhook.
func (r *repository) Ping() {
	defer r.lock()()
	r.emit("ping", "", obj{"zen": "Keep it logically awesome.", "hook_id": 1, "hook": obj{"id": 1, "name": "web", "active": true}})
}

// pushed sends the event of a branch that moved; from or to is "" if the branch was
// created or deleted.
func (r *repository) pushed(branch, from, to string) error {
	orZeros := func(id string) string {
		if id == "" {
			return zeros
		}
		return id
	}
	body := obj{
		"ref": "refs/heads/" + branch, "before": orZeros(from), "after": orZeros(to),
		"created": from == "", "deleted": to == "", "forced": from != "" && to != "" && !r.isAncestor(from, to),
		"pusher": obj{"name": r.o.Owner, "email": r.o.Owner + "@users.noreply.example.com"},
	}
	if to != "" {
		log, err := r.git.log(from, to)
		if err != nil {
			return err
		}
		commits := shaped(log, func(c logged) obj {
			shape := c.shape()
			shape["distinct"], shape["url"] = true, r.html("/commit/", c.id)
			return shape
		}, nil)
		if n := len(commits); n > 0 {
			body["commits"], body["head_commit"] = commits, commits[n-1]
		}
	}
	r.emit("push", "", body)
	return nil
}

// maxPush is how large a push of unknown length may be, in bytes.
const maxPush = 256 << 20

// transport serves Git over HTTP with Git's own http-backend. A push is visible in the
// API before it is answered.
func (s *Server) transport() http.Handler {
	dir, err := filepath.Abs(s.o.RepoDir)
	if err != nil {
		dir = s.o.RepoDir
	}
	program, err := exec.LookPath("git")
	if err != nil {
		program = "/usr/bin/git" // each request fails, and names it
	}
	backend := &cgi.Handler{
		Path: program,
		Args: []string{"http-backend"},
		Env: append(environment(), "GIT_PROJECT_ROOT="+dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=git",
			"GIT_CONFIG_COUNT=3", "GIT_CONFIG_KEY_0=http.receivepack", "GIT_CONFIG_VALUE_0=true",
			"GIT_CONFIG_KEY_1=safe.directory", "GIT_CONFIG_VALUE_1=*",
			"GIT_CONFIG_KEY_2=receive.autogc", "GIT_CONFIG_VALUE_2=false"),
		InheritEnv: []string{"PATH"},
		Stderr:     io.Discard,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serveGit(backend, w, r) })
}

func (s *Server) serveGit(backend http.Handler, w http.ResponseWriter, r *http.Request) {
	pause(r.Context(), s.o.Latency)
	_, password, _ := r.BasicAuth()
	unlock := s.lock()
	who, refused := s.authenticate("git", password)
	unlock()
	if refused != nil {
		w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	service := cmp.Or(r.URL.Query().Get("service"), path.Base(r.URL.Path))
	push := service == "git-receive-pack"
	if (push || service == "git-upload-pack") && !who.may("contents", push) {
		w.WriteHeader(http.StatusForbidden)
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
	if push && r.Method == http.MethodPost {
		if err := s.Sync(); err != nil {
			s.o.Log.Error("githubtest: after a push", "error", err)
		}
	}
}
