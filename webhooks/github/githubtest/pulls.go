package githubtest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Method is how a pull request is merged.
type Method string

// The methods. A rebase is modelled of branches of at most twenty commits without merges.
const (
	Merge  Method = "merge"
	Squash Method = "squash"
	Rebase Method = "rebase"
)

// pull is a pull request of a branch of the repository or of a fork.
type pull struct {
	id                     int64
	number                 int
	title, author          string
	branch, base           string
	fork                   *fork  // repository of its branch; nil: the repository itself
	head                   string // commit
	forkedAt               string // where its branch left the base when it was opened
	open                   bool
	made, changed, closed  time.Time
	merged                 time.Time
	mergeCommit, mergedBy  string
	rebased                []string // commits on the base, where it was merged so
	asked, known, mergable bool     // GitHub computes mergeable at the first read, and answers at the next
	testMerge              string
	late                   int    // reads until the API shows the new head
	lateHead               string // until then
}

var errNoPull = errors.New("no such pull request")

// pull is a pull request by number, or nil. The caller holds mu.
func (s *Server) pull(number int) *pull {
	if number < 1 || number > len(s.pulls) {
		return nil
	}
	return s.pulls[number-1]
}

// OpenPull opens a pull request of a branch to the default branch and returns
// its number.
func (s *Server) OpenPull(branch, title, author string) (int, error) {
	if err := s.Sync(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	head := s.branches[branch]
	if head == "" || branch == s.main {
		return 0, fmt.Errorf("cannot open a pull request of %q to %q: a branch is missing", branch, s.main)
	}
	return s.open(nil, branch, head, title, author)
}

// open opens a pull request to the default branch. The caller holds mu.
func (s *Server) open(f *fork, branch, head, title, author string) (int, error) {
	base := s.main
	tip := s.branches[base]
	if tip == "" {
		return 0, fmt.Errorf("no branch %q", base)
	}
	if s.isAncestor(head, tip) {
		return 0, fmt.Errorf("no commits between %s and %s", base, branch)
	}
	for _, p := range s.pulls {
		if p.open && p.branch == branch && p.fork == f {
			return 0, fmt.Errorf("pull request %d of %q is open already", p.number, branch)
		}
	}
	at, err := s.git.run("merge-base", tip, head)
	if err != nil {
		return 0, err
	}
	now := s.now()
	p := &pull{
		id: s.id(), number: len(s.pulls) + 1, title: title, author: author, branch: branch, fork: f, base: base,
		head: head, forkedAt: at, open: true, made: now, changed: now,
	}
	if err := s.git.update(p.ref(), head, ""); err != nil {
		return 0, err
	}
	s.pulls = append(s.pulls, p)
	s.deliver([]Delivery{s.pullEvent("opened", p, nil)})
	return p.number, nil
}

func (p *pull) ref() string { return fmt.Sprintf("refs/pull/%d/head", p.number) }

// Sync notices changes of the repository's branches. A push over CloneURL needs no Sync;
// a change of the directory does.
func (s *Server) Sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sync()
}

func (s *Server) sync() error {
	now, err := s.git.branches()
	if err != nil {
		return err
	}
	before := s.branches
	s.branches = now
	all := maps.Clone(before)
	maps.Copy(all, now)
	var news []Delivery
	for _, branch := range slices.Sorted(maps.Keys(all)) {
		from, to := before[branch], now[branch]
		if from == to {
			continue
		}
		push, err := s.pushEvent(branch, from, to)
		if err != nil {
			return err
		}
		news = append(news, push)
		if branch == s.main && len(s.queue) > 0 {
			old := s.queue
			s.queue = nil
			d, err := s.regroup(old)
			if err != nil {
				return err
			}
			news = append(news, d...)
		}
		for _, p := range s.pulls {
			if !p.open {
				continue
			}
			d, err := s.moved(p, branch, to)
			if err != nil {
				return err
			}
			news = append(news, d...)
		}
	}
	more, err := s.syncForks()
	if err != nil {
		return err
	}
	if news = append(news, more...); len(news) > 0 {
		s.deliver(news)
	}
	return nil
}

// moved updates the open pull requests of a branch that moved.
func (s *Server) moved(p *pull, branch, to string) ([]Delivery, error) {
	switch {
	case branch == p.base:
		p.asked, p.known = false, false
		if to != "" && s.isAncestor(p.head, to) {
			// A user merged it locally and pushed the merge.
			news, err := s.leave(p, "ALREADY_MERGED")
			return append(news, s.close(p, to, s.o.Owner)), err
		}
	case branch == p.branch && p.fork == nil:
		return s.headMoved(p, to)
	}
	return nil, nil
}

