package githubtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// queueUser is the account that merges from the queue.
const queueUser = "github-merge-queue[bot]"

// Group is an entry of the merge queue: a merge of its pull request into the entry
// before it.
type Group struct {
	Pull int
	Head string // the merge, which needs the checks
	Base string // the commit that it merges into
	Ref  string // full name
}

type group struct {
	Group
	of *pull
}

// Queue lists the merge queue, the first to be merged first.
func (s *Server) Queue() []Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Group
	for _, g := range s.queue {
		out = append(out, g.Group)
	}
	return out
}

// Enqueue adds a pull request to the merge queue. Its head must have passed
// Options.Required; it is merged once its group has passed them, and removed if its
// group fails.
func (s *Server) Enqueue(number int) (Group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.sync(); err != nil {
		return Group{}, err
	}
	p := s.pull(number)
	switch {
	case len(s.o.Required) == 0:
		return Group{}, errors.New("a merge queue needs Options.Required")
	case p == nil || !p.open:
		return Group{}, fmt.Errorf("enqueue %d: %w that is open", number, errNoPull)
	case p.base != s.main:
		return Group{}, fmt.Errorf("pull request %d goes to %s, which has no queue", number, p.base)
	case s.queued(p) >= 0:
		return Group{}, fmt.Errorf("pull request %d is in the queue", number)
	case s.judge(p.head) != passed:
		return Group{}, fmt.Errorf("pull request %d: required checks have not passed on its head", number)
	}
	g, news, err := s.group(p)
	if err != nil {
		return Group{}, err
	}
	s.deliver(append([]Delivery{s.pullEvent("enqueued", p, nil)}, news...))
	return g.Group, nil
}

// Dequeue removes a pull request from the merge queue, as a click does.
func (s *Server) Dequeue(number int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pull(number)
	if p == nil || s.queued(p) < 0 {
		return fmt.Errorf("pull request %d is not in the queue", number)
	}
	news, err := s.leave(p, "MANUAL")
	s.deliver(news)
	return err
}

func (s *Server) queued(p *pull) int {
	return slices.IndexFunc(s.queue, func(g *group) bool { return g.of == p })
}

// group merges a pull request into the end of the queue and requests its checks.
func (s *Server) group(p *pull) (*group, []Delivery, error) {
	base := s.branches[p.base]
	if n := len(s.queue); n > 0 {
		base = s.queue[n-1].Head
	}
	head, err := s.join(p, base, Merge, queueUser, "")
	if err != nil {
		return nil, nil, err
	}
	branch := fmt.Sprintf("%s%s/pr-%d-%s", queuePrefix, p.base, p.number, base)
	if err := s.git.update("refs/heads/"+branch, head, s.branches[branch]); err != nil {
		return nil, nil, err
	}
	push, err := s.pushEvent(branch, s.branches[branch], head)
	if err != nil {
		return nil, nil, err
	}
	s.branches[branch] = head
	g := &group{Group{p.number, head, base, "refs/heads/" + branch}, p}
	s.queue = append(s.queue, g)
	d, err := s.groupEvent("checks_requested", g, nil)
	return g, []Delivery{push, d}, err
}

const queuePrefix = "gh-readonly-queue/"

// leave removes a pull request from the queue and merges the later ones again.
func (s *Server) leave(p *pull, reason string) ([]Delivery, error) {
	i := s.queued(p)
	if i < 0 {
		return nil, nil
	}
	g, rest := s.queue[i], slices.Clone(s.queue[i+1:])
	s.queue = s.queue[:i]
	why := "dequeued"
	if reason == "MERGE" {
		why = "merged"
	}
	news, err := s.destroy(g, why)
	if err != nil {
		return nil, err
	}
	news = append([]Delivery{s.pullEvent("dequeued", p, obj{"reason": reason})}, news...)
	if reason == "MERGE" { // the later groups already contain it
		s.queue = append(s.queue, rest...)
		return news, nil
	}
	more, err := s.regroup(rest)
	return append(news, more...), err
}

