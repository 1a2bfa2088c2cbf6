package githubtest

import (
	"errors"
	"fmt"
	"maps"
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

func (g Group) branch() string { return strings.TrimPrefix(g.Ref, "refs/heads/") }

// mergeQueue is the merge queue of the default branch.
type mergeQueue struct {
	*pulls
	checks   *checks
	statuses *statuses
	groups   []Group // the first to be merged first
}

// Queue lists the merge queue, the first to be merged first.
func (q *mergeQueue) Queue() []Group {
	defer q.lock()()
	return slices.Clone(q.groups)
}

// Enqueue adds a pull request to the merge queue. Its head must have passed
// Options.Required; it is merged once its group has passed them, and removed if its
// group fails.
func (q *mergeQueue) Enqueue(number int) (Group, error) {
	defer q.lock()()
	if err := q.sync(); err != nil {
		return Group{}, err
	}
	p, err := q.openPull(number)
	switch {
	case len(q.o.Required) == 0:
		return Group{}, errors.New("a merge queue needs Options.Required")
	case err != nil:
		return Group{}, fmt.Errorf("enqueue %w", err)
	case q.position(p) >= 0:
		return Group{}, fmt.Errorf("pull request %d is in the queue", number)
	case q.result(p.Head) != passed:
		return Group{}, fmt.Errorf("pull request %d: required checks have not passed on its head", number)
	}
	q.changed("enqueued", p, nil)
	if err := q.add(p); err != nil {
		return Group{}, err
	}
	return q.groups[len(q.groups)-1], nil
}

func (q *mergeQueue) position(p *pull) int {
	return slices.IndexFunc(q.groups, func(g Group) bool { return g.Pull == p.Number })
}

// add merges a pull request into the end of the queue and requests its checks.
func (q *mergeQueue) add(p *pull) error {
	base := q.branches[p.Base]
	if n := len(q.groups); n > 0 {
		base = q.groups[n-1].Head
	}
	head, err := q.join(p, base, Merge, queueUser, "")
	if err != nil {
		return err
	}
	g := Group{p.Number, head, base, fmt.Sprintf("refs/heads/gh-readonly-queue/%s/pr-%d-%s", p.Base, p.Number, base)}
	old := q.branches[g.branch()]
	if err := q.git.update(g.Ref, head, old); err != nil {
		return err
	}
	if err := q.pushed(g.branch(), old, head); err != nil {
		return err
	}
	q.branches[g.branch()] = head
	q.groups = append(q.groups, g)
	return q.groupEvent("checks_requested", g, nil)
}

// leave removes a pull request from the queue and merges the later ones again. After a
// merge they contain it already.
func (q *mergeQueue) leave(p *pull, reason string) error {
	i := q.position(p)
	if i < 0 {
		return nil
	}
	g := q.groups[i]
	q.groups = slices.Delete(q.groups, i, i+1)
	q.changed("dequeued", p, obj{"reason": reason})
	if reason == "MERGE" {
		return q.destroy(g, "merged")
	}
	if err := q.destroy(g, "dequeued"); err != nil {
		return err
	}
	return q.rebuild(i)
}

// rebuild merges the groups from an index on again onto their new predecessors.
func (q *mergeQueue) rebuild(from int) error {
	old := slices.Clone(q.groups[from:])
	q.groups = q.groups[:from]
	for _, g := range old {
		if err := q.destroy(g, "invalidated"); err != nil {
			return err
		}
	}
	for _, g := range old {
		if p := q.pull(g.Pull); q.add(p) != nil {
			q.changed("dequeued", p, obj{"reason": "MERGE_CONFLICT"})
		}
	}
	return nil
}

// destroy deletes a group's branch and sends the events.
func (q *mergeQueue) destroy(g Group, reason string) error {
	if err := q.groupEvent("destroyed", g, obj{"reason": reason}); err != nil {
		return err
	}
	if _, err := q.git.run("update-ref", "-d", g.Ref, g.Head); err != nil {
		return err
	}
	delete(q.branches, g.branch())
	return q.pushed(g.branch(), g.Head, "")
}

// result is the combined result of a commit's required checks.
type result int

const (
	passed result = iota
	unfinished
	failed
)

// result uses the newest check run and the newest status of each required name; if both
// exist, both count.
func (q *mergeQueue) result(commit string) result {
	all := passed
	for _, name := range q.o.Required {
		run := findLast(q.checks.runs, func(r *checkRun) bool { return r.commit == commit && r.Name == name })
		st := findLast(q.statuses.all, func(s *status) bool { return s.commit == commit && s.Context == name })
		one := passed
		switch {
		case run == nil && st == nil, run != nil && run.Status != "completed", st != nil && st.State == "pending":
			one = unfinished
		case run != nil && !slices.Contains([]string{"success", "neutral", "skipped"}, run.Conclusion), st != nil && st.State != "success":
			one = failed
		}
		all = max(all, one)
	}
	return all
}

// advance merges the groups that passed, and removes those that failed.
func (q *mergeQueue) advance() {
	for len(q.groups) > 0 {
		var err error
		if i := slices.IndexFunc(q.groups, func(g Group) bool { return q.result(g.Head) == failed }); i >= 0 {
			err = q.leave(q.pull(q.groups[i].Pull), "CI_FAILURE")
		} else if q.result(q.groups[0].Head) == passed {
			err = q.land(q.groups[0])
		} else {
			return
		}
		if err != nil {
			q.o.Log.Error("githubtest: merge queue", "error", err)
			return
		}
	}
}

// land merges the first group: the base branch becomes its head.
func (q *mergeQueue) land(g Group) error {
	p := q.pull(g.Pull)
	if err := q.git.update("refs/heads/"+p.Base, g.Head, g.Base); err != nil {
		return err
	}
	if err := q.pushed(p.Base, g.Base, g.Head); err != nil {
		return err
	}
	q.branches[p.Base] = g.Head
	q.close(p, g.Head, queueUser)
	return q.leave(p, "MERGE")
}

func (q *mergeQueue) groupEvent(action string, g Group, more obj) error {
	log, err := q.git.log("", g.Head)
	if err != nil || len(log) != 1 {
		return fmt.Errorf("commit of group %s: %w", g.Ref, err)
	}
	body := obj{"sender": q.userShape(queueUser), "merge_group": obj{
		"head_sha": g.Head, "head_ref": g.Ref, "base_sha": g.Base, "base_ref": "refs/heads/" + q.main, "head_commit": log[0].shape(),
	}}
	maps.Copy(body, more)
	q.emit("merge_group", action, body)
	return nil
}
