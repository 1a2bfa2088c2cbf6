package github

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	gh "github.com/google/go-github/v62/github"

	"berth/reconciler"
)

// prefix begins a command.
const prefix = "/berth"

// reactions maps reactions to GitHub's names.
var reactions = map[reconciler.Reaction]string{
	reconciler.Accepted:   "rocket",
	reconciler.Refused:    "-1",
	reconciler.Understood: "eyes",
	reconciler.Confused:   "confused",
}

// maxAnswered bounds the commands that are known to have a reaction.
const maxAnswered = 10_000

// commands are the commands in the comments of a repository.
type commands struct {
	*repository
	mu       sync.Mutex
	answered map[int64]bool // comments that Berth reacted to
}

// Commands lists the commands on any pull request since a time, oldest first. GitHub
// filters by the time of the last change, so edited commands are included.
func (f *commands) Commands(ctx context.Context, since time.Time) ([]reconciler.CommandComment, error) {
	since = since.UTC().Truncate(time.Second)
	return f.list(ctx, 0, gh.IssueListCommentsOptions{Sort: gh.String("created"), Direction: gh.String("asc"), Since: &since})
}

// CommandsOf lists the commands on one pull request.
func (f *commands) CommandsOf(ctx context.Context, pull int) ([]reconciler.CommandComment, error) {
	if pull <= 0 {
		return nil, fmt.Errorf("github: pull request %d: %w", pull, reconciler.ErrNotFound)
	}
	return f.list(ctx, pull, gh.IssueListCommentsOptions{})
}

// list lists the commands on a pull request; 0: on all of them.
func (f *commands) list(ctx context.Context, pull int, opt gh.IssueListCommentsOptions) ([]reconciler.CommandComment, error) {
	me, err := f.me(ctx)
	if err != nil {
		return nil, err
	}
	var out []reconciler.CommandComment
	reacted := map[int64]bool{}       // comments with a reaction of any user
	answered := map[int][]*sections{} // the commands that Berth's comments list as answered
	err = f.each(func(o gh.ListOptions) (*gh.Response, error) {
		opt.ListOptions = o
		list, resp, err := f.client.Issues.ListComments(op(ctx, "list_remarks"), f.o.Owner, f.o.Repo, pull, &opt)
		for _, c := range list {
			if f.ours(c, me) {
				// An answer is younger than its command: a listing with the command has
				// Berth's comment too.
				n, s := issueNumber(c.GetIssueURL(), f.o.Owner, f.o.Repo), parse(tidy(c.GetBody()))
				answered[n] = append(answered[n], &s)
			}
			if r, ok := f.command(c, me); ok {
				out = append(out, r)
				reacted[r.ID] = c.GetReactions().GetTotalCount() > 0
			}
		}
		return resp, err
	})
	// A new comment while the pages are read may put one onto two pages.
	slices.SortFunc(out, func(a, b reconciler.CommandComment) int { return cmp.Compare(a.ID, b.ID) })
	out = slices.CompactFunc(out, func(a, b reconciler.CommandComment) bool { return a.ID == b.ID })
	for i := range out {
		r := &out[i]
		r.Answered = slices.ContainsFunc(answered[r.Pull], func(s *sections) bool { return s.has(r.ID) })
		if err == nil && reacted[r.ID] && !r.Answered {
			r.Answered, err = f.hasReacted(ctx, r.ID, me)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("github: list commands: %w", missing(err))
	}
	return out, nil
}

// command returns a comment as a command; false if it is not one. It reports an edit,
// because users with write access may edit comments of others. GitHub's times have whole
// seconds: an edit within the first second is not noticed.
func (f *commands) command(c *gh.IssueComment, me string) (reconciler.CommandComment, bool) {
	line, _, _ := strings.Cut(strings.ReplaceAll(c.GetBody(), "\r", "\n"), "\n")
	line = strings.TrimSpace(line)
	rest, toBerth := strings.CutPrefix(line, prefix)
	who := c.GetUser()
	if !toBerth || strings.TrimLeft(rest, " \t") == rest && rest != "" || c.GetCreatedAt().IsZero() ||
		who.GetType() != "User" || who.GetLogin() == "" || strings.EqualFold(who.GetLogin(), me) {
		return reconciler.CommandComment{}, false
	}
	pull := issueNumber(c.GetIssueURL(), f.o.Owner, f.o.Repo)
	return reconciler.CommandComment{ID: c.GetID(), Pull: pull, Author: who.GetLogin(), Line: line, When: c.GetCreatedAt().UTC(),
		Edited: !c.GetCreatedAt().Equal(c.GetUpdatedAt())}, pull > 0
}

// issueNumber is the number in a comment's issue_url; 0 if it is not an issue of the
// repository. GitHub numbers pull requests among the issues; Forge.Pull finds out which
// it is.
func issueNumber(issueURL, owner, repo string) int {
	u, err := url.Parse(issueURL)
	if err != nil {
		return 0
	}
	before, number := path.Split(u.Path)
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil || !strings.HasSuffix(strings.ToLower(before), strings.ToLower("/repos/"+owner+"/"+repo+"/issues/")) {
		return 0
	}
	return int(n)
}

// hasReacted says whether Berth reacted to a comment. A true result is kept.
func (f *commands) hasReacted(ctx context.Context, comment int64, me string) (bool, error) {
	f.mu.Lock()
	known := f.answered[comment]
	f.mu.Unlock()
	if known {
		return true, nil
	}
	err := f.each(func(o gh.ListOptions) (*gh.Response, error) {
		list, resp, err := f.client.Reactions.ListIssueCommentReactions(op(ctx, "list_reactions"), f.o.Owner, f.o.Repo, comment, &o)
		for _, r := range list {
			if strings.EqualFold(r.GetUser().GetLogin(), me) {
				known = true
				resp.NextPage = 0
			}
		}
		return resp, err
	})
	if notFound(err) {
		return false, nil // deleted meanwhile
	}
	if known {
		f.note(comment)
	}
	return known, err
}

func (f *commands) note(comment int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.answered) >= maxAnswered {
		clear(f.answered)
	}
	f.answered[comment] = true
}