// regroup merges groups again onto their new predecessors.
func (s *Server) regroup(old []*group) (news []Delivery, err error) {
	for _, g := range old {
		d, err := s.destroy(g, "invalidated")
		if err != nil {
			return nil, err
		}
		news = append(news, d...)
	}
	for _, g := range old {
		_, d, err := s.group(g.of)
		if err != nil {
			d = []Delivery{s.pullEvent("dequeued", g.of, obj{"reason": "MERGE_CONFLICT"})}
		}
		news = append(news, d...)
	}
	return news, nil
}

// destroy deletes a group's branch and sends the event.
func (s *Server) destroy(g *group, why string) ([]Delivery, error) {
	d, err := s.groupEvent("destroyed", g, obj{"reason": why})
	if err != nil {
		return nil, err
	}
	if _, err := s.git.run("update-ref", "-d", g.Ref, g.Head); err != nil {
		return nil, err
	}
	branch := strings.TrimPrefix(g.Ref, "refs/heads/")
	delete(s.branches, branch)
	push, err := s.pushEvent(branch, g.Head, "")
	return []Delivery{d, push}, err
}

// verdict is the combined result of a commit's required checks.
type verdict int

const (
	waiting verdict = iota
	passed
	failed
)

// judge uses the newest check run and the newest status of each required name; if both
// exist, both count.
func (s *Server) judge(commit string) verdict {
	all := passed
	for _, name := range s.o.Required {
		one := waiting
		add := func(v verdict) {
			if one == waiting || v != passed {
				one = v
			}
		}
		if i := lastIndex(s.checks, func(r *checkRun) bool { return r.commit == commit && r.name == name }); i >= 0 {
			switch r := s.checks[i]; {
			case r.status != "completed":
				return waiting
			case slices.Contains([]string{"success", "neutral", "skipped"}, r.conclusion):
				add(passed)
			default:
				add(failed)
			}
		}
		if i := lastIndex(s.statuses, func(st *status) bool { return st.commit == commit && st.context == name }); i >= 0 {
			switch s.statuses[i].state {
			case "success":
				add(passed)
			case "pending":
				return waiting
			default:
				add(failed)
			}
		}
		switch {
		case one == failed:
			all = failed
		case one == waiting && all == passed:
			all = waiting
		}
	}
	return all
}

func lastIndex[T any](list []T, is func(T) bool) int {
	for i := len(list) - 1; i >= 0; i-- {
		if is(list[i]) {
			return i
		}
	}
	return -1
}

// runQueue merges the groups that passed, and removes those that failed.
func (s *Server) runQueue() {
	for {
		i := slices.IndexFunc(s.queue, func(g *group) bool { return s.judge(g.Head) == failed })
		var news []Delivery
		var err error
		switch {
		case i >= 0:
			news, err = s.leave(s.queue[i].of, "CI_FAILURE")
		case len(s.queue) > 0 && s.judge(s.queue[0].Head) == passed:
			news, err = s.land(s.queue[0])
		default:
			return
		}
		if err != nil {
			s.o.Log.Error("githubtest: merge queue", "error", err)
			return
		}
		s.deliver(news)
	}
}

// land merges the first group: the base branch becomes its head.
func (s *Server) land(g *group) ([]Delivery, error) {
	p := g.of
	if err := s.git.update("refs/heads/"+p.base, g.Head, g.Base); err != nil {
		return nil, err
	}
	push, err := s.pushEvent(p.base, g.Base, g.Head)
	if err != nil {
		return nil, err
	}
	s.branches[p.base] = g.Head
	s.baseMoved(p.base)
	left, err := s.leave(p, "MERGE")
	return append([]Delivery{push, s.close(p, g.Head, queueUser)}, left...), err
}

func (s *Server) groupEvent(action string, g *group, more obj) (Delivery, error) {
	log, err := s.git.log("", g.Head)
	if err != nil || len(log) != 1 {
		return Delivery{}, fmt.Errorf("commit of group %s: %w", g.Ref, err)
	}
	body := obj{"action": action, "sender": s.userShape(queueUser), "merge_group": obj{
		"head_sha": g.Head, "head_ref": g.Ref, "base_sha": g.Base, "base_ref": "refs/heads/" + g.of.base,
		"head_commit": log[0].shape(),
	}}
	for k, v := range more {
		body[k] = v
	}
	return s.event("merge_group", action, body), nil
}
