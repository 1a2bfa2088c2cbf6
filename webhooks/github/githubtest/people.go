package githubtest

import (
	"fmt"
	"slices"
)

// Check is a check run, as users see it.
type Check struct {
	ID          int64
	App         string // slug
	Name        string
	Status      string
	Conclusion  string
	ExternalID  string
	Title       string
	Summary     string
	Text        string
	DetailsURL  string
	Annotations []Annotation
	Actions     []Action
}

// Action is a button on a check run.
type Action struct {
	Label       string `json:"label"`
	Description string `json:"description"`
	Identifier  string `json:"identifier"`
}

// Checks lists the check runs of a commit, oldest first. GitHub shows the newest of each
// name.
func (s *Server) Checks(commit string) []Check {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Check
	for _, r := range s.checks {
		if r.commit == commit {
			out = append(out, Check{
				r.id, r.app, r.name, r.status, r.conclusion, r.external, r.title, r.summary, r.text, r.details,
				slices.Clone(r.annotations), slices.Clone(r.actions),
			})
		}
	}
	return out
}

// Status is a commit status.
type Status struct{ Context, State, Description, TargetURL string }

// Statuses lists the statuses of a commit, oldest first.
func (s *Server) Statuses(commit string) []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Status
	for _, st := range s.statuses {
		if st.commit == commit {
			out = append(out, Status{st.context, st.state, st.description, st.target})
		}
	}
	return out
}

// Rerun requests a check run again, as a click does.
func (s *Server) Rerun(id int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := s.check(id)
	if run == nil {
		return fmt.Errorf("no check run %d", id)
	}
	s.deliver([]Delivery{s.checkEvent("rerequested", run, s.o.Owner, nil)})
	return nil
}

// RerunAll requests all check runs of an App on a commit again, as a click does.
func (s *Server) RerunAll(commit, slug string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := lastIndex(s.checks, func(r *checkRun) bool { return r.commit == commit && r.app == slug })
	if i < 0 {
		return fmt.Errorf("no check runs of %s on %s", slug, commit)
	}
	s.deliver([]Delivery{s.event("check_suite", "rerequested", obj{"action": "rerequested", "check_suite": s.suiteShape(s.checks[i], true)})})
	return nil
}

// RequestAction clicks a button of a check run.
func (s *Server) RequestAction(id int64, identifier, by string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := s.check(id)
	if run == nil || !slices.ContainsFunc(run.actions, func(a Action) bool { return a.Identifier == identifier }) {
		return fmt.Errorf("no check run %d with a button %q", id, identifier)
	}
	s.deliver([]Delivery{s.checkEvent("requested_action", run, by, obj{"requested_action": obj{"identifier": identifier}})})
	return nil
}

// Pull is a pull request, as users see it.
type Pull struct {
	Number      int
	Title       string
	Author      string
	Branch      string
	Base        string // branch
	Fork        string // owner of the branch's fork; "": the repository itself
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
	v := Pull{Number: p.number, Title: p.title, Author: p.author, Branch: p.branch, Base: p.base, Head: p.head, Open: p.open, MergeCommit: p.mergeCommit}
	if p.fork != nil {
		v.Fork = p.fork.login
	}
	return v, true
}

// PullURL is the URL of a pull request's page. The server has no such page.
func (s *Server) PullURL(number int) string {
	return fmt.Sprintf("%s/%s/%s/pull/%d", s.url, s.o.Owner, s.o.Repo, number)
}
