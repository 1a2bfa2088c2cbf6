package githubtest

import (
	"cmp"
	"fmt"
)

// Method is how a pull request is merged.
type Method string

// The methods. A rebase is modelled of branches of at most twenty commits without merges.
const (
	Merge  Method = "merge"
	Squash Method = "squash"
	Rebase Method = "rebase"
)

// Merge merges a pull request, as a click does, and returns the commit on the base
// branch.
func (s *pulls) Merge(number int, method Method, by string) (string, error) {
	return s.MergeSaying(number, method, by, "")
}

// MergeSaying is Merge with the merging user's message; "": the one GitHub proposes. A
// rebase has no message.
func (s *pulls) MergeSaying(number int, method Method, by, message string) (string, error) {
	defer s.lock()()
	if err := s.sync(); err != nil {
		return "", err
	}
	p, err := s.openPull(number)
	if err != nil {
		return "", fmt.Errorf("merge %w", err)
	}
	tip := s.branches[p.Base]
	commit, err := s.join(p, tip, method, by, message)
	if err != nil {
		return "", err
	}
	if err := s.git.update("refs/heads/"+p.Base, commit, tip); err != nil {
		return "", err
	}
	p.MergeCommit, p.mergedBy = commit, by
	return commit, s.sync()
}

// join makes the commits of a merge and returns the last.
func (s *pulls) join(p *pull, tip string, method Method, by, message string) (string, error) {
	tree, ok := s.git.merge(tip, p.Head)
	if !ok {
		return "", fmt.Errorf("pull request %d is not mergeable: it conflicts with %s", p.Number, p.Base)
	}
	switch method {
	case Squash:
		return s.git.commit(tree, cmp.Or(message, fmt.Sprintf("%s (#%d)", p.Title, p.Number)), by, s.now(), tip)
	case Rebase:
		return s.rebase(p, tip, by)
	}
	proposed := fmt.Sprintf("Merge pull request #%d from %s/%s\n\n%s", p.Number, cmp.Or(p.Fork, s.o.Owner), p.Branch, p.Title)
	return s.git.commit(tree, cmp.Or(message, proposed), by, s.now(), tip, p.Head)
}

func (s *pulls) rebase(p *pull, tip, by string) (at string, err error) {
	log, err := s.git.log(p.forkedAt, p.Head)
	if err != nil {
		return "", err
	}
	at = tip
	for _, c := range log { // oldest first
		tree, ok := s.git.merge(tip, c.id)
		if !ok {
			return "", fmt.Errorf("pull request %d cannot be rebased: %s conflicts with %s", p.Number, c.id, p.Base)
		}
		if at, err = s.git.commit(tree, c.message, by, s.now(), at); err != nil {
			return "", err
		}
		p.rebased = append(p.rebased, at)
	}
	return at, nil
}
