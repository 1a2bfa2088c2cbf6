package githubtest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

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

// pull is a pull request of a branch of the repository or of a fork.
type pull struct {
	Pull
	id                    int64
	forkedAt              string // where its branch left the base when it was opened
	opened, changed, over time.Time
	mergedBy              string
	rebased               []string // commits on the base, where it was merged so
	late                  int      // reads until the API shows the new head
	lateHead              string   // until then
}

func (p *pull) ref() string { return fmt.Sprintf("refs/pull/%d/head", p.Number) }

var errNoPull = errors.New("no such pull request")

// pulls are the pull requests.
type pulls struct {
	*repository
	queue *mergeQueue
	all   []*pull // by number, from 1
}

// pull is a pull request by number, or nil.
func (s *pulls) pull(number int) *pull {
	if number < 1 || number > len(s.all) {
		return nil
	}
	return s.all[number-1]
}

// openPull is an open pull request by number.
func (s *pulls) openPull(number int) (*pull, error) {
	p := s.pull(number)
	if p == nil || !p.Open {
		return nil, fmt.Errorf("%d: %w that is open", number, errNoPull)
	}
	return p, nil
}

// Pull is a pull request by number.
func (s *pulls) Pull(number int) (Pull, bool) {
	defer s.lock()()
	p := s.pull(number)
	if p == nil {
		return Pull{}, false
	}
	return p.Pull, true
}

// OpenPull opens a pull request of a branch to the default branch and returns its
// number.
func (s *pulls) OpenPull(branch, title, author string) (int, error) {
	return s.open(Pull{Branch: branch, Title: title, Author: author})
}

// OpenForkPull opens a pull request of a fork's branch to the default branch, as the
// fork's owner, and returns its number.
func (s *pulls) OpenForkPull(login, branch, title string) (int, error) {
	return s.open(Pull{Branch: branch, Title: title, Author: login, Fork: login})
}

func (s *pulls) open(v Pull) (int, error) {
	defer s.lock()()
	if err := s.sync(); err != nil {
		return 0, err
	}
	v.Number, v.Base, v.Open, v.Head = len(s.all)+1, s.main, true, s.tip(v)
	tip := s.branches[v.Base]
	if v.Head == "" || tip == "" || v.Fork == "" && v.Branch == v.Base {
		return 0, fmt.Errorf("cannot open a pull request of %q to %q: a branch or the fork is missing", v.Branch, v.Base)
	}
	if v.Fork != "" {
		if err := s.git.fetch(s.forks[v.Fork].git.dir, v.Branch); err != nil {
			return 0, err
		}
	}
	if s.isAncestor(v.Head, tip) {
		return 0, fmt.Errorf("no commits between %s and %s", v.Base, v.Branch)
	}
	if other := find(s.all, func(p *pull) bool { return p.Open && p.Branch == v.Branch && p.Fork == v.Fork }); other != nil {
		return 0, fmt.Errorf("pull request %d of %q is open already", other.Number, v.Branch)
	}
	at, err := s.git.run("merge-base", tip, v.Head)
	if err != nil {
		return 0, err
	}
	p := &pull{Pull: v, id: s.id(), forkedAt: at, opened: s.now(), changed: s.now()}
	if err := s.git.update(p.ref(), p.Head, ""); err != nil {
		return 0, err
	}
	s.all = append(s.all, p)
	s.changed("opened", p, nil)
	return p.Number, nil
}

// tip is the commit of a pull request's branch; "" without such a branch.
func (s *pulls) tip(p Pull) string {
	if p.Fork == "" {
		return s.branches[p.Branch]
	}
	if f := s.forks[p.Fork]; f != nil {
		return f.branches[p.Branch]
	}
	return ""
}

// Sync notices changes of the branches of the repository and its forks. A push over
// CloneURL needs no Sync; a change of the directory does.
func (s *pulls) Sync() error {
	defer s.lock()()
	return s.sync()
}

func (s *pulls) sync() error {
	before := s.branches
	now, err := s.git.branches()
	if err != nil {
		return err
	}
	s.branches = now
	for _, branch := range moved(before, now) {
		if err := s.branchMoved(branch, before[branch], now[branch]); err != nil {
			return err
		}
	}
	for _, login := range slices.Sorted(maps.Keys(s.forks)) {
		if err := s.syncFork(login); err != nil {
			return err
		}
	}
	return nil
}

