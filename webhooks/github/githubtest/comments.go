package githubtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// maxBody is GitHub's limit of a comment in characters.
const maxBody = 65_536

// Comment is a comment on a pull request, as users see it.
type Comment struct {
	ID        int64
	Author    string
	Body      string
	Edited    bool       // the changed time shows it only from the next second on
	Reactions []Reaction // oldest first
}

// Reaction is a reaction to a comment: "+1", "-1", "laugh", "confused", "heart",
// "hooray", "rocket" or "eyes".
type Reaction struct{ Login, Content string }

// contents lists the valid reactions.
var contents = []string{"+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"}

type comment struct {
	Comment
	pull          *pull
	made, changed time.Time
}

// comments are the comments on pull requests, with their reactions.
type comments struct {
	*pulls
	all []*comment
}

// Comments lists a pull request's comments, oldest first.
func (s *comments) Comments(number int) []Comment {
	defer s.lock()()
	var out []Comment
	for _, cm := range s.all {
		if cm.pull.Number == number {
			v := cm.Comment
			v.Reactions = slices.Clone(v.Reactions)
			out = append(out, v)
		}
	}
	return out
}

// Comment writes a comment as a user, or as another App if the login ends in "[bot]",
// and returns its id.
func (s *comments) Comment(number int, login, body string) (int64, error) {
	defer s.lock()()
	p := s.pull(number)
	if p == nil {
		return 0, errNoPull
	}
	return s.add(p, login, body).ID, nil
}

// EditComment changes a comment, as its author or a maintainer may.
func (s *comments) EditComment(id int64, by, body string) error {
	defer s.lock()()
	cm, err := s.comment(id)
	if err == nil {
		s.edit(cm, by, body)
	}
	return err
}

// DeleteComment deletes a comment, as a maintainer may.
func (s *comments) DeleteComment(id int64) error {
	defer s.lock()()
	cm, err := s.comment(id)
	if err == nil {
		s.remove(cm, s.o.Owner)
	}
	return err
}

// React adds a user's reaction to a comment; a repetition does nothing.
func (s *comments) React(id int64, login, content string) error {
	defer s.lock()()
	cm, err := s.comment(id)
	if err != nil || !slices.Contains(contents, content) {
		return fmt.Errorf("no comment %d, or no reaction %q", id, content)
	}
	cm.react(Reaction{login, content})
	return nil
}

func (s *comments) comment(id int64) (*comment, error) {
	cm := find(s.all, func(cm *comment) bool { return cm.ID == id })
	if cm == nil {
		return nil, fmt.Errorf("no comment %d", id)
	}
	return cm, nil
}

func (s *comments) add(p *pull, login, body string) *comment {
	cm := &comment{Comment: Comment{ID: s.id(), Author: login, Body: body}, pull: p, made: s.now(), changed: s.now()}
	s.all = append(s.all, cm)
	s.commentEvent("created", cm, login, nil)
	return cm
}

// edit changes a comment's body.
func (s *comments) edit(cm *comment, by, body string) {
	if body == cm.Body {
		return
	}
	old := cm.Body
	cm.Body, cm.changed, cm.Edited = body, s.now(), true
	s.commentEvent("edited", cm, by, obj{"changes": obj{"body": obj{"from": old}}})
}

func (s *comments) remove(cm *comment, by string) {
	s.all = slices.DeleteFunc(s.all, func(o *comment) bool { return o == cm })
	s.commentEvent("deleted", cm, by, nil)
}

// react adds a reaction and says whether it is new.
func (cm *comment) react(r Reaction) bool {
	if slices.Contains(cm.Reactions, r) {
		return false
	}
	cm.Reactions = append(cm.Reactions, r)
	return true
}

// listComments lists the comments on a pull request, oldest first.
func (s *comments) listComments(c *call) reply {
	p := s.pull(int(c.number("issue_number")))
	if p == nil {
		return notFound
	}
	return s.listOf(c, s.all, p)
}

// listAllComments lists the comments on all pull requests, by default ordered by id.
func (s *comments) listAllComments(c *call) reply {
	by, direction := c.query.Get("sort"), c.query.Get("direction")
	if (by == "") != (direction == "") {
		s.violation("%s: sort and direction belong together: one without the other is ignored, or not described", c.op)
	}
	all := slices.Clone(s.all)
	if by == "updated" {
		slices.SortStableFunc(all, func(a, b *comment) int { return a.changed.Compare(b.changed) })
	}
	if by != "" && direction == "desc" {
		slices.Reverse(all)
	}
	return s.listOf(c, all, nil)
}

