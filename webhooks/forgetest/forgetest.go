// Package forgetest is the conformance suite for forge adapters
// (reconciler.Conversation and the reading methods beside it): the behaviour of
// every adapter, whatever its forge. It checks the forge as users see it, and
// counts the writes.
//
// It must not know any forge: forge-specific behaviour, such as the difference
// between a comment of a user and one of a machine, comes with the Harness.
package forgetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// Client is an adapter under test.
type Client interface {
	reconciler.Conversation
	OpenPulls(context.Context) ([]reconciler.PullRequest, error)
	Pull(ctx context.Context, number int) (reconciler.PullRequest, error)
	PullsOf(ctx context.Context, commit string) ([]reconciler.PullRequest, error)
	Approvers(context.Context, reconciler.PullRequest) ([]string, error)
	// Rerequest records a request to rerun the checks of a commit.
	Rerequest(commit string)
}

// Shown is the visible check of a commit: the newest with its name.
type Shown struct {
	Conclusion plan.Conclusion // "" while it is pending, "cancelled" once settled
	Title      string
	Notes      int // beside the lines
	Runs       int // how many of that name there have been
}

// Said is a comment.
type Said struct {
	ID     int64
	Author string
	Body   string
	Signs  []string // logins of users with a reaction to it, oldest first
}

// Trouble is a way for a write to go wrong.
type Trouble string

// The troubles.
const (
	Refused   Trouble = "an error of the forge's, nothing was done"
	Done      Trouble = "an error of the forge's, yet it was done"
	Lost      Trouble = "no answer, yet it was done"
	Unreached Trouble = "no answer, nothing was done"
)

// Write is something that can be written.
type Write string

// The writes.
const (
	Check   Write = "a new check"
	Comment Write = "a new comment"
	Edit    Write = "a change of a comment"
	Sign    Write = "a sign beside a comment"
)

// Harness is a forge with one repository, and the actions of its users.
type Harness struct {
	// New is a client, as after a restart.
	New func() Client
	// Other is a client of another Berth, which is the same to the forge.
	Other func() Client
	// Me is the login of the clients at the forge.
	Me string
	// Page is how many comments the forge lists at once; 0: all of them.
	Page int
	// Notes: findings are shown beside their lines. Reruns: users can request a rerun
	// of a check.
	Notes, Reruns bool

	// Open opens a pull request by ana with one commit, from her fork if fork is
	// true. Merge merges one and returns the commit of main.
	Open    func(fork bool) reconciler.PullRequest
	Push    func(pull int)
	Close   func(pull int)
	Merge   func(pull int) string
	Approve func(pull int, login string)
	// Permit sets the permission of login from now on.
	Permit func(login string, p reconciler.Permission)

	// Say writes a comment; with the login Machine, it is the comment of a machine.
	Say     func(pull int, login, body string) int64
	Machine string
	Change  func(comment int64, body string) // as a user with permission to edit it
	Delete  func(comment int64)
	SetSign func(comment int64, login string)
	// Begin leaves a check of ours on a commit pending, as a crash would; its key is
	// known where the forge keeps keys.
	Begin func(commit, name, key string)

	Checks   func(commit string) map[string]Shown // by name
	Comments func(pull int) []Said                // oldest first
	// Fail makes the next such write go wrong.
	Fail func(Write, Trouble)
	// Writes is how many requests that may change something arrived so far.
	Writes func() int
	// Pass advances the forge's clock. Now returns its time.
	Pass func(time.Duration)
	Now  func() time.Time
}

// Run runs the suite over a new harness with one client for all of it, and over
// another with a new client for each call.
func Run(t *testing.T, harness func(*testing.T) Harness) {
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarts=%t", restarts), func(t *testing.T) {
			t.Parallel()
			s := &suite{Harness: harness(t), restarts: restarts}
			s.client = s.New()
			for _, part := range []struct {
				name string
				run  func(*testing.T)
			}{
				{"checks stand apart", s.checks},
				{"a reported check is not reported again", s.same},
				{"notes", s.notes},
				{"asked for again", s.reruns},
				{"settled", s.settle},
				{"one comment of three parts", s.parts},
				{"captured", s.captured},
				{"deleted", s.deleted},
				{"twins", s.twins},
				{"second writer", s.second},
				{"two Berths", s.two},
				{"sizes", s.sizes},
				{"forged", s.forged},
				{"trouble", s.trouble},
				{"answers", s.answers},
				{"edited", s.edited},
				{"remarks", s.remarks},
				{"no remarks", s.noRemarks},
				{"permission", s.permission},
				{"pull requests", s.pulls},
				{"not there", s.missing},
			} {
				t.Run(part.name, part.run)
			}
			t.Run("crowd", s.crowd)
			t.Run("full page", s.fullPage)
		})
	}
}

