package githubtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Verdict is the result of a review.
type Verdict string

// The verdicts, with GitHub's names.
const (
	Approved         Verdict = "APPROVED"
	ChangesRequested Verdict = "CHANGES_REQUESTED"
	Commented        Verdict = "COMMENTED"
	dismissed        Verdict = "DISMISSED"
)

type review struct {
	id      int64
	pull    int
	login   string // "": a deleted account
	verdict Verdict
	commit  string // the head at the time
	made    time.Time
}

// Review writes a user's review of a pull request's head and returns its id. Merged and
// closed pull requests can be reviewed too.
func (s *Server) Review(pull int, login string, v Verdict) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.sync(); err != nil {
		return 0, err
	}
	p := s.pull(pull)
	switch {
	case p == nil:
		return 0, errNoPull
	case p.author == login && v != Commented:
		return 0, fmt.Errorf("%s cannot say %s of their own pull request", login, v)
	}
	r := &review{id: s.id(), pull: pull, login: login, verdict: v, commit: p.head, made: s.now()}
	s.reviews = append(s.reviews, r)
	p.changed = r.made
	s.deliver([]Delivery{s.reviewEvent("submitted", r)})
	return r.id, nil
}

// DismissReview dismisses an approval or a request for changes, as a maintainer may.
func (s *Server) DismissReview(id int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.reviews, func(r *review) bool { return r.id == id })
	if i < 0 || s.reviews[i].verdict != Approved && s.reviews[i].verdict != ChangesRequested {
		return fmt.Errorf("no review %d that could be dismissed", id)
	}
	r := s.reviews[i]
	r.verdict, s.pull(r.pull).changed = dismissed, s.now()
	s.deliver([]Delivery{s.reviewEvent("dismissed", r)})
	return nil
}

// DeleteUser deletes an account. Its reviews stay without an author.
func (s *Server) DeleteUser(login string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[login] = true
	for _, r := range s.reviews {
		if r.login == login {
			r.login = ""
		}
	}
}

func (s *Server) listReviews(c *call) (reply, *problem) {
	p := s.pull(int(number(c, "pull_number")))
	if p == nil {
		return reply{}, notThere
	}
	var items []any
	for _, r := range s.reviews {
		if r.pull == p.number {
			items = append(items, s.reviewShape(r))
		}
	}
	return list(items)
}

func (s *Server) reviewShape(r *review) obj {
	n := strconv.Itoa(r.pull)
	link := s.html("/pull/", n, "#pullrequestreview-", strconv.FormatInt(r.id, 10))
	var user any
	if r.login != "" {
		user = s.userShape(r.login)
	}
	return obj{
		"id": r.id, "node_id": nodeID("PullRequestReview", r.id), "user": user, "body": "", "state": r.verdict, "commit_id": r.commit,
		"submitted_at": stamp(r.made), "author_association": "COLLABORATOR", "html_url": link, "pull_request_url": s.api("/pulls/", n),
		"_links": obj{"html": obj{"href": link}, "pull_request": obj{"href": s.api("/pulls/", n)}},
	}
}

// reviewEvent sends the event of a review. GitHub's description lacks this event: its
// pull request has the fields of the opened event, and its state is in lower case, as in
// published examples.
func (s *Server) reviewEvent(action string, r *review) Delivery {
	shape := s.reviewShape(r)
	shape["state"] = strings.ToLower(string(r.verdict))
	return s.event("pull_request_review", action, obj{"action": action, "review": shape, "pull_request": s.pullShape(s.pull(r.pull))})
}
