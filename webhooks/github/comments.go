package github

import (
	"context"
	"fmt"
	"strings"

	gh "github.com/google/go-github/v62/github"
)

// marker is the comment's first line. Together with the author it says that the
// comment is ours; anybody can write a marker.
const marker = "<!-- berth:plan:v1 -->"

// comment brings our comment on a pull request to what change makes of it, or
// makes one. Without such a pull request it is reconciler.ErrNotFound.
func (f *Forge) comment(ctx context.Context, pull int, change func(sections) sections) error {
	err := f.converge(ctx, func() error {
		cur, err := f.find(ctx, pull)
		if err != nil {
			return err
		}
		old := tidy(cur.GetBody())
		body := change(parse(old)).String()
		switch {
		case cur != nil && old == body:
			return nil
		case cur != nil:
			_, _, err := f.client.Issues.EditComment(op(ctx, "update_comment"), f.o.Owner, f.o.Repo, cur.GetID(), &gh.IssueComment{Body: &body})
			if !notFound(err) {
				return err
			}
			f.forget(pull) // somebody deleted it under our hands
		}
		made, _, err := f.client.Issues.CreateComment(op(ctx, "create_comment"), f.o.Owner, f.o.Repo, pull, &gh.IssueComment{Body: &body})
		if err != nil {
			return err
		}
		f.keep(pull, made.GetID())
		return nil
	})
	if err != nil {
		return fmt.Errorf("github: comment on pull request %d: %w", pull, missing(err))
	}
	return nil
}

// find is our comment on a pull request, or nil. Where it was is remembered, to
// spare reading a long conversation each time; it is looked for again if a
// person deleted it.
func (f *Forge) find(ctx context.Context, pull int) (*gh.IssueComment, error) {
	me, err := f.me(ctx)
	if err != nil {
		return nil, err
	}
	ours := func(c *gh.IssueComment) bool {
		return c.GetUser().GetLogin() == me && strings.HasPrefix(c.GetBody(), marker)
	}
	f.mu.Lock()
	id := f.comments[pull]
	f.mu.Unlock()
	if id != 0 {
		c, _, err := f.client.Issues.GetComment(op(ctx, "get_comment"), f.o.Owner, f.o.Repo, id)
		if err == nil && ours(c) {
			return c, nil
		}
		if err != nil && !notFound(err) {
			return nil, err
		}
		f.forget(pull)
	}
	var found *gh.IssueComment
	opt := gh.ListOptions{PerPage: pageSize}
	for range maxPages {
		list, resp, err := f.client.Issues.ListComments(op(ctx, "list_comments"), f.o.Owner, f.o.Repo, pull, &gh.IssueListCommentsOptions{ListOptions: opt})
		if err != nil {
			return nil, err
		}
		for _, c := range list {
			// The oldest, should there ever be two.
			if ours(c) && (found == nil || c.GetID() < found.GetID()) {
				found = c
			}
		}
		if found != nil || resp.NextPage == 0 {
			break
		}
		opt.Page = resp.NextPage
	}
	if found != nil {
		f.keep(pull, found.GetID())
	}
	return found, nil
}

func (f *Forge) keep(pull int, id int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.comments[pull] = id
}

func (f *Forge) forget(pull int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.comments, pull)
}