type suite struct {
	Harness
	restarts bool
	client   Client
}

// c is the client for the next call.
func (s *suite) c() Client {
	if s.restarts {
		s.client = s.New()
	}
	return s.client
}

func check(name, key string, c plan.Conclusion, notes int) plan.Check {
	out := plan.Check{Name: name, Key: key, Conclusion: c, Title: "title of " + key, Summary: "summary of " + key}
	for i := range notes {
		out.Notes = append(out.Notes, schema.Diagnostic{
			Severity: schema.SeverityError, Code: "field-unknown", Message: fmt.Sprintf("finding %d", i), File: "tenants/physics/tenant.yaml", Line: i + 1, Column: 3,
		})
	}
	return out
}

// silent: f writes nothing.
func (s *suite) silent(t *testing.T, f func() error, why string) {
	t.Helper()
	before := s.Writes()
	require.NoError(t, f(), why)
	require.Equal(t, before, s.Writes(), "%s: no write expected", why)
}

func (s *suite) checks(t *testing.T) {
	pr := s.Open(false)
	require.NoError(t, s.c().Report(t.Context(), pr.Head, check(plan.CheckValidate, "v1", plan.Success, 0)))
	require.NoError(t, s.c().Report(t.Context(), pr.Head, check(plan.CheckPlan, "p1", plan.Failure, 0)))
	require.Equal(t, map[string]Shown{
		plan.CheckValidate: {Conclusion: plan.Success, Title: "title of v1", Runs: 1},
		plan.CheckPlan:     {Conclusion: plan.Failure, Title: "title of p1", Runs: 1},
	}, s.Checks(pr.Head))
	require.NoError(t, s.c().Report(t.Context(), pr.Head, check(plan.CheckPlan, "p2", plan.Success, 0)))
	require.Equal(t, map[string]Shown{
		plan.CheckValidate: {Conclusion: plan.Success, Title: "title of v1", Runs: 1},
		plan.CheckPlan:     {Conclusion: plan.Success, Title: "title of p2", Runs: 2},
	}, s.Checks(pr.Head))
	// Back to the first result: the newest check counts.
	require.NoError(t, s.c().Report(t.Context(), pr.Head, check(plan.CheckPlan, "p1", plan.Failure, 0)))
	require.Equal(t, Shown{Conclusion: plan.Failure, Title: "title of p1", Runs: 3}, s.Checks(pr.Head)[plan.CheckPlan])

	// Any content is shown.
	wild := plan.Check{Name: plan.CheckPlan, Key: strings.Repeat("κ", 5000), Conclusion: plan.Failure, Title: strings.Repeat("ti\u202etle\n", 400), Summary: strings.Repeat("ä€𝄞\n", 40_000)}
	require.NoError(t, s.c().Report(t.Context(), pr.Head, wild))
	shown := s.Checks(pr.Head)[plan.CheckPlan]
	require.Equal(t, 4, shown.Runs)
	require.Contains(t, shown.Title, "title title")
	require.NotContains(t, shown.Title, "\n")
	s.silent(t, func() error { return s.c().Report(t.Context(), pr.Head, wild) }, "wild, and the same")
}

func (s *suite) same(t *testing.T) {
	pr := s.Open(false)
	both := func() error {
		for _, name := range []string{plan.CheckValidate, plan.CheckPlan} {
			if err := s.c().Report(t.Context(), pr.Head, check(name, "k", plan.Failure, 3)); err != nil {
				return err
			}
		}
		text := "plan"
		return s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: &text})
	}
	before := s.Writes()
	require.NoError(t, both())
	require.Equal(t, before+3, s.Writes(), "one request for each report")
	s.silent(t, both, "the same")
	s.Push(pr.Number)
	s.silent(t, both, "the same of the old head")
}

