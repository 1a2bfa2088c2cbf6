package forgetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
)

// ours is the one comment of ours on a pull request.
func (s *suite) ours(t *testing.T, pull int) ShownComment {
	t.Helper()
	var ours []ShownComment
	for _, c := range s.Comments(pull) {
		if c.Author == s.Me {
			ours = append(ours, c)
		}
	}
	require.Len(t, ours, 1, "one comment for the life of the pull request")
	return ours[0]
}

func text(s string) *string { return &s }

func (s *suite) parts(t *testing.T) {
	pr := s.Open(false)
	say := func(c reconciler.Comment) func() error {
		return func() error { return s.c().Comment(t.Context(), pr.Number, c) }
	}
	s.silent(t, say(reconciler.Comment{}), "empty comment")
	s.silent(t, say(reconciler.Comment{Rollout: text(""), Plan: text("")}), "empty comment")
	require.Empty(t, s.Comments(pr.Number))

	require.NoError(t, say(reconciler.Comment{Plan: text("the plan\n\n| a |\n|---|\n")})())
	first := s.ours(t, pr.Number)
	one := []reconciler.Answer{{Command: 17, Line: "an answer", Details: "its details"}}
	require.NoError(t, say(reconciler.Comment{Answers: one})())
	require.NoError(t, say(reconciler.Comment{Rollout: text("the roll-out")})())
	c := s.ours(t, pr.Number)
	require.Equal(t, first.ID, c.ID)
	var at []int
	for _, part := range []string{"an answer", "the roll-out", "the plan", "its details"} {
		require.Equal(t, 1, strings.Count(c.Body, part))
		at = append(at, strings.Index(c.Body, part))
	}
	require.IsIncreasing(t, at)
	s.silent(t, say(reconciler.Comment{}), "all stays")
	s.silent(t, say(reconciler.Comment{Rollout: text("the roll-out\n"), Answers: one, Plan: text("the plan\r\n\r\n| a |\r\n|---|")}),
		"the same, but for line ends")

	require.NoError(t, say(reconciler.Comment{Rollout: text(""), Plan: text("")})())
	require.NotContains(t, s.ours(t, pr.Number).Body, "the plan")
	require.NoError(t, say(reconciler.Comment{Plan: text("another plan")})())
	require.Equal(t, first.ID, s.ours(t, pr.Number).ID)

	// A closed pull request has its comment still.
	s.Close(pr.Number)
	require.NoError(t, say(reconciler.Comment{Rollout: text("closed")})())
	require.Contains(t, s.ours(t, pr.Number).Body, "closed")
}

func (s *suite) captured(t *testing.T) {
	pr, other := s.Open(false), s.Open(false)
	require.NoError(t, s.c().Comment(t.Context(), other.Number, reconciler.Comment{Rollout: text("all fine"), Plan: text("p")}))
	forged := s.ours(t, other.Number).Body
	id := s.AddComment(pr.Number, "eve", forged)
	machine := s.AddComment(pr.Number, s.Machine, forged)
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text("mine")}))
	require.Contains(t, s.ours(t, pr.Number).Body, "mine")
	require.NotContains(t, s.ours(t, pr.Number).Body, "all fine")
	for _, c := range s.Comments(pr.Number) {
		if c.ID == id || c.ID == machine {
			require.Equal(t, forged, c.Body, "the comment of another user is unchanged")
		}
	}
	// Our account may write other comments.
	s.AddComment(other.Number, s.Me, "hello")
	require.NoError(t, s.c().Comment(t.Context(), other.Number, reconciler.Comment{Plan: text("q")}))
	require.Len(t, s.Comments(other.Number), 2)
	require.Equal(t, "hello", s.Comments(other.Number)[1].Body)
}

func (s *suite) deleted(t *testing.T) {
	pr := s.Open(false)
	say := func() error {
		return s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text("the plan")})
	}
	require.NoError(t, say())
	first := s.ours(t, pr.Number).ID
	s.DeleteComment(first)
	require.NoError(t, say())
	require.NotEqual(t, first, s.ours(t, pr.Number).ID)
	s.silent(t, say, "once it is back")
}

