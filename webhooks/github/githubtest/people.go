package githubtest

import (
	"fmt"
	"slices"
)

// Comment is one on a pull request, as a person sees it.
type Comment struct {
	ID     int64
	Author string
	Body   string
	Edited bool
}

// Comments lists a pull request's comments, oldest first.
func (s *Server) Comments(pull int) []Comment {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Comment
	for _, c := range s.comments {
		if c.pull == pull {
			out = append(out, Comment{c.id, c.login, c.body, c.changed != c.made})
		}
	}
	return out
}

// Comment writes one as a person and returns its id.
func (s *Server) Comment(pull int, login, body string) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pull(pull) == nil {
		return 0, errNoPull
	}
	return s.say(pull, Token{Login: login}, body).id, nil
}

// DeleteComment removes one, as who runs the repository may.
func (s *Server) DeleteComment(id int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.comments)
	s.comments = slices.DeleteFunc(s.comments, func(c *comment) bool { return c.id == id })
	if len(s.comments) == before {
		return fmt.Errorf("no comment %d", id)
	}
	return nil
}

// Check is a check run, as a person sees it.
type Check struct {
	ID          int64
	App         string // slug
	Name        string
	Status      string
	Conclusion  string
	ExternalID  string
	Title       string
	Summary     string
	Annotations []Annotation
}

// Checks lists the check runs of a commit, oldest first. GitHub shows the newest
// of a name.
func (s *Server) Checks(commit string) []Check {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Check
	for _, r := range s.checks {
		if r.commit == commit {
			out = append(out, Check{r.id, r.app, r.name, r.status, r.conclusion, r.external, r.title, r.summary, slices.Clone(r.annotations)})
		}
	}
	return out
}

// Status is a commit status.
type Status struct{ Context, State, Description string }

// Statuses lists the statuses of a commit, oldest first.
func (s *Server) Statuses(commit string) []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Status
	for _, st := range s.statuses {
		if st.commit == commit {
			out = append(out, Status{st.context, st.state, st.description})
		}
	}
	return out
}

// Rerun asks for a check run again, as by a click.
func (s *Server) Rerun(id int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := s.check(id)
	if run == nil {
		return fmt.Errorf("no check run %d", id)
	}
	s.deliver([]Delivery{s.event("check_run", "rerequested", obj{"action": "rerequested", "check_run": s.checkEventShape(run)})})
	return nil
}

// Pull is a pull request, as a person sees it.
type Pull struct {
	Number      int
	Title       string
	Author      string
	Branch      string
	Head        string
	Open        bool
	MergeCommit string // once merged
}

// Pull is a pull request by number.
func (s *Server) Pull(number int) (Pull, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pull(number)
	if p == nil {
		return Pull{}, false
	}
	return Pull{p.number, p.title, p.author, p.branch, p.head, p.open, p.mergeCommit}, true
}

// PullURL is what a person would open. There is no page behind it.
func (s *Server) PullURL(number int) string {
	return fmt.Sprintf("%s/%s/%s/pull/%d", s.url, s.o.Owner, s.o.Repo, number)
}
