package githubtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxBody is GitHub's limit of a comment in characters.
const maxBody = 65_536

type comment struct {
	id            int64
	pull          int
	login         string
	app           bool
	body          string
	made, changed time.Time
	edited        bool // the changed time shows it only from the next second on
	reactions     []*reaction
}

type reaction struct {
	id             int64
	login, content string
	made           time.Time
}

// Comment is a comment on a pull request, as users see it.
type Comment struct {
	ID        int64
	Author    string
	Body      string
	Edited    bool
	Reactions []Reaction // oldest first
}

// Reaction is a reaction to a comment: "+1", "-1", "laugh", "confused", "heart",
// "hooray", "rocket" or "eyes".
type Reaction struct{ Login, Content string }

// Comments lists a pull request's comments, oldest first.
func (s *Server) Comments(pull int) []Comment {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Comment
	for _, c := range s.comments {
		if c.pull == pull {
			out = append(out, c.seen())
		}
	}
	return out
}

func (c *comment) seen() Comment {
	v := Comment{ID: c.id, Author: c.login, Body: c.body, Edited: c.edited}
	for _, r := range c.reactions {
		v.Reactions = append(v.Reactions, Reaction{r.login, r.content})
	}
	return v
}

// Comment writes a comment as a user, or as another App if the login ends in "[bot]",
// and returns its id.
func (s *Server) Comment(pull int, login, body string) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pull(pull) == nil {
		return 0, errNoPull
	}
	slug, app := strings.CutSuffix(login, "[bot]")
	return s.say(pull, Token{Login: slug, App: app}, body).id, nil
}

// EditComment changes a comment, as its author or a maintainer may.
func (s *Server) EditComment(id int64, by, body string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cm := s.spoken(id)
	if cm == nil {
		return fmt.Errorf("no comment %d", id)
	}
	s.edit(cm, by, body)
	return nil
}

// DeleteComment deletes a comment, as a maintainer may.
func (s *Server) DeleteComment(id int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cm := s.spoken(id)
	if cm == nil {
		return fmt.Errorf("no comment %d", id)
	}
	s.unsay(cm, s.o.Owner)
	return nil
}

// React adds a user's reaction to a comment; a repetition does nothing.
func (s *Server) React(comment int64, login, content string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cm := s.spoken(comment)
	if cm == nil || !slices.Contains(signs, content) {
		return fmt.Errorf("no comment %d, or no sign %q", comment, content)
	}
	s.react(cm, login, content)
	return nil
}

// signs lists the valid reactions.
var signs = []string{"+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"}

// say adds a comment. The caller holds mu.
func (s *Server) say(pull int, who Token, body string) *comment {
	cm := &comment{id: s.id(), pull: pull, login: who.as(), app: who.App, body: body, made: s.now(), changed: s.now()}
	s.comments = append(s.comments, cm)
	s.deliver([]Delivery{s.commentEvent("created", cm, cm.login, nil)})
	return cm
}

// edit changes a comment's body.
func (s *Server) edit(cm *comment, by, body string) {
	if body == cm.body {
		return
	}
	old := cm.body
	cm.body, cm.changed, cm.edited = body, s.now(), true
	s.deliver([]Delivery{s.commentEvent("edited", cm, by, obj{"changes": obj{"body": obj{"from": old}}})})
}

func (s *Server) unsay(cm *comment, by string) {
	s.comments = slices.DeleteFunc(s.comments, func(o *comment) bool { return o == cm })
	s.deliver([]Delivery{s.commentEvent("deleted", cm, by, nil)})
}

// react adds a reaction if it is new; made says whether it was.
func (s *Server) react(cm *comment, login, content string) (r *reaction, made bool) {
	for _, r := range cm.reactions {
		if r.login == login && r.content == content {
			return r, false
		}
	}
	r = &reaction{s.id(), login, content, s.now()}
	cm.reactions = append(cm.reactions, r)
	return r, true
}

// spoken returns a comment by id, or nil. The caller holds mu.
func (s *Server) spoken(id int64) *comment {
	for _, cm := range s.comments {
		if cm.id == id {
			return cm
		}
	}
	return nil
}

