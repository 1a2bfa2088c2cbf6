package forgetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
)

func (s *suite) checks(t *testing.T) {
	pr := s.Open(false)
	require.NoError(t, s.c().Report(t.Context(), pr.Head, check(plan.CheckValidate, "v1", plan.Success, 0)))
	require.NoError(t, s.c().Report(t.Context(), pr.Head, check(plan.CheckPlan, "p1", plan.Failure, 0)))
	require.Equal(t, map[string]ShownCheck{
		plan.CheckValidate: {Conclusion: plan.Success, Title: "title of v1", Runs: 1},
		plan.CheckPlan:     {Conclusion: plan.Failure, Title: "title of p1", Runs: 1},
	}, s.Checks(pr.Head))
	require.NoError(t, s.c().Report(t.Context(), pr.Head, check(plan.CheckPlan, "p2", plan.Success, 0)))
	require.Equal(t, map[string]ShownCheck{
		plan.CheckValidate: {Conclusion: plan.Success, Title: "title of v1", Runs: 1},
		plan.CheckPlan:     {Conclusion: plan.Success, Title: "title of p2", Runs: 2},
	}, s.Checks(pr.Head))
	// Back to the first result: the newest check counts.
	require.NoError(t, s.c().Report(t.Context(), pr.Head, check(plan.CheckPlan, "p1", plan.Failure, 0)))
	require.Equal(t, ShownCheck{Conclusion: plan.Failure, Title: "title of p1", Runs: 3}, s.Checks(pr.Head)[plan.CheckPlan])

	// Any content is shown.
	wild := plan.Check{Name: plan.CheckPlan, Key: strings.Repeat("κ", 5000), Conclusion: plan.Failure,
		Title: strings.Repeat("ti\u202etle\n", 400), Summary: strings.Repeat("ä€𝄞\n", 40_000)}
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
	pr := s.Open(false)
	c := check(plan.CheckValidate, "many", plan.Failure, 120)
	require.NoError(t, s.c().Report(t.Context(), pr.Head, c))
	require.Equal(t, ShownCheck{Conclusion: plan.Failure, Title: "title of many", Notes: 120, Runs: 1}, s.Checks(pr.Head)[c.Name])
	s.silent(t, func() error { return s.c().Report(t.Context(), pr.Head, c) }, "the same")
}

func (s *suite) reruns(t *testing.T) {
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

		id := s.AddComment(pr.Number, "ana", "/berth plan")
		s.Fail(Reaction, trouble)
		r, err := s.c().CommandsOf(t.Context(), pr.Number)
		require.NoError(t, err)
		require.Len(t, r, 1)
		require.NoError(t, s.c().React(t.Context(), r[0], reconciler.Accepted), trouble)
		for _, c := range s.Comments(pr.Number) {
			if c.ID == id {
				require.Equal(t, []string{s.Me}, c.Reactions, trouble)
			}
		}
	}
}