// listOf lists the comments changed since the requested time, of one pull request or of
// all.
func (s *comments) listOf(c *call, all []*comment, p *pull) reply {
	var since time.Time
	if v := c.query.Get("since"); v != "" {
		var err error
		if since, err = time.Parse(time.RFC3339, v); err != nil {
			return invalid("since is %q", v)
		}
	}
	return list(shaped(all, s.commentShape, func(cm *comment) bool {
		return (p == nil || cm.pull == p) && !cm.changed.Before(since)
	}))
}

// text is the body of a request that writes a comment.
type text struct{ Body string }

func (t text) refuse() *reply {
	var a reply
	switch {
	case strings.TrimSpace(t.Body) == "":
		a = invalid("body can't be blank")
	case utf8.RuneCountInString(t.Body) > maxBody:
		a = invalid("body is too long (maximum is %d characters)", maxBody)
	default:
		return nil
	}
	return &a
}

func (s *comments) createComment(c *call, t text) reply {
	p := s.pull(int(c.number("issue_number")))
	if p == nil {
		return notFound
	}
	if a := t.refuse(); a != nil {
		return *a
	}
	return created(s.commentShape(s.add(p, c.who.actor(), t.Body)))
}

func (s *comments) getComment(c *call) reply {
	cm, err := s.comment(c.number("comment_id"))
	if err != nil {
		return notFound
	}
	return ok(s.commentShape(cm))
}

func (s *comments) updateComment(c *call, t text) reply {
	cm, err := s.comment(c.number("comment_id"))
	if err != nil {
		return notFound
	}
	if cm.Author != c.who.actor() {
		s.violation("%s edits a comment of %s", c.who.actor(), cm.Author)
		return forbidden
	}
	if a := t.refuse(); a != nil {
		return *a
	}
	s.edit(cm, cm.Author, t.Body)
	return ok(s.commentShape(cm))
}

func (s *comments) deleteComment(c *call) reply {
	cm, err := s.comment(c.number("comment_id"))
	if err != nil {
		return notFound
	}
	if cm.Author != c.who.actor() {
		return forbidden
	}
	s.remove(cm, cm.Author)
	return reply{status: 204}
}

func (s *comments) listReactions(c *call) reply {
	cm, err := s.comment(c.number("comment_id"))
	if err != nil {
		return notFound
	}
	content := c.query.Get("content")
	return list(shaped(cm.Reactions, s.reactionShape, func(r Reaction) bool { return content == "" || content == r.Content }))
}

// createReaction answers 201 for a new reaction, 200 for an existing one.
func (s *comments) createReaction(c *call, b struct{ Content string }) reply {
	cm, err := s.comment(c.number("comment_id"))
	if err != nil {
		return notFound
	}
	r := Reaction{c.who.actor(), b.Content}
	if cm.react(r) {
		return created(s.reactionShape(r))
	}
	return ok(s.reactionShape(r))
}

func (s *comments) reactionShape(r Reaction) obj {
	return obj{"user": s.userShape(r.Login), "content": r.Content}
}

func (s *comments) commentShape(cm *comment) obj {
	reactions := obj{"url": s.api("/issues/comments/", cm.ID, "/reactions"), "total_count": len(cm.Reactions)}
	for _, content := range contents {
		reactions[content] = 0
	}
	for _, r := range cm.Reactions {
		reactions[r.Content] = reactions[r.Content].(int) + 1
	}
	shape := obj{
		"id": cm.ID, "node_id": nodeID("IssueComment", cm.ID), "body": cm.Body, "user": s.userShape(cm.Author),
		"url": s.api("/issues/comments/", cm.ID), "html_url": s.html("/pull/", cm.pull.Number, "#issuecomment-", cm.ID),
		"issue_url": s.api("/issues/", cm.pull.Number), "created_at": stamp(cm.made), "updated_at": stamp(cm.changed),
		"author_association": s.association(cm.Author), "reactions": reactions,
	}
	if slug, app := strings.CutSuffix(cm.Author, "[bot]"); app {
		shape["performed_via_github_app"] = s.appShape(slug)
	}
	return shape
}

func (s *comments) commentEvent(action string, cm *comment, by string, more obj) {
	body := obj{"issue": s.issueShape(cm.pull), "comment": s.commentShape(cm), "sender": s.userShape(by)}
	maps.Copy(body, more)
	s.emit("issue_comment", action, body)
}
