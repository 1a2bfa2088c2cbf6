package gittest

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
)

// serve answers a request by git. For a fetch or a push it starts the command that `git
// http-backend` would start, which saves a process. git http-backend answers all other requests,
// and those with a compressed body.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/"+RepoName+"/")
	service, kind, args := path, "result", []string{"--stateless-rpc"}
	if r.Method == http.MethodGet && path == "info/refs" {
		service, kind, args = r.URL.Query().Get("service"), "advertisement", append(args, "--advertise-refs")
	} else if r.Method != http.MethodPost {
		service = ""
	}
	if service != "git-upload-pack" && service != "git-receive-pack" || r.Header.Get("Content-Encoding") != "" {
		s.backend.ServeHTTP(w, r)
		return
	}
	protocol := r.Header.Get("Git-Protocol")
	cmd := exec.Command(s.git, append([]string{strings.TrimPrefix(service, "git-")}, append(args, ".")...)...)
	cmd.Dir, cmd.Env, cmd.Stdin = s.Dir, append(environment(), "GIT_PROTOCOL="+protocol), r.Body
	out, err := cmd.Output()
	if err != nil && len(out) == 0 {
		http.Error(w, fmt.Sprintf("git %s: %v", service, err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-"+service+"-"+kind)
	w.Header().Set("Cache-Control", "no-cache, max-age=0, must-revalidate")
	if kind == "advertisement" && !strings.Contains(protocol, "version=2") {
		line := "# service=" + service + "\n"
		_, _ = fmt.Fprintf(w, "%04x%s0000", 4+len(line), line) // the client may be gone
	}
	_, _ = w.Write(out)
}
