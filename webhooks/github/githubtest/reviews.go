package githubtest

import (
	"fmt"
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
	pull    *pull
	login   string
	verdict Verdict
	commit  string // the head at the time
	made    time.Time
}

// reviews are the reviews of the pull requests.
type reviews struct {
	*pulls
	all []*review
}

// Review writes a user's review of a pull request's head and returns its id. Merged and
// closed pull requests can be reviewed too.
func (s *reviews) Review(number int, login string, v Verdict) (int64, error) {
	defer s.lock()()
	if err := s.sync(); err != nil {
		return 0, err
	}
	p := s.pull(number)
	switch {
	case p == nil:
		return 0, errNoPull
	case p.Author == login && v != Commented:
		return 0, fmt.Errorf("%s cannot say %s of their own pull request", login, v)
	}
	r := &review{id: s.id(), pull: p, login: login, verdict: v, commit: p.Head, made: s.now()}
	s.all = append(s.all, r)
	p.changed = r.made
	s.reviewEvent("submitted", r)
	return r.id, nil
}

// DismissReview dismisses an approval or a request for changes, as a maintainer may.
func (s *reviews) DismissReview(id int64) error {
	defer s.lock()()
	r := find(s.all, func(r *review) bool { return r.id == id })
	if r == nil || r.verdict != Approved && r.verdict != ChangesRequested {
		return fmt.Errorf("no review %d that could be dismissed", id)
	}
	r.verdict, r.pull.changed = dismissed, s.now()
	s.reviewEvent("dismissed", r)
	return nil
}

func (s *reviews) listReviews(c *call) reply {
	p := s.pull(int(c.number("pull_number")))
	if p == nil {
		return notFound
	}
	return list(shaped(s.all, s.reviewShape, func(r *review) bool { return r.pull == p }))
}

func (s *reviews) reviewShape(r *review) obj {
	var user any
	if !s.deleted[r.login] {
		user = s.userShape(r.login)
	}
	return obj{
		"id": r.id, "node_id": nodeID("PullRequestReview", r.id), "user": user, "state": r.verdict, "commit_id": r.commit,
		"submitted_at": stamp(r.made), "author_association": "COLLABORATOR", "pull_request_url": s.api("/pulls/", r.pull.Number),
	}
}

// reviewEvent sends the event of a review. Its state is in lower case.
func (s *reviews) reviewEvent(action string, r *review) {
	shape := s.reviewShape(r)
	shape["state"] = strings.ToLower(string(r.verdict))
	s.emit("pull_request_review", action, obj{"review": shape, "pull_request": s.pullShape(r.pull)})
}
