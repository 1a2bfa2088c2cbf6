package gittest

import (
	"bytes"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
)

// advertised keeps git's first answers to requests for the refs. Daemons in tests poll often, and
// each answer of git takes a process.
type advertised struct {
	mu    sync.Mutex
	first map[string]*httptest.ResponseRecorder // by service and protocol version
}

// advertise answers a request for the refs. It takes git's answer to the first such request, and
// replaces its refs by the present ones.
func (s *Server) advertise(w http.ResponseWriter, r *http.Request) {
	if s.Tip("main") == "" { // an answer without HEAD differs by more than its refs
		s.serve(w, r)
		return
	}
	answer := s.firstAnswer(r)
	body := answer.Body.Bytes()
	if refs := packp.NewAdvRefs(); answer.Code == http.StatusOK && refs.Decode(bytes.NewReader(body)) == nil {
		var out bytes.Buffer
		err := s.readRefs(refs)
		if err == nil {
			err = refs.Encode(&out)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		body = out.Bytes()
	} // else version 2, whose answer has no refs
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(body) // the client may be gone
}

// firstAnswer returns git's answer to the first request like this one.
func (s *Server) firstAnswer(r *http.Request) *httptest.ResponseRecorder {
	key := r.URL.Query().Get("service") + " " + r.Header.Get("Git-Protocol")
	s.refs.mu.Lock()
	defer s.refs.mu.Unlock()
	answer := s.refs.first[key]
	if answer == nil {
		answer = httptest.NewRecorder()
		s.serve(answer, r)
		if answer.Code == http.StatusOK {
			s.refs.first[key] = answer
		}
	}
	return answer
}

// readRefs replaces the refs of an advertisement by those of the repository. Each has a file, as
// nothing packs refs here.
func (s *Server) readRefs(a *packp.AdvRefs) error {
	a.References, a.Peeled = map[string]plumbing.Hash{}, nil
	err := filepath.WalkDir(filepath.Join(s.Dir, "refs"), func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) { // removed meanwhile
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		name, err := filepath.Rel(s.Dir, path)
		if id := string(bytes.TrimSpace(text)); plumbing.IsHash(id) { // else a lock
			a.References[name] = plumbing.NewHash(id)
		}
		return err
	})
	if main, ok := a.References["refs/heads/main"]; a.Head != nil && ok {
		a.Head = &main
	}
	return err
}