func (s *suite) notes(t *testing.T) {
	if !s.Notes {
		t.Skip("this forge shows no checks")
	}
	pr := s.Open(false)
	c := check(plan.CheckValidate, "many", plan.Failure, 120)
	require.NoError(t, s.c().Report(t.Context(), pr.Head, c))
	require.Equal(t, Shown{Conclusion: plan.Failure, Title: "title of many", Notes: 120, Runs: 1}, s.Checks(pr.Head)[c.Name])
	s.silent(t, func() error { return s.c().Report(t.Context(), pr.Head, c) }, "the same")
}

func (s *suite) reruns(t *testing.T) {
	if !s.Reruns {
		t.Skip("this forge has no rerun requests")
	}
	pr := s.Open(false)
	c := s.New() // one client keeps the rerun requests
	names := []string{plan.CheckValidate, plan.CheckPlan}
	show := func() {
		t.Helper()
		for _, name := range names {
			require.NoError(t, c.Report(t.Context(), pr.Head, check(name, "k", plan.Success, 0)))
		}
	}
	runs := func() [2]int {
		shown := s.Checks(pr.Head)
		return [2]int{shown[names[0]].Runs, shown[names[1]].Runs}
	}
	show()
	c.Rerequest(pr.Head)
	show()
	require.Equal(t, [2]int{2, 2}, runs(), "each once")
	show()
	require.Equal(t, [2]int{2, 2}, runs(), "and once only")
	for i, trouble := range []Trouble{Refused, Done, Lost, Unreached} {
		c.Rerequest(pr.Head)
		s.Fail(Check, trouble)
		show()
		require.Equal(t, [2]int{3 + i, 3 + i}, runs(), trouble)
	}
	// News answers it as well.
	c.Rerequest(pr.Head)
	news := func() error { return c.Report(t.Context(), pr.Head, check(plan.CheckPlan, "news", plan.Failure, 0)) }
	require.NoError(t, news())
	s.silent(t, news, "answered")
}

func (s *suite) settle(t *testing.T) {
	pr := s.Open(false)
	s.silent(t, func() error { return s.c().CancelChecks(t.Context(), pr.Head) }, "no checks")
	require.NoError(t, s.c().Report(t.Context(), pr.Head, check(plan.CheckValidate, "v", plan.Success, 0)))
	s.silent(t, func() error { return s.c().CancelChecks(t.Context(), pr.Head) }, "all done")

	s.Begin(pr.Head, plan.CheckPlan, "begun")
	require.Empty(t, s.Checks(pr.Head)[plan.CheckPlan].Conclusion)
	require.NoError(t, s.c().CancelChecks(t.Context(), pr.Head))
	require.EqualValues(t, "cancelled", s.Checks(pr.Head)[plan.CheckPlan].Conclusion)
	require.Equal(t, plan.Success, s.Checks(pr.Head)[plan.CheckValidate].Conclusion)
	s.silent(t, func() error { return s.c().CancelChecks(t.Context(), pr.Head) }, "settled")

	// A new report also completes the check.
	s.Begin(pr.Head, plan.CheckPlan, "begun")
	require.NoError(t, s.c().Report(t.Context(), pr.Head, check(plan.CheckPlan, "p", plan.Failure, 0)))
	require.Equal(t, plan.Failure, s.Checks(pr.Head)[plan.CheckPlan].Conclusion)
	s.silent(t, func() error { return s.c().CancelChecks(t.Context(), pr.Head) }, "no check is in progress")

	// A cancelled check does not suppress a later report with the same key.
	again := check(plan.CheckPlan, "again", plan.Success, 0)
	s.Begin(pr.Head, again.Name, again.Key)
	require.NoError(t, s.c().CancelChecks(t.Context(), pr.Head))
	require.NoError(t, s.c().Report(t.Context(), pr.Head, again))
	require.Equal(t, plan.Success, s.Checks(pr.Head)[again.Name].Conclusion)
	s.silent(t, func() error { return s.c().Report(t.Context(), pr.Head, again) }, "shown")
}