func (s *pulls) branchMoved(branch, from, to string) error {
	if err := s.pushed(branch, from, to); err != nil {
		return err
	}
	if branch == s.main {
		if err := s.queue.rebuild(0); err != nil {
			return err
		}
	}
	for _, p := range s.all {
		if err := s.follow(p, branch, to); err != nil {
			return err
		}
	}
	return nil
}

// moved lists the branches whose commits differ, by name.
func moved(before, now map[string]string) []string {
	all := maps.Clone(before)
	maps.Copy(all, now)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(branch string) bool { return before[branch] == now[branch] })
}

func (s *pulls) syncFork(login string) error {
	f := s.forks[login]
	before := f.branches
	now, err := f.git.branches()
	if err != nil {
		return err
	}
	f.branches = now
	for _, branch := range moved(before, now) {
		p := find(s.all, func(p *pull) bool { return p.Open && p.Fork == login && p.Branch == branch })
		if p == nil {
			continue
		}
		if now[branch] != "" {
			if err := s.git.fetch(f.git.dir, branch); err != nil {
				return err
			}
		}
		if err := s.headMoved(p, now[branch]); err != nil {
			return err
		}
	}
	return nil
}

// follow updates a pull request after one of its branches moved; to is "" if the branch
// was deleted. A merge closes it: the merge of a user here, or a push of its head to the
// base branch.
func (s *pulls) follow(p *pull, branch, to string) error {
	switch {
	case !p.Open:
		return nil
	case branch == p.Base && to != "" && (to == p.MergeCommit || s.isAncestor(p.Head, to)):
		if err := s.queue.leave(p, "ALREADY_MERGED"); err != nil {
			return err
		}
		s.close(p, to, cmp.Or(p.mergedBy, s.o.Owner))
	case branch == p.Branch && p.Fork == "":
		return s.headMoved(p, to)
	}
	return nil
}

// headMoved updates a pull request whose branch moved; to is "" if the branch was
// deleted. The pull request leaves the merge queue.
func (s *pulls) headMoved(p *pull, to string) error {
	if err := s.queue.leave(p, "UNKNOWN_REMOVAL_REASON"); err != nil {
		return err
	}
	if to == "" {
		s.close(p, "", "")
		return nil
	}
	old := p.Head
	p.Head, p.changed = to, s.now()
	if err := s.git.update(p.ref(), to, old); err != nil {
		return err
	}
	s.changed("synchronize", p, obj{"before": old, "after": to})
	return nil
}

// close closes a pull request, as merged if there is a merge commit.
func (s *pulls) close(p *pull, mergeCommit, by string) {
	p.Open, p.over, p.changed = false, s.now(), s.now()
	p.MergeCommit, p.mergedBy = mergeCommit, by
	s.changed("closed", p, nil)
}

// ClosePull closes a pull request without merging it.
func (s *pulls) ClosePull(number int) error {
	defer s.lock()()
	p, err := s.openPull(number)
	if err != nil {
		return fmt.Errorf("close %w", err)
	}
	if err := s.queue.leave(p, "UNKNOWN_REMOVAL_REASON"); err != nil {
		return err
	}
	s.close(p, "", "")
	return nil
}

// ReopenPull reopens a closed pull request, unless it was merged or its branch was
// deleted or moved.
func (s *pulls) ReopenPull(number int) error {
	defer s.lock()()
	if err := s.sync(); err != nil {
		return err
	}
	p := s.pull(number)
	switch {
	case p == nil || p.Open || p.MergeCommit != "":
		return fmt.Errorf("reopen %d: %w that was closed without a merge", number, errNoPull)
	case s.tip(p.Pull) != p.Head:
		return fmt.Errorf("reopen %d: its branch is gone, or not where it was", number)
	}
	p.Open, p.over, p.changed = true, time.Time{}, s.now()
	s.changed("reopened", p, nil)
	return nil
}

// Retitle gives a pull request another title.
func (s *pulls) Retitle(number int, title string) error {
	defer s.lock()()
	p := s.pull(number)
	if p == nil {
		return errNoPull
	}
	changes := obj{"title": obj{"from": p.Title}}
	p.Title, p.changed = title, s.now()
	s.changed("edited", p, obj{"changes": changes})
	return nil
}

// LearnLate keeps a pull request's head in the API unchanged for a number of reads,
// whatever is pushed: a webhook can be ahead of the API.
func (s *pulls) LearnLate(number, reads int) error {
	defer s.lock()()
	p := s.pull(number)
	if p == nil {
		return errNoPull
	}
	p.late, p.lateHead = reads, p.Head
	return nil
}