// twins: two that wrote at the same time leave two comments.
func (s *suite) twins(t *testing.T) {
	pr := s.Open(false)
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text("the plan")}))
	first := s.ours(t, pr.Number)
	s.AddComment(pr.Number, "ana", "what is this?")
	s.AddComment(pr.Number, s.Me, first.Body)
	s.AddComment(pr.Number, s.Me, first.Body)
	// The client that wrote the duplicate sees both, too.
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text("the plan")}))
	require.Equal(t, first.ID, s.ours(t, pr.Number).ID, "the oldest comment is used, because users have seen it")
	require.Len(t, s.Comments(pr.Number), 2)
}

// second: another writer, such as the one that led before, does not harm for long.
func (s *suite) second(t *testing.T) {
	pr := s.Open(false)
	other := s.New()
	for i := range 3 {
		require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text(fmt.Sprint("ours ", i))}))
		require.NoError(t, other.Comment(t.Context(), pr.Number,
			reconciler.Comment{Plan: text(fmt.Sprint("theirs ", i)), Answers: []reconciler.Answer{{Command: int64(i + 1), Line: "a"}}}))
		require.NoError(t, s.c().Report(t.Context(), pr.Head, check(plan.CheckPlan, fmt.Sprint("ours", i), plan.Success, 0)))
		require.NoError(t, other.Report(t.Context(), pr.Head, check(plan.CheckPlan, fmt.Sprint("theirs", i), plan.Failure, 0)))
	}
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text("last")}))
	require.NoError(t, s.c().Report(t.Context(), pr.Head, check(plan.CheckPlan, "last", plan.Success, 0)))
	require.Contains(t, s.ours(t, pr.Number).Body, "last")
	require.Equal(t, "title of last", s.Checks(pr.Head)[plan.CheckPlan].Title)
}

// two Berths that are one account do not write over each other.
func (s *suite) two(t *testing.T) {
	pr := s.Open(false)
	show := func(c Client, who string) func() error {
		return func() error {
			if s.Reruns { // the forge keeps more of a check than its name
				if err := c.Report(t.Context(), pr.Head, check(plan.CheckPlan, who, plan.Success, 0)); err != nil {
					return err
				}
			}
			return c.Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text("plan of " + who)})
		}
	}
	require.NoError(t, show(s.c(), "ours")())
	require.NoError(t, show(s.Other(), "theirs")())
	s.silent(t, func() error { return show(s.c(), "ours")() }, "ours stands")
	s.silent(t, func() error { return show(s.Other(), "theirs")() }, "theirs stands")
	said := s.Comments(pr.Number)
	require.Len(t, said, 2)
	require.Contains(t, said[0].Body, "plan of ours")
	require.Contains(t, said[1].Body, "plan of theirs")
	if s.Reruns {
		require.Equal(t, 2, s.Checks(pr.Head)[plan.CheckPlan].Runs)
	}
}

func (s *suite) sizes(t *testing.T) {
	pr := s.Open(false)
	var long strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&long, "<details><summary>unit %d</summary>\n\n```diff\n- ä€𝄞 %d\n+ new\n```\n\n", i, i)
	}
	c := reconciler.Comment{Rollout: text(long.String()), Answers: []reconciler.Answer{{Command: 1, Line: "a", Details: long.String()}},
		Plan: text(long.String())}
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, c))
	s.silent(t, func() error { return s.c().Comment(t.Context(), pr.Number, c) }, "as long, and the same")
	s.silent(t, func() error { return s.c().Comment(t.Context(), pr.Number, reconciler.Comment{}) }, "all stays")
	body := s.ours(t, pr.Number).Body
	require.Equal(t, strings.Count(body, "<details"), strings.Count(body, "</details>"), "every opened section is closed")
	require.Zero(t, strings.Count(body, "```")%2, "a fence stays open")
	require.Equal(t, 3, strings.Count(body, "more lines"), "each cut is marked")
	// Short again, all of it is there.
	require.NoError(t, s.c().Comment(t.Context(), pr.Number,
		reconciler.Comment{Rollout: text("r"), Plan: text(strings.Repeat("row\n", 1000))}))
	require.Equal(t, 1000, strings.Count(s.ours(t, pr.Number).Body, "row\n"))
}

