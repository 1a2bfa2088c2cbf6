package github

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	gh "github.com/google/go-github/v62/github"

	"berth/reconciler"
)

// marker is the first line of Berth's comment. Marker and author together identify it:
// any user can write a marker.
func (f *repository) marker() string { return "<!-- berth:" + f.o.Estate + ":v2 -->" }

// oldMarker, of early versions, has no estate. The first estate of the same author takes
// such a comment over.
const oldMarker = "<!-- berth:plan:v1 -->"

// comments are Berth's comments on the pull requests of a repository.
type comments struct {
	*repository
	mu  sync.Mutex
	ids map[int]int64 // pull request → Berth's comment, as last seen
}

// Comment updates Berth's comment on a pull request to c, and creates it if there is
// none and c is not empty.
func (f *comments) Comment(ctx context.Context, pull int, c reconciler.Comment) error {
	defer f.busy.lock("pull " + strconv.Itoa(pull))()
	unsure := false // an earlier try may have created one
	err := f.converge(ctx, func() error {
		isCreated, err := f.update(ctx, pull, c)
		switch {
		case !isCreated:
			return err
		case err != nil:
			unsure = unsure || uncertain(err)
			return err
		case unsure:
			_, err = f.find(ctx, pull)
			f.forget(pull) // the other one may still appear
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("github: comment on pull request %d: %w", pull, missing(err))
	}
	return nil
}

// update is one try of Comment. isCreated: it asked for a new comment, with the error as the answer.
func (f *comments) update(ctx context.Context, pull int, c reconciler.Comment) (isCreated bool, err error) {
	cur, err := f.find(ctx, pull)
	if err != nil {
		return false, err
	}
	old := tidy(cur.GetBody())
	s := parse(old)
	s.set(c)
	body := s.body(f.marker())
	switch {
	case cur == nil && body == sections{}.body(f.marker()), cur != nil && old == body:
		return false, nil
	case cur != nil:
		_, _, err := f.client.Issues.EditComment(op(ctx, "update_comment"), f.o.Owner, f.o.Repo, cur.GetID(),
			&gh.IssueComment{Body: &body})
		if !notFound(err) {
			return false, err
		}
		f.forget(pull) // a user deleted it meanwhile
	}
	_, _, err = f.client.Issues.CreateComment(op(ctx, "create_comment"), f.o.Owner, f.o.Repo, pull, &gh.IssueComment{Body: &body})
	return true, err
}

// set replaces the parts that a comment has, and adds its answers.
func (s *sections) set(c reconciler.Comment) {
	if c.Rollout != nil {
		s.rollout = *c.Rollout
	}
	if c.Plan != nil {
		s.proposal = *c.Plan
	}
	for _, a := range c.Answers {
		s.add(a)
	}
}

// find returns Berth's comment on a pull request, or nil. The id found in a listing is
// kept, so that a long conversation is not read each time; if a user deleted the
// comment, it is searched again. Of several comments, as after two concurrent writes,
// the oldest stays and the others are deleted. The id of a new comment is not kept:
// a second one may exist.
func (f *comments) find(ctx context.Context, pull int) (*gh.IssueComment, error) {
	me, err := f.me(ctx)
	if err != nil {
		return nil, err
	}
	ours := func(c *gh.IssueComment) bool { return f.ours(c, me) }
	c, err := f.known(ctx, pull)
	switch {
	case err != nil && !notFound(err):
		return nil, err
	case err == nil && c != nil && ours(c):
		return c, nil
	}
	f.forget(pull)
	var found []*gh.IssueComment
	if err := f.each(func(o gh.ListOptions) (*gh.Response, error) {
		list, resp, err := f.client.Issues.ListComments(op(ctx, "list_comments"), f.o.Owner, f.o.Repo, pull,
			&gh.IssueListCommentsOptions{ListOptions: o})
		for _, c := range list {
			if ours(c) {
				found = append(found, c)
			}
		}
		return resp, err
	}); err != nil || len(found) == 0 {
		return nil, err
	}
	slices.SortFunc(found, func(a, b *gh.IssueComment) int { return cmp.Compare(a.GetID(), b.GetID()) })
	for _, twin := range found[1:] {
		f.o.Log.Warn("duplicate comment deleted", "pull", pull, "comment", twin.GetID())
		if _, err := f.client.Issues.DeleteComment(op(ctx, "delete_comment"), f.o.Owner, f.o.Repo, twin.GetID()); err != nil &&
			!notFound(err) {
			return nil, err
		}
	}
	f.keep(pull, found[0].GetID())
	return found[0], nil
}

// known returns the comment whose id was kept; nil if none was.
func (f *comments) known(ctx context.Context, pull int) (*gh.IssueComment, error) {
	f.mu.Lock()
	id := f.ids[pull]
	f.mu.Unlock()
	if id == 0 {
		return nil, nil
	}
	c, _, err := f.client.Issues.GetComment(op(ctx, "get_comment"), f.o.Owner, f.o.Repo, id)
	return c, err
}

// ours says whether a comment is Berth's for this estate.
func (f *repository) ours(c *gh.IssueComment, me string) bool {
	return strings.EqualFold(c.GetUser().GetLogin(), me) &&
		(strings.HasPrefix(c.GetBody(), f.marker()) || strings.HasPrefix(c.GetBody(), oldMarker))
}

func (f *comments) keep(pull int, id int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids[pull] = id
}

func (f *comments) forget(pull int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.ids, pull)
}