// since is the query parameter of that name; the zero time if absent.
func (c *call) since() (time.Time, *problem) {
	v := c.query.Get("since")
	if v == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, v)
	if err != nil {
		return t, unprocessable("since is %q", v)
	}
	return t, nil
}

func (s *Server) listComments(c *call) (reply, *problem) {
	n := int(number(c, "issue_number"))
	if s.pull(n) == nil {
		return reply{}, notThere
	}
	return s.commentList(c, slices.Clone(s.comments), n)
}

// listAllComments lists the comments on all pull requests, by default ordered by id.
func (s *Server) listAllComments(c *call) (reply, *problem) {
	by, direction := c.query.Get("sort"), c.query.Get("direction")
	if (by == "") != (direction == "") {
		s.violation("%s: sort and direction belong together: one without the other is ignored, or not described", c.op)
	}
	all := slices.Clone(s.comments)
	if by == "updated" {
		slices.SortStableFunc(all, func(a, b *comment) int { return a.changed.Compare(b.changed) })
	}
	if by != "" && direction == "desc" {
		slices.Reverse(all)
	}
	return s.commentList(c, all, 0)
}

// commentList lists the comments changed since the requested time, of one pull request
// or of all.
func (s *Server) commentList(c *call, from []*comment, pull int) (reply, *problem) {
	since, bad := c.since()
	if bad != nil {
		return reply{}, bad
	}
	var items []any
	for _, cm := range from {
		if (pull == 0 || cm.pull == pull) && !cm.changed.Before(since) {
			items = append(items, s.commentShape(cm))
		}
	}
	return list(items)
}

// text reads a comment's body from a request.
func text(c *call) (string, *problem) {
	var b struct{ Body string }
	if bad := c.decode(&b); bad != nil {
		return "", bad
	}
	if strings.TrimSpace(b.Body) == "" {
		return "", unprocessable("body can't be blank")
	}
	if utf8.RuneCountInString(b.Body) > maxBody {
		return "", unprocessable("body is too long (maximum is %d characters)", maxBody)
	}
	return b.Body, nil
}

func (s *Server) createComment(c *call) (reply, *problem) {
	n := int(number(c, "issue_number"))
	if s.pull(n) == nil {
		return reply{}, notThere
	}
	body, bad := text(c)
	if bad != nil {
		return reply{}, bad
	}
	return reply{status: 201, body: s.commentShape(s.say(n, c.who, body))}, nil
}

func (s *Server) getComment(c *call) (reply, *problem) {
	cm := s.spoken(number(c, "comment_id"))
	if cm == nil {
		return reply{}, notThere
	}
	return ok(s.commentShape(cm))
}

func (s *Server) updateComment(c *call) (reply, *problem) {
	cm := s.spoken(number(c, "comment_id"))
	if cm == nil {
		return reply{}, notThere
	}
	if cm.login != c.who.as() {
		s.violation("%s edits a comment of %s", c.who.as(), cm.login)
		return reply{}, forbidden
	}
	body, bad := text(c)
	if bad != nil {
		return reply{}, bad
	}
	s.edit(cm, c.who.as(), body)
	return ok(s.commentShape(cm))
}

func (s *Server) deleteComment(c *call) (reply, *problem) {
	cm := s.spoken(number(c, "comment_id"))
	if cm == nil {
		return reply{}, notThere
	}
	if cm.login != c.who.as() {
		return reply{}, forbidden
	}
	s.unsay(cm, c.who.as())
	return reply{status: 204}, nil
}

func (s *Server) listReactions(c *call) (reply, *problem) {
	cm := s.spoken(number(c, "comment_id"))
	if cm == nil {
		return reply{}, notThere
	}
	var items []any
	for _, r := range cm.reactions {
		if want := c.query.Get("content"); want == "" || want == r.content {
			items = append(items, s.reactionShape(r))
		}
	}
	return list(items)
}

// createReaction answers 201 for a new reaction, 200 for an existing one.
func (s *Server) createReaction(c *call) (reply, *problem) {
	cm := s.spoken(number(c, "comment_id"))
	if cm == nil {
		return reply{}, notThere
	}
	var b struct{ Content string }
	if bad := c.decode(&b); bad != nil {
		return reply{}, bad
	}
	r, made := s.react(cm, c.who.as(), b.Content)
	if made {
		return reply{status: 201, body: s.reactionShape(r)}, nil
	}
	return ok(s.reactionShape(r))
}

