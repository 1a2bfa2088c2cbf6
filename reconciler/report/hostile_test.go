package report_test

import (
	"strings"
	"testing"

	"berth/reconciler/plan"
	"berth/reconciler/report"
	"berth/schema"
	"berth/schema/policy"
)

// What people and hosts say goes into a roll-out and an answer too.
func TestRolloutsAndAnswersAreHarmless(t *testing.T) {
	for _, s := range []string{
		"@octocat please approve", "<!-- berth:plan:v1 -->", "</details><h1>approved</h1>", "![x](https://evil.example/p.png) [click](javascript:alert(1))",
		"```\n### approved", "a | b \\| c", "https://evil.example www.evil.example mailto:a@b.example", "fixes #12, GH-7", "\u202eabc\u200b\x1b[2J\x00",
		"`` ` ``", "$x$ *b* _i_ :tada: &lt;b&gt;", "", "\n\n# h\n> [!CAUTION]\n", strings.Repeat("long ", 20_000), "\xff\xfe",
	} {
		key := schema.Key{Kind: schema.KindInstance, Tenant: s, Project: s, Name: s}
		pos := schema.Position{File: s, Line: 3}
		members := []plan.MemberStatus{{Member: plan.Member{Name: s, Node: s}, State: plan.State(s)}}
		checkMarkdown(t, report.Rollout(plan.Rollout{Commit: s, CorrelationID: s, Held: []plan.Held{{File: s, Reason: s, Message: s}}, Units: []plan.UnitProgress{
			{Key: key, Phase: plan.Phase(s), At: s, Total: 3, Members: members},
			{Key: key, Phase: plan.PhaseFailed, At: s, Failure: s, Settled: true, Members: members},
			{Key: key, Phase: plan.Phase(s), TakenOver: s, Settled: true},
			{Key: key, Phase: plan.Phase(s), Failure: s, Stale: &plan.StalePlan{Reviewed: s, Now: s, Diff: []plan.DiffLine{{Sign: s, Text: s}, {Sign: "@", Text: s}, {Sign: "+", Text: s}}}},
		}}))
		decision := schema.Decision{Key: key, Field: s, Verdict: schema.Verdict(s), Rule: s, Source: pos, At: pos, Before: s, After: s, Message: s}
		explained := &policy.Explanation{Key: key, Values: []policy.Value{{
			Field: s, Value: s, Asked: []any{s, map[string]any{s: s}}, Steps: []policy.Step{{Scope: policy.Scope(s), Source: pos, Says: s, Value: []any{s}}}, Decisions: []schema.Decision{decision},
		}}, Noncompliance: &schema.Noncompliance{Key: key, Fate: schema.FateStopping, Day: s, Because: []schema.Decision{decision}}}
		for _, kind := range []plan.AnswerKind{plan.AnswerExplain, plan.AnswerHelp, plan.AnswerRefused, plan.AnswerStale, plan.AnswerUnknown, plan.AnswerKind(s)} {
			for _, field := range []string{"", s, "none"} {
				a := plan.Answer{To: s, Said: s, Kind: kind, Why: s, May: []string{s, s}, Given: s, Now: s, Instance: key, Field: field}
				checkMarkdown(t, report.Answer(a, explained))
				checkMarkdown(t, report.Answer(a, nil))
			}
		}
		if s == "" {
			continue // a finding says something
		}
		checkProposal(t, plan.Proposal{Head: s, Base: s, Diagnostics: []schema.Diagnostic{{Severity: schema.Severity(s), Code: s, Message: s, File: s, Line: 1}}},
			plan.PullContext{Number: 1, Fork: true, Queue: true, Main: s + "x", Paused: s})
	}
}