// headMoved updates a pull request whose branch moved; to is "" if the branch was
// deleted. The pull request leaves the merge queue.
func (s *Server) headMoved(p *pull, to string) ([]Delivery, error) {
	news, err := s.leave(p, "UNKNOWN_REMOVAL_REASON")
	if err != nil {
		return nil, err
	}
	if to == "" {
		return append(news, s.close(p, "", "")), nil
	}
	old := p.head
	p.head, p.changed, p.asked, p.known = to, s.now(), false, false
	if err := s.git.update(p.ref(), to, old); err != nil {
		return nil, err
	}
	return append(news, s.pullEvent("synchronize", p, obj{"before": old, "after": to})), nil
}

// close closes a pull request, as merged if there is a merge commit.
func (s *Server) close(p *pull, mergeCommit, by string) Delivery {
	now := s.now()
	p.open, p.closed, p.changed = false, now, now
	if mergeCommit != "" {
		p.merged, p.mergeCommit, p.mergedBy = now, mergeCommit, by
	}
	return s.pullEvent("closed", p, nil)
}

// Merge merges a pull request, as a click does, and returns the commit on the base
// branch.
func (s *Server) Merge(number int, method Method, by string) (string, error) {
	return s.MergeSaying(number, method, by, "")
}

// MergeSaying is Merge with the merging user's message; "": the one GitHub proposes. A
// rebase has no message.
func (s *Server) MergeSaying(number int, method Method, by, message string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.sync(); err != nil {
		return "", err
	}
	p := s.pull(number)
	if p == nil || !p.open {
		return "", fmt.Errorf("merge %d: %w that is open", number, errNoPull)
	}
	tip := s.branches[p.base]
	commit, err := s.join(p, tip, method, by, message)
	if err != nil {
		return "", err
	}
	if err := s.git.update("refs/heads/"+p.base, commit, tip); err != nil {
		return "", err
	}
	push, err := s.pushEvent(p.base, tip, commit)
	if err != nil {
		return "", err
	}
	s.branches[p.base] = commit
	news := []Delivery{push, s.close(p, commit, by)}
	s.baseMoved(p.base)
	if i := s.queued(p); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		news = append(news, s.pullEvent("dequeued", p, obj{"reason": "ALREADY_MERGED"}))
	}
	old := s.queue
	s.queue = nil
	more, err := s.regroup(old)
	if err != nil {
		return "", err
	}
	s.deliver(append(news, more...))
	return commit, nil
}

// baseMoved resets the computed mergeable state of open pull requests.
func (s *Server) baseMoved(base string) {
	for _, p := range s.pulls {
		if p.open && p.base == base {
			p.asked, p.known = false, false
		}
	}
}

// join makes the commits of a merge and returns the last.
func (s *Server) join(p *pull, tip string, method Method, by, message string) (string, error) {
	tree, ok := s.git.merge(tip, p.head)
	if !ok {
		return "", fmt.Errorf("pull request %d is not mergeable: it conflicts with %s", p.number, p.base)
	}
	switch method {
	case Squash:
		return s.git.commit(tree, cmp.Or(message, fmt.Sprintf("%s (#%d)", p.title, p.number)), by, s.now(), tip)
	case Rebase:
		log, err := s.git.log(p.forkedAt, p.head)
		if err != nil {
			return "", err
		}
		at := tip
		for _, c := range log { // oldest first
			if tree, ok = s.git.merge(tip, c.id); !ok {
				return "", fmt.Errorf("pull request %d cannot be rebased: %s conflicts with %s", p.number, c.id, p.base)
			}
			if at, err = s.git.commit(tree, c.message, by, s.now(), at); err != nil {
				return "", err
			}
			p.rebased = append(p.rebased, at)
		}
		return at, nil
	}
	proposed := fmt.Sprintf("Merge pull request #%d from %s/%s\n\n%s", p.number, s.from(p), p.branch, p.title)
	return s.git.commit(tree, cmp.Or(message, proposed), by, s.now(), tip, p.head)
}

// ClosePull closes a pull request without merging it.
func (s *Server) ClosePull(number int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pull(number)
	if p == nil || !p.open {
		return fmt.Errorf("close %d: %w that is open", number, errNoPull)
	}
	news, err := s.leave(p, "UNKNOWN_REMOVAL_REASON")
	if err != nil {
		return err
	}
	s.deliver(append(news, s.close(p, "", "")))
	return nil
}

// ReopenPull reopens a closed pull request, unless it was merged or its branch was
// deleted or moved.
func (s *Server) ReopenPull(number int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.sync(); err != nil {
		return err
	}
	p := s.pull(number)
	switch {
	case p == nil || p.open || !p.merged.IsZero():
		return fmt.Errorf("reopen %d: %w that was closed without a merge", number, errNoPull)
	case s.tip(p) != p.head:
		return fmt.Errorf("reopen %d: its branch is gone, or not where it was", number)
	}
	p.open, p.closed, p.changed, p.asked, p.known = true, time.Time{}, s.now(), false, false
	s.deliver([]Delivery{s.pullEvent("reopened", p, nil)})
	return nil
}