func (s *Server) deleteReaction(c *call) (reply, *problem) {
	cm, id := s.spoken(number(c, "comment_id")), number(c, "reaction_id")
	if cm == nil {
		return reply{}, notThere
	}
	i := slices.IndexFunc(cm.reactions, func(r *reaction) bool { return r.id == id })
	switch {
	case i < 0:
		return reply{}, notThere
	case cm.reactions[i].login != c.who.as():
		return reply{}, forbidden
	}
	cm.reactions = slices.Delete(cm.reactions, i, i+1)
	return reply{status: 204}, nil
}

func (s *Server) reactionShape(r *reaction) obj {
	return obj{"id": r.id, "node_id": nodeID("Reaction", r.id), "user": s.userShape(r.login), "content": r.content, "created_at": stamp(r.made)}
}

// talk counts the comments on a pull request.
func (s *Server) talk(pull int) int {
	n := 0
	for _, c := range s.comments {
		if c.pull == pull {
			n++
		}
	}
	return n
}

func (s *Server) commentShape(c *comment) obj {
	id := strconv.FormatInt(c.id, 10)
	counts := obj{"url": s.api("/issues/comments/", id, "/reactions"), "total_count": len(c.reactions)}
	for _, content := range signs {
		n := 0
		for _, r := range c.reactions {
			if r.content == content {
				n++
			}
		}
		counts[content] = n
	}
	shape := obj{
		"id": c.id, "node_id": nodeID("IssueComment", c.id), "url": s.api("/issues/comments/", id), "body": c.body, "user": s.userShape(c.login),
		"html_url": s.html("/pull/", strconv.Itoa(c.pull), "#issuecomment-", id), "issue_url": s.api("/issues/", strconv.Itoa(c.pull)),
		"created_at": stamp(c.made), "updated_at": stamp(c.changed), "author_association": s.association(c.login), "performed_via_github_app": nil,
		"reactions": counts,
	}
	if c.app {
		shape["performed_via_github_app"] = s.appShape(strings.TrimSuffix(c.login, "[bot]"))
	}
	return shape
}

// issueShape is a pull request as an issue.
func (s *Server) issueShape(p *pull) obj {
	n := strconv.Itoa(p.number)
	state := "closed"
	if p.open {
		state = "open"
	}
	return obj{
		"id": p.id, "node_id": nodeID("Issue", p.id), "number": p.number, "title": p.title, "body": nil, "state": state, "locked": false,
		"user": s.userShape(p.author), "labels": []any{}, "assignee": nil, "assignees": []any{}, "milestone": nil, "comments": s.talk(p.number),
		"created_at": stamp(p.made), "updated_at": stamp(p.changed), "closed_at": maybe(p.closed), "author_association": s.association(p.author),
		"active_lock_reason": nil, "draft": false, "performed_via_github_app": nil, "state_reason": nil,
		"url": s.api("/issues/", n), "html_url": s.html("/pull/", n), "repository_url": s.api(), "comments_url": s.api("/issues/", n, "/comments"),
		"labels_url": s.api("/issues/", n, "/labels{/name}"), "events_url": s.api("/issues/", n, "/events"), "timeline_url": s.api("/issues/", n, "/timeline"),
		"pull_request": obj{
			"url": s.api("/pulls/", n), "html_url": s.html("/pull/", n), "diff_url": s.html("/pull/", n, ".diff"), "patch_url": s.html("/pull/", n, ".patch"),
			"merged_at": maybe(p.merged),
		},
		"reactions": obj{
			"url": s.api("/issues/", n, "/reactions"), "total_count": 0, "+1": 0, "-1": 0, "laugh": 0, "hooray": 0, "confused": 0, "heart": 0, "rocket": 0, "eyes": 0,
		},
	}
}

func (s *Server) commentEvent(action string, c *comment, by string, more obj) Delivery {
	body := obj{"action": action, "issue": s.issueShape(s.pull(c.pull)), "comment": s.commentShape(c), "sender": s.userShape(by)}
	for k, v := range more {
		body[k] = v
	}
	return s.event("issue_comment", action, body)
}
