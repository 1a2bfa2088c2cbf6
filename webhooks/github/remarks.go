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
	"time"

	gh "github.com/google/go-github/v62/github"

	"berth/reconciler"
)

// prefix begins what is said to Berth.
const prefix = "/berth"

// reactions are GitHub's names of ours.
var reactions = map[reconciler.Reaction]string{
	reconciler.Accepted:   "rocket",
	reconciler.Refused:    "-1",
	reconciler.Understood: "eyes",
	reconciler.Confused:   "confused",
}

// maxAnswered is how many remarks are known to be answered without asking.
const maxAnswered = 10_000

// Remarks lists what was said to Berth on any pull request since a time, oldest
// first. GitHub goes by when a comment was last changed, so that nothing said
// since is left out.
func (f *Forge) Commands(ctx context.Context, since time.Time) ([]reconciler.CommandComment, error) {
	since = since.UTC().Truncate(time.Second)
	return f.remarks(ctx, 0, gh.IssueListCommentsOptions{Sort: gh.String("created"), Direction: gh.String("asc"), Since: &since})
}

// RemarksOf lists all that was said to Berth on one pull request.
func (f *Forge) CommandsOf(ctx context.Context, pull int) ([]reconciler.CommandComment, error) {
	if pull <= 0 {
		return nil, fmt.Errorf("github: pull request %d: %w", pull, reconciler.ErrNotFound)
	}
	return f.remarks(ctx, pull, gh.IssueListCommentsOptions{})
}

// remarks lists those on a pull request; 0 is all of them.
func (f *Forge) remarks(ctx context.Context, pull int, opt gh.IssueListCommentsOptions) ([]reconciler.CommandComment, error) {
	me, err := f.me(ctx)
	if err != nil {
		return nil, err
	}
	var out []reconciler.CommandComment
	unsure := map[int64]bool{}        // somebody reacted to it
	answered := map[int][]*sections{} // what our comments on a pull request say was answered
	err = f.each(func(o gh.ListOptions) (*gh.Response, error) {
		opt.ListOptions = o
		list, resp, err := f.client.Issues.ListComments(op(ctx, "list_remarks"), f.o.Owner, f.o.Repo, pull, &opt)
		for _, c := range list {
			if f.ours(c, me) {
				// An answer is younger than its command, so that whatever lists the
				// command lists our comment too.
				n, s := issueNumber(c.GetIssueURL(), f.o.Owner, f.o.Repo), parse(tidy(c.GetBody()))
				answered[n] = append(answered[n], &s)
			}
			if r, ok := f.remark(c, me); ok {
				out = append(out, r)
				unsure[r.ID] = c.GetReactions().GetTotalCount() > 0
			}
		}
		return resp, err
	})
	// What comes while the pages are read may push one onto two of them.
	slices.SortFunc(out, func(a, b reconciler.CommandComment) int { return cmp.Compare(a.ID, b.ID) })
	out = slices.CompactFunc(out, func(a, b reconciler.CommandComment) bool { return a.ID == b.ID })
	for i := range out {
		r := &out[i]
		r.Answered = slices.ContainsFunc(answered[r.Pull], func(s *sections) bool { return s.has(r.ID) })
		if err == nil && unsure[r.ID] && !r.Answered {
			r.Answered, err = f.reacted(ctx, r.ID, me)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("github: list what was said to Berth: %w", missing(err))
	}
	return out, nil
}

// remark returns c as a remark to Berth; false if it is none. It reports an edit,
// as users who may write to the repository may edit comments of others. GitHub's
// times have whole seconds: an edit within the first second is not noticed.
func (f *Forge) remark(c *gh.IssueComment, me string) (reconciler.CommandComment, bool) {
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

// issueNumber is the number in a comment's issue_url, or 0 where that is no issue
// of the repository. GitHub counts pull requests among the issues: whether the
// number is one, Forge.Pull says.
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

// reacted says whether we reacted to a comment. What was answered stays so.
func (f *Forge) reacted(ctx context.Context, comment int64, me string) (bool, error) {
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

func (f *Forge) note(comment int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.answered) >= maxAnswered {
		clear(f.answered)
	}
	f.answered[comment] = true
}

// React sets a sign beside a remark; reconciler.ErrNotFound if somebody deleted
// it. GitHub keeps one of each kind from one account, so that doing it again
// does nothing.
func (f *Forge) React(ctx context.Context, r reconciler.CommandComment, with reconciler.Reaction) error {
	content, ok := reactions[with]
	if !ok {
		return fmt.Errorf("github: there is no reaction %q", with)
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

// Permission is what somebody may do in the repository now. Roles between
// GitHub's old ones count as the lesser.
func (f *Forge) Permission(ctx context.Context, login string) (reconciler.Permission, error) {
	if !name(login) { // it goes into a path
		return reconciler.NoPermission, nil
	}
	level, _, err := f.client.Repositories.GetPermissionLevel(op(ctx, "get_permission"), f.o.Owner, f.o.Repo, login)
	if notFound(err) {
		return reconciler.NoPermission, nil
	}
	if err != nil {
		return reconciler.NoPermission, fmt.Errorf("github: ask what %q may do: %w", login, explain(err))
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
