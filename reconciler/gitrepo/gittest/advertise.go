package gittest

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// refCache keeps git's answers to a request for the refs while the refs do not change.
// Daemons in tests poll often, and one answer takes two processes.
type refCache struct {
	mu      sync.Mutex
	refs    string                                // content of the repository's ref files
	answers map[string]*httptest.ResponseRecorder // by protocol version
}

// advertise answers a request for the refs of the repository.
func (s *Server) advertise(w http.ResponseWriter, r *http.Request) {
	version := r.Header.Get("Git-Protocol")
	before, err := s.refFiles()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.refs.mu.Lock()
	var answer *httptest.ResponseRecorder
	if s.refs.refs == before {
		answer = s.refs.answers[version]
	}
	s.refs.mu.Unlock()
	if answer == nil {
		answer = httptest.NewRecorder()
		s.serve(answer, r)
		if after, err := s.refFiles(); err == nil && after == before && answer.Code == http.StatusOK {
			s.refs.mu.Lock()
			if s.refs.refs != before {
				s.refs.refs, s.refs.answers = before, map[string]*httptest.ResponseRecorder{}
			}
			s.refs.answers[version] = answer
			s.refs.mu.Unlock()
		}
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the client may be gone
}

// refFiles returns the content of all files that hold refs.
func (s *Server) refFiles() (string, error) {
	var out strings.Builder
	add := func(path string) error {
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) { // removed meanwhile
			return nil
		}
		out.WriteString(path + "\x00" + string(text) + "\x00")
		return err
	}
	for _, name := range []string{"HEAD", "packed-refs", "config"} {
		if err := add(filepath.Join(s.Dir, name)); err != nil {
			return "", err
		}
	}
	err := filepath.WalkDir(filepath.Join(s.Dir, "refs"), func(path string, d os.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		return add(path)
	})
	return out.String(), err
}