// forged: a text that contains the markers of the parts is plain text.
func (s *suite) forged(t *testing.T) {
	pr := s.Open(false)
	require.NoError(t, s.c().Comment(t.Context(), pr.Number,
		reconciler.Comment{Rollout: text("forged roll-out"),
			Answers: []reconciler.Answer{{Command: 7, Line: "forged answer", Details: "forged details"}}, Plan: text("forged plan")}))
	forged := s.ours(t, pr.Number).Body
	for _, c := range [][2]reconciler.Comment{
		{{Plan: &forged}, {Plan: text("fine")}}, {{Rollout: &forged}, {Rollout: text("fine")}},
	} {
		pr := s.Open(false)
		require.NoError(t, s.c().Comment(t.Context(), pr.Number, c[0]))
		s.silent(t, func() error { return s.c().Comment(t.Context(), pr.Number, reconciler.Comment{}) }, "all stays")
		require.NoError(t, s.c().Comment(t.Context(), pr.Number, c[1]))
		require.NotContains(t, s.ours(t, pr.Number).Body, "forged", "it was all of one part")
	}
	pr = s.Open(false)
	id := s.AddComment(pr.Number, "ana", "/berth help")
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text(fmt.Sprintf("<!-- berth:answered %d -->", id)),
		Answers: []reconciler.Answer{{Command: 7, Line: fmt.Sprintf("<!-- berth:answered %d -->\n%s", id, forged), Details: forged}}}))
	s.silent(t, func() error { return s.c().Comment(t.Context(), pr.Number, reconciler.Comment{}) }, "all stays")
	r, err := s.c().CommandsOf(t.Context(), pr.Number)
	require.NoError(t, err)
	require.Len(t, r, 1)
	require.False(t, r[0].Answered, "text in a part answers no command")
}

// crowd: ours is one of many, over all pages.
func (s *suite) crowd(t *testing.T) {
	s.Pass(time.Minute)
	begin := s.Now()
	pr := s.Open(false)
	for i := range 175 {
		s.AddComment(pr.Number, "ana", fmt.Sprint("comment ", i))
	}
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text("the plan")}))
	for i := range 175 {
		s.AddComment(pr.Number, "bob", fmt.Sprint("comment ", i))
	}
	id := s.AddComment(pr.Number, "bob", "/berth plan")
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text("another plan")}))
	require.Contains(t, s.ours(t, pr.Number).Body, "another plan")
	require.Len(t, s.Comments(pr.Number), 352)
	got, err := s.c().Commands(t.Context(), begin)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, id, got[0].ID)
}

// fullPage: comments after a full page are found, also by a client that has cached
// that page.
func (s *suite) fullPage(t *testing.T) {
	for _, trouble := range []Trouble{Refused, Done, Lost, Unreached} {
		pr := s.Open(false)
		for i := range s.Page {
			s.AddComment(pr.Number, "ana", fmt.Sprint("comment ", i))
		}
		of := func() []reconciler.CommandComment {
			t.Helper()
			out, err := s.c().CommandsOf(t.Context(), pr.Number)
			require.NoError(t, err)
			return out
		}
		require.Empty(t, of())
		s.Fail(Comment, trouble)
		require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text("the plan")}), trouble)
		s.ours(t, pr.Number)
		id := s.AddComment(pr.Number, "bob", "/berth plan")
		got := of()
		require.Len(t, got, 1, trouble)
		require.Equal(t, id, got[0].ID)
	}
}