// React adds a reaction to a command; reconciler.ErrNotFound if the comment was deleted.
// GitHub keeps one reaction of each kind from one account, so a repetition does nothing.
func (f *commands) React(ctx context.Context, r reconciler.CommandComment, with reconciler.Reaction) error {
	content, ok := reactions[with]
	if !ok {
		return fmt.Errorf("github: unknown reaction %q", with)
	}
	if r.Answered {
		return nil
	}
	err := f.converge(ctx, func() error {
		_, _, err := f.client.Reactions.CreateIssueCommentReaction(op(ctx, "create_reaction"), f.o.Owner, f.o.Repo, r.ID, content)
		return err
	})
	if err != nil {
		return fmt.Errorf("github: react to comment %d on pull request %d: %w", r.ID, r.Pull, missing(err))
	}
	f.note(r.ID)
	return nil
}

// Permission is a user's permission in the repository now. A role between two of
// GitHub's permissions counts as the lower one.
func (f *repository) Permission(ctx context.Context, login string) (reconciler.Permission, error) {
	if !name(login) { // it is part of a URL path
		return reconciler.NoPermission, nil
	}
	level, _, err := f.client.Repositories.GetPermissionLevel(op(ctx, "get_permission"), f.o.Owner, f.o.Repo, login)
	if notFound(err) {
		return reconciler.NoPermission, nil
	}
	if err != nil {
		return reconciler.NoPermission, fmt.Errorf("github: read the permission of %q: %w", login, explain(err))
	}
	switch p := level.GetPermission(); p {
	case "admin":
		return reconciler.CanAdmin, nil
	case "write", "maintain":
		return reconciler.CanWrite, nil
	case "read", "triage":
		return reconciler.CanRead, nil
	case "none":
		return reconciler.NoPermission, nil
	default:
		return reconciler.NoPermission, fmt.Errorf("github: %q has the permission %q, which Berth does not know", login, cut(plain(p), 100))
	}
}