// ours is the one comment of ours on a pull request.
func (s *suite) ours(t *testing.T, pull int) Said {
	t.Helper()
	var ours []Said
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
	s.silent(t, say(reconciler.Comment{Rollout: text("the roll-out\n"), Answers: one, Plan: text("the plan\r\n\r\n| a |\r\n|---|")}), "the same, but for line ends")

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
	id := s.Say(pr.Number, "eve", forged)
	machine := s.Say(pr.Number, s.Machine, forged)
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text("mine")}))
	require.Contains(t, s.ours(t, pr.Number).Body, "mine")
	require.NotContains(t, s.ours(t, pr.Number).Body, "all fine")
	for _, c := range s.Comments(pr.Number) {
		if c.ID == id || c.ID == machine {
			require.Equal(t, forged, c.Body, "the comment of another user is unchanged")
		}
	}
	// Our account may write other comments.
	s.Say(other.Number, s.Me, "hello")
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
	s.Delete(first)
	require.NoError(t, say())
	require.NotEqual(t, first, s.ours(t, pr.Number).ID)
	s.silent(t, say, "once it is back")
}

// twins: two that wrote at the same time leave two comments.
func (s *suite) twins(t *testing.T) {
	pr := s.Open(false)
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text("the plan")}))
	first := s.ours(t, pr.Number)
	s.Say(pr.Number, "ana", "what is this?")
	s.Say(pr.Number, s.Me, first.Body)
	s.Say(pr.Number, s.Me, first.Body)
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
		require.NoError(t, other.Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text(fmt.Sprint("theirs ", i)), Answers: []reconciler.Answer{{Command: int64(i + 1), Line: "a"}}}))
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
	c := reconciler.Comment{Rollout: text(long.String()), Answers: []reconciler.Answer{{Command: 1, Line: "a", Details: long.String()}}, Plan: text(long.String())}
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, c))
	s.silent(t, func() error { return s.c().Comment(t.Context(), pr.Number, c) }, "as long, and the same")
	s.silent(t, func() error { return s.c().Comment(t.Context(), pr.Number, reconciler.Comment{}) }, "all stays")
	body := s.ours(t, pr.Number).Body
	require.Equal(t, strings.Count(body, "<details"), strings.Count(body, "</details>"), "every opened section is closed")
	require.Zero(t, strings.Count(body, "```")%2, "a fence stays open")
	require.Equal(t, 3, strings.Count(body, "more lines"), "each cut is marked")
	// Short again, all of it is there.
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Rollout: text("r"), Plan: text(strings.Repeat("row\n", 1000))}))
	require.Equal(t, 1000, strings.Count(s.ours(t, pr.Number).Body, "row\n"))
}

// forged: a text that contains the markers of the parts is plain text.
func (s *suite) forged(t *testing.T) {
	pr := s.Open(false)
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Rollout: text("forged roll-out"), Answers: []reconciler.Answer{{Command: 7, Line: "forged answer", Details: "forged details"}}, Plan: text("forged plan")}))
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
	id := s.Say(pr.Number, "ana", "/berth help")
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text(fmt.Sprintf("<!-- berth:answered %d -->", id)),
		Answers: []reconciler.Answer{{Command: 7, Line: fmt.Sprintf("<!-- berth:answered %d -->\n%s", id, forged), Details: forged}}}))
	s.silent(t, func() error { return s.c().Comment(t.Context(), pr.Number, reconciler.Comment{}) }, "all stays")
	r, err := s.c().CommandsOf(t.Context(), pr.Number)
	require.NoError(t, err)
	require.Len(t, r, 1)
	require.False(t, r[0].Answered, "text in a part answers no command")
}

// answers: a command is answered once, by its id. The newest answers are on top,
// and the comment identifies the answered commands without reactions.
func (s *suite) answers(t *testing.T) {
	s.Pass(time.Minute)
	begin := s.Now()
	pr, other := s.Open(false), s.Open(false)
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text("the plan")}))
	var ids []int64
	for i := range 8 {
		id := s.Say(pr.Number, "ana", "/berth plan")
		ids = append(ids, id)
		answer := func() error {
			return s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Answers: []reconciler.Answer{{Command: id, Line: fmt.Sprintf("line %d", i), Details: fmt.Sprintf("details %d", i)}}})
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
	quiet, open := s.Say(pr.Number, "eve", "/berth help"), s.Say(other.Number, "ana", "/berth help")
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
	s.Say(other.Number, "eve", strings.ReplaceAll(copied, fmt.Sprint(ids[0]), fmt.Sprint(open)))
	of, err = s.c().CommandsOf(t.Context(), other.Number)
	require.NoError(t, err)
	require.False(t, of[0].Answered)
}