// tip is the commit of a pull request's branch; "" if the branch was deleted.
func (s *Server) tip(p *pull) string {
	switch {
	case p.fork == nil:
		return s.branches[p.branch]
	case s.forks[p.fork.login] == p.fork:
		return p.fork.branches[p.branch]
	}
	return ""
}

// Retarget changes the base branch of a pull request, which leaves the merge queue.
func (s *Server) Retarget(number int, base string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.sync(); err != nil {
		return err
	}
	p := s.pull(number)
	if p == nil || !p.open || s.branches[base] == "" || base == p.base || p.fork == nil && base == p.branch {
		return fmt.Errorf("retarget %d to %q: %w that is open, or the branch does not exist", number, base, errNoPull)
	}
	at, err := s.git.run("merge-base", s.branches[base], p.head)
	if err != nil {
		return err
	}
	news, err := s.leave(p, "UNKNOWN_REMOVAL_REASON")
	if err != nil {
		return err
	}
	changes := obj{"base": obj{"ref": obj{"from": p.base}, "sha": obj{"from": s.branches[p.base]}}}
	p.base, p.forkedAt, p.changed, p.asked, p.known = base, at, s.now(), false, false
	s.deliver(append(news, s.pullEvent("edited", p, obj{"changes": changes})))
	return nil
}

// Retitle gives a pull request another title.
func (s *Server) Retitle(number int, title string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pull(number)
	if p == nil {
		return errNoPull
	}
	changes := obj{"title": obj{"from": p.title}}
	p.title, p.changed = title, s.now()
	s.deliver([]Delivery{s.pullEvent("edited", p, obj{"changes": changes})})
	return nil
}

// from is the owner of the repository of a pull request's branch.
func (s *Server) from(p *pull) string {
	if p.fork != nil {
		return p.fork.login
	}
	return s.o.Owner
}

// holds says whether a commit belongs to a pull request: is its merge, or one of
// its own commits.
func (s *Server) holds(p *pull, commit string) bool {
	if commit == p.mergeCommit || commit == p.head || slices.Contains(p.rebased, commit) {
		return true
	}
	return s.isAncestor(commit, p.head) && !s.isAncestor(commit, p.forkedAt)
}

// mergeable computes whether a pull request merges cleanly; it answers from the second
// read on.
func (s *Server) mergeable(p *pull) any {
	switch {
	case !p.open:
		return nil
	case !p.asked:
		p.asked = true
		return nil
	case !p.known:
		tip := s.branches[p.base]
		tree, ok := s.git.merge(tip, p.head)
		p.known, p.mergable, p.testMerge = true, ok, ""
		if ok {
			if c, err := s.git.commit(tree, "test merge", "github", p.changed, tip, p.head); err == nil {
				p.testMerge = c
			}
		}
	}
	return p.mergable
}

func (s *Server) now() time.Time { return s.o.Now().UTC().Truncate(time.Second) }

func (s *Server) stamp() string { return stamp(s.now()) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// maybe is a time, or null for the zero time.
func maybe(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return stamp(t)
}

// id returns the next id; all kinds share one sequence.
func (s *Server) id() int64 {
	s.lastID++
	return s.lastID
}

func (s *Server) pushEvent(branch, from, to string) (Delivery, error) {
	zero := strings.Repeat("0", 40)
	body := obj{
		"ref": "refs/heads/" + branch, "before": from, "after": to, "base_ref": nil,
		"created": from == "", "deleted": to == "", "forced": from != "" && to != "" && !s.isAncestor(from, to),
		"compare": fmt.Sprintf("%s/%s/%s/compare/%.12s...%.12s", s.url, s.o.Owner, s.o.Repo, from, to),
		"commits": []any{}, "head_commit": nil,
		"pusher": obj{"name": s.o.Owner, "email": s.o.Owner + "@users.noreply.example.com"},
	}
	if from == "" {
		body["before"] = zero
	}
	if to == "" {
		body["after"] = zero
		return s.event("push", "", body), nil
	}
	log, err := s.git.log(from, to)
	if err != nil {
		return Delivery{}, err
	}
	var commits []any
	for _, c := range log {
		commits = append(commits, obj{
			"id": c.id, "tree_id": c.tree, "distinct": true, "message": c.message, "timestamp": c.stored,
			"url":    fmt.Sprintf("%s/%s/%s/commit/%s", s.url, s.o.Owner, s.o.Repo, c.id),
			"author": obj{"name": c.author, "email": c.authorMail}, "committer": obj{"name": c.committer, "email": c.committerMail},
			"added": []any{}, "removed": []any{}, "modified": []any{},
		})
	}
	if n := len(commits); n > 0 {
		body["commits"], body["head_commit"] = commits, commits[n-1]
	}
	return s.event("push", "", body), nil
}

func (s *Server) pullEvent(action string, p *pull, more obj) Delivery {
	shape := s.pullShape(p)
	maps.Copy(shape, s.pullDetail(p, nil))
	body := obj{"action": action, "number": p.number, "pull_request": shape}
	maps.Copy(body, more)
	return s.event("pull_request", action, body)
}
