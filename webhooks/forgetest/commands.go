package forgetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
)

// answers: a command is answered once, by its id. The newest answers are on top,
// and the comment identifies the answered commands without reactions.
func (s *suite) answers(t *testing.T) {
	s.Pass(time.Minute)
	begin := s.Now()
	pr, other := s.Open(false), s.Open(false)
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text("the plan")}))
	var ids []int64
	for i := range 8 {
		id := s.AddComment(pr.Number, "ana", "/berth plan")
		ids = append(ids, id)
		answer := func() error {
			return s.c().Comment(t.Context(), pr.Number,
				reconciler.Comment{Answers: []reconciler.Answer{{Command: id, Line: fmt.Sprintf("line %d", i),
					Details: fmt.Sprintf("details %d", i)}}})
		}
		require.NoError(t, answer())
		s.silent(t, answer, "answered once")
	}
	body := s.ours(t, pr.Number).Body
	for i := range 8 {
		require.Equal(t, i >= 3, strings.Contains(body, fmt.Sprintf("line %d", i)), "the newest five lines")
		require.Equal(t, i >= 5, strings.Contains(body, fmt.Sprintf("details %d", i)), "the newest three details")
	}
	require.Less(t, strings.Index(body, "line 7"), strings.Index(body, "the plan"))
	require.Less(t, strings.Index(body, "the plan"), strings.Index(body, "details 7"))

	// Answered without a line, as for a user who gets no text.
	quiet, open := s.AddComment(pr.Number, "eve", "/berth help"), s.AddComment(other.Number, "ana", "/berth help")
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Answers: []reconciler.Answer{{Command: quiet}}}))
	answered := map[int64]bool{}
	list, err := s.c().Commands(t.Context(), begin)
	require.NoError(t, err)
	for _, r := range list {
		answered[r.ID] = r.Answered
	}
	for _, id := range append(ids, quiet) {
		require.True(t, answered[id])
	}
	require.False(t, answered[open], "the id counts on its own pull request")
	of, err := s.c().CommandsOf(t.Context(), pr.Number)
	require.NoError(t, err)
	require.True(t, of[0].Answered)

	// A copy of our comment by another user answers nothing.
	copied := s.ours(t, pr.Number).Body
	s.AddComment(other.Number, "eve", strings.ReplaceAll(copied, fmt.Sprint(ids[0]), fmt.Sprint(open)))
	of, err = s.c().CommandsOf(t.Context(), other.Number)
	require.NoError(t, err)
	require.False(t, of[0].Answered)
}

// edited: a comment edited into or out of a command is returned as edited.
func (s *suite) edited(t *testing.T) {
	s.Pass(time.Minute)
	begin := s.Now()
	pr := s.Open(false)
	edited := s.AddComment(pr.Number, "ana", "/berth plan")
	turned := s.AddComment(pr.Number, "ana", "hello")
	harmless := s.AddComment(pr.Number, "ana", "/berth plan")
	s.Pass(2 * time.Second)
	s.EditComment(edited, "/berth apply 1234567")
	s.EditComment(turned, "/berth apply 1234567")
	s.EditComment(harmless, "hello")
	for _, list := range []func() ([]reconciler.CommandComment, error){
		func() ([]reconciler.CommandComment, error) { return s.c().Commands(t.Context(), begin) },
		func() ([]reconciler.CommandComment, error) { return s.c().CommandsOf(t.Context(), pr.Number) },
	} {
		got, err := list()
		require.NoError(t, err)
		require.Len(t, got, 2)
		for i, id := range []int64{edited, turned} {
			require.Equal(t, []any{id, true}, []any{got[i].ID, got[i].Edited})
		}
	}
}

func (s *suite) commands(t *testing.T) {
	s.Pass(time.Minute)
	begin := s.Now()
	one, two := s.Open(false), s.Open(true)
	a := s.AddComment(one.Number, "ana", "/berth plan")
	s.Pass(time.Minute)
	later := s.Now()
	b := s.AddComment(two.Number, "bob", "  /berth apply 1234 \r\nplease")
	s.Pass(time.Minute)
	c := s.AddComment(one.Number, "ana", "/berth")
	s.Close(one.Number) // a closed pull request keeps its comments

	list := func(since time.Time) []reconciler.CommandComment {
		t.Helper()
		out, err := s.c().Commands(t.Context(), since)
		require.NoError(t, err)
		return out
	}
	got := list(begin)
	require.Len(t, got, 3, "oldest first, over all pull requests")
	for i, want := range []reconciler.CommandComment{
		{ID: a, Pull: one.Number, Author: "ana", Line: "/berth plan"},
		{ID: b, Pull: two.Number, Author: "bob", Line: "/berth apply 1234"},
		{ID: c, Pull: one.Number, Author: "ana", Line: "/berth"},
	} {
		require.WithinDuration(t, begin.Add(time.Duration(i)*time.Minute), got[i].When, time.Second)
		want.When = got[i].When
		require.Equal(t, want, got[i])
	}
	require.Equal(t, got[1:], list(later))
	of, err := s.c().CommandsOf(t.Context(), one.Number)
	require.NoError(t, err)
	require.Equal(t, []reconciler.CommandComment{got[0], got[2]}, of)

	// Another user's reaction answers nothing; ours does, permanently.
	s.React(a, "eve")
	require.False(t, list(begin)[0].Answered)
	require.NoError(t, s.c().React(t.Context(), got[0], reconciler.Refused))
	require.NoError(t, s.c().React(t.Context(), got[1], reconciler.Understood))
	require.NoError(t, s.c().React(t.Context(), got[1], reconciler.Understood))
	got = list(begin)
	require.Equal(t, []bool{true, true, false}, []bool{got[0].Answered, got[1].Answered, got[2].Answered})
	s.silent(t, func() error { return s.c().React(t.Context(), got[0], reconciler.Refused) }, "answered")
	require.Equal(t, []string{"eve", s.Me}, s.Comments(one.Number)[0].Reactions)
	require.NoError(t, s.c().React(t.Context(), got[2], reconciler.Confused))
	require.Error(t, s.c().React(t.Context(), reconciler.CommandComment{ID: b, Pull: two.Number}, "thunder"))

	// Deleted meanwhile.
	d := s.AddComment(two.Number, "bob", "/berth help")
	s.DeleteComment(d)
	require.ErrorIs(t, s.c().React(t.Context(), reconciler.CommandComment{ID: d, Pull: two.Number}, reconciler.Understood),
		reconciler.ErrNotFound)
	require.Len(t, list(begin), 3)
}

// noCommands lists texts that resemble a command but do not form one.
func (s *suite) noCommands(t *testing.T) {
	s.Pass(time.Minute)
	begin := s.Now()
	pr := s.Open(false)
	s.AddComment(pr.Number, s.Me, "/berth apply")
	s.AddComment(pr.Number, s.Machine, "/berth apply")
	for _, body := range []string{"please\n/berth apply", "> /berth apply", "`/berth apply`", "/berthold is a name", "\n/berth apply",
		"/ berth apply", "berth apply", "x /berth", "<!-- -->/berth apply"} {
		s.AddComment(pr.Number, "ana", body)
	}
	got, err := s.c().Commands(t.Context(), begin)
	require.NoError(t, err)
	require.Empty(t, got)
	got, err = s.c().CommandsOf(t.Context(), pr.Number)
	require.NoError(t, err)
	require.Empty(t, got)
}