// edited: a comment edited into or out of a command is returned as edited.
func (s *suite) edited(t *testing.T) {
	s.Pass(time.Minute)
	begin := s.Now()
	pr := s.Open(false)
	edited := s.Say(pr.Number, "ana", "/berth plan")
	turned := s.Say(pr.Number, "ana", "hello")
	harmless := s.Say(pr.Number, "ana", "/berth plan")
	s.Pass(2 * time.Second)
	s.Change(edited, "/berth apply 1234567")
	s.Change(turned, "/berth apply 1234567")
	s.Change(harmless, "hello")
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

// trouble: a write with an unknown result happens once.
func (s *suite) trouble(t *testing.T) {
	for _, trouble := range []Trouble{Refused, Done, Lost, Unreached} {
		pr := s.Open(false)
		for i, name := range []string{plan.CheckValidate, plan.CheckPlan} {
			if i == 1 {
				s.Fail(Check, trouble)
			}
			require.NoError(t, s.c().Report(t.Context(), pr.Head, check(name, "k", plan.Failure, 1)), trouble)
			require.Equal(t, 1, s.Checks(pr.Head)[name].Runs, trouble)
		}
		s.Fail(Comment, trouble)
		require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text("1")}), trouble)
		s.Fail(Edit, trouble)
		require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text("2")}), trouble)
		require.Contains(t, s.ours(t, pr.Number).Body, "2", trouble)

		id := s.Say(pr.Number, "ana", "/berth plan")
		s.Fail(Sign, trouble)
		r, err := s.c().CommandsOf(t.Context(), pr.Number)
		require.NoError(t, err)
		require.Len(t, r, 1)
		require.NoError(t, s.c().React(t.Context(), r[0], reconciler.Accepted), trouble)
		for _, c := range s.Comments(pr.Number) {
			if c.ID == id {
				require.Equal(t, []string{s.Me}, c.Signs, trouble)
			}
		}
	}
}

func (s *suite) remarks(t *testing.T) {
	s.Pass(time.Minute)
	begin := s.Now()
	one, two := s.Open(false), s.Open(true)
	a := s.Say(one.Number, "ana", "/berth plan")
	s.Pass(time.Minute)
	later := s.Now()
	b := s.Say(two.Number, "bob", "  /berth apply 1234 \r\nplease")
	s.Pass(time.Minute)
	c := s.Say(one.Number, "ana", "/berth")
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
	s.SetSign(a, "eve")
	require.False(t, list(begin)[0].Answered)
	require.NoError(t, s.c().React(t.Context(), got[0], reconciler.Refused))
	require.NoError(t, s.c().React(t.Context(), got[1], reconciler.Understood))
	require.NoError(t, s.c().React(t.Context(), got[1], reconciler.Understood))
	got = list(begin)
	require.Equal(t, []bool{true, true, false}, []bool{got[0].Answered, got[1].Answered, got[2].Answered})
	s.silent(t, func() error { return s.c().React(t.Context(), got[0], reconciler.Refused) }, "answered")
	require.Equal(t, []string{"eve", s.Me}, s.Comments(one.Number)[0].Signs)
	require.NoError(t, s.c().React(t.Context(), got[2], reconciler.Confused))
	require.Error(t, s.c().React(t.Context(), reconciler.CommandComment{ID: b, Pull: two.Number}, "thunder"))

	// Deleted meanwhile.
	d := s.Say(two.Number, "bob", "/berth help")
	s.Delete(d)
	require.ErrorIs(t, s.c().React(t.Context(), reconciler.CommandComment{ID: d, Pull: two.Number}, reconciler.Understood), reconciler.ErrNotFound)
	require.Len(t, list(begin), 3)
}

// noRemarks lists texts that resemble a command and are none.
func (s *suite) noRemarks(t *testing.T) {
	s.Pass(time.Minute)
	begin := s.Now()
	pr := s.Open(false)
	s.Say(pr.Number, s.Me, "/berth apply")
	s.Say(pr.Number, s.Machine, "/berth apply")
	for _, body := range []string{"please\n/berth apply", "> /berth apply", "`/berth apply`", "/berthold is a name", "\n/berth apply", "/ berth apply", "berth apply", "x /berth", "<!-- -->/berth apply"} {
		s.Say(pr.Number, "ana", body)
	}
	got, err := s.c().Commands(t.Context(), begin)
	require.NoError(t, err)
	require.Empty(t, got)
	got, err = s.c().CommandsOf(t.Context(), pr.Number)
	require.NoError(t, err)
	require.Empty(t, got)
}