// changed sends the event of a pull request.
func (s *pulls) changed(action string, p *pull, more obj) {
	body := obj{"number": p.Number, "pull_request": s.detailed(p)}
	maps.Copy(body, more)
	s.emit("pull_request", action, body)
}

// contains says whether a commit belongs to a pull request: is its merge, or one of its
// own commits.
func (s *pulls) contains(p *pull, commit string) bool {
	return commit == p.MergeCommit || slices.Contains(p.rebased, commit) ||
		s.isAncestor(commit, p.Head) && !s.isAncestor(commit, p.forkedAt)
}

func (s *pulls) listPulls(c *call) reply {
	all := slices.Clone(s.all)
	if c.query.Get("direction") != "asc" { // "desc" is the default of sort=created
		slices.Reverse(all)
	}
	state, base := cmp.Or(c.query.Get("state"), "open"), c.query.Get("base")
	return list(shaped(all, func(p *pull) obj { return p.delayed(s.pullShape(p)) }, func(p *pull) bool {
		return (state == "all" || p.Open == (state == "open")) && (base == "" || base == p.Base)
	}))
}

func (s *pulls) getPull(c *call) reply {
	p := s.pull(int(c.number("pull_number")))
	if p == nil {
		return notFound
	}
	return ok(p.delayed(s.detailed(p)))
}

func (s *pulls) listPullsOfCommit(c *call) reply {
	commit := c.PathValue("commit_sha")
	if !s.knows(commit) {
		return *problem(http.StatusUnprocessableEntity, "No commit found for SHA: "+commit)
	}
	return list(shaped(s.all, s.pullShape, func(p *pull) bool { return (p.Open || p.MergeCommit != "") && s.contains(p, commit) }))
}

// delayed shows the old head for a number of reads.
func (p *pull) delayed(shape obj) obj {
	if p.late > 0 {
		shape["head"].(obj)["sha"] = p.lateHead
		p.late--
	}
	return shape
}

func (s *pulls) pullShape(p *pull) obj {
	end := func(owner, branch, commit string) obj {
		return obj{"label": owner + ":" + branch, "ref": branch, "sha": commit, "user": s.userShape(owner), "repo": s.shape(owner)}
	}
	base := s.branches[p.Base]
	var mergedAt any
	// While a pull request is open, GitHub shows the commit of a test merge.
	state, mergeCommit := "open", p.Head
	if !p.Open {
		state, mergeCommit, base = "closed", p.MergeCommit, p.forkedAt
		if p.MergeCommit != "" {
			mergedAt = stamp(p.over)
		}
	}
	return obj{
		"id": p.id, "node_id": nodeID("PullRequest", p.id), "number": p.Number, "state": state, "title": p.Title,
		"user": s.userShape(p.Author), "author_association": s.association(p.Author), "created_at": stamp(p.opened),
		"updated_at": stamp(p.changed),
		"closed_at":  orNull(p.over), "merged_at": mergedAt, "merge_commit_sha": orNull(mergeCommit),
		"head": end(cmp.Or(p.Fork, s.o.Owner), p.Branch, p.Head), "base": end(s.o.Owner, p.Base, base),
		"url": s.api("/pulls/", p.Number), "html_url": s.html("/pull/", p.Number),
	}
}

// detailed adds the fields that lists do not have.
func (s *pulls) detailed(p *pull) obj {
	shape := s.pullShape(p)
	shape["merged"], shape["mergeable_state"] = p.MergeCommit != "", "unknown"
	if p.mergedBy != "" {
		shape["merged_by"] = s.userShape(p.mergedBy)
	}
	return shape
}

// issueShape is a pull request as an issue.
func (s *pulls) issueShape(p *pull) obj {
	state := "closed"
	if p.Open {
		state = "open"
	}
	return obj{
		"id": p.id, "node_id": nodeID("Issue", p.id), "number": p.Number, "title": p.Title, "state": state, "user": s.userShape(p.Author),
		"created_at": stamp(p.opened), "updated_at": stamp(p.changed), "closed_at": orNull(p.over),
		"author_association": s.association(p.Author),
		"url":                s.api("/issues/", p.Number), "html_url": s.html("/pull/", p.Number),
		"pull_request": obj{"url": s.api("/pulls/", p.Number), "html_url": s.html("/pull/", p.Number)},
	}
}