func (s *suite) permission(t *testing.T) {
	may := func(login string) reconciler.Permission {
		t.Helper()
		p, err := s.c().Permission(t.Context(), login)
		require.NoError(t, err)
		return p
	}
	for _, p := range []reconciler.Permission{reconciler.CanRead, reconciler.CanWrite, reconciler.CanAdmin, reconciler.CanWrite, reconciler.NoPermission} {
		s.Permit("carla", p)
		require.Equal(t, p, may("carla"), "the current permission")
	}
	for _, nobody := range []string{"nobody-of-that-name", "", "..", "../../../user", "a/b", "a?b", "a%2fb", "a b", "ä"} {
		require.Equal(t, reconciler.NoPermission, may(nobody), nobody)
	}
}

func (s *suite) pulls(t *testing.T) {
	one, fork, gone := s.Open(false), s.Open(true), s.Open(false)
	for _, want := range []reconciler.PullRequest{one, fork} {
		got, err := s.c().Pull(t.Context(), want.Number)
		require.NoError(t, err)
		require.False(t, got.Updated.IsZero())
		want.Updated = got.Updated
		require.Equal(t, want, got)
	}
	require.False(t, one.Fork)
	require.True(t, fork.Fork)
	s.Close(gone.Number)
	open := map[int]bool{}
	list, err := s.c().OpenPulls(t.Context())
	require.NoError(t, err)
	for i, pr := range list {
		require.True(t, pr.Open)
		require.Equal(t, pr.Number == fork.Number, pr.Fork && pr.Number >= one.Number)
		require.True(t, i == 0 || list[i-1].Number < pr.Number, "by number")
		open[pr.Number] = true
	}
	require.True(t, open[one.Number] && open[fork.Number] && !open[gone.Number])

	s.Approve(one.Number, "bob")
	who, err := s.c().Approvers(t.Context(), one)
	require.NoError(t, err)
	require.Equal(t, []string{"bob"}, who)
	s.Push(one.Number)
	now, err := s.c().Pull(t.Context(), one.Number)
	require.NoError(t, err)
	require.NotEqual(t, one.Head, now.Head)
	who, err = s.c().Approvers(t.Context(), now)
	require.NoError(t, err)
	require.Empty(t, who, "that was of another head")

	commit := s.Merge(one.Number)
	brought, err := s.c().PullsOf(t.Context(), commit)
	require.NoError(t, err)
	require.Len(t, brought, 1)
	require.Equal(t, []any{one.Number, true, false, commit}, []any{brought[0].Number, brought[0].Merged, brought[0].Open, brought[0].MergeCommit})
	require.NoError(t, s.c().Comment(t.Context(), one.Number, reconciler.Comment{Rollout: text("queued")}), "a merged one is spoken of still")
}

func (s *suite) missing(t *testing.T) {
	const none = 99_999
	_, err := s.c().Pull(t.Context(), none)
	require.ErrorIs(t, err, reconciler.ErrNotFound)
	require.ErrorIs(t, s.c().Comment(t.Context(), none, reconciler.Comment{Plan: text("p")}), reconciler.ErrNotFound)
	_, err = s.c().CommandsOf(t.Context(), none)
	require.ErrorIs(t, err, reconciler.ErrNotFound)
	_, err = s.c().CommandsOf(t.Context(), 0)
	require.ErrorIs(t, err, reconciler.ErrNotFound)
	require.Error(t, s.c().Report(t.Context(), strings.Repeat("f", 40), check(plan.CheckPlan, "k", plan.Success, 0)), "no such commit")
}

// crowd: ours is one of many, over all pages.
func (s *suite) crowd(t *testing.T) {
	s.Pass(time.Minute)
	begin := s.Now()
	pr := s.Open(false)
	for i := range 175 {
		s.Say(pr.Number, "ana", fmt.Sprint("comment ", i))
	}
	require.NoError(t, s.c().Comment(t.Context(), pr.Number, reconciler.Comment{Plan: text("the plan")}))
	for i := range 175 {
		s.Say(pr.Number, "bob", fmt.Sprint("comment ", i))
	}
	id := s.Say(pr.Number, "bob", "/berth plan")
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
			s.Say(pr.Number, "ana", fmt.Sprint("comment ", i))
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
		id := s.Say(pr.Number, "bob", "/berth plan")
		got := of()
		require.Len(t, got, 1, trouble)
		require.Equal(t, id, got[0].ID)
	}
}
