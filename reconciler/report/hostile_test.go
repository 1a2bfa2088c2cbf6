package report_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/reconciler/plan"
	"berth/reconciler/report"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/policy"
)

// evil begins texts that would start a Markdown block at the beginning of a line.
var evil = regexp.MustCompile(`^[-+*>#=~_\s\\0-9.)]*(?:\[x\\?\]\s*)?evil`)

// Text from people and hosts is escaped in a roll-out and an answer too.
func TestRolloutsAndAnswersEscapeText(t *testing.T) {
	for _, s := range []string{
		"@octocat please approve", "<!-- berth:plan:v1 -->", "</details><h1>approved</h1>",
		"![x](https://evil.example/p.png) [click](javascript:alert(1))",
		"```\n### approved", "a | b \\| c", "https://evil.example www.evil.example mailto:a@b.example", "fixes #12, GH-7",
		"\u202eabc\u200b\x1b[2J\x00",
		"`` ` ``", "$x$ *b* _i_ :tada: &lt;b&gt;", "", "\n\n# h\n> [!CAUTION]\n", strings.Repeat("long ", 1000), "\xff\xfe",
		"- [x] evil", "* evil", "+ evil", "1. evil", "7) evil", "# evil", "> evil", "    evil", "---", "===", "***", "~~~ evil",
		"épreuve.yaml", "evil\n===", "\xc3", "é", "-",
	} {
		key := schema.Key{Kind: schema.KindInstance, Tenant: s, Project: s, Name: s}
		pos := schema.Position{File: s, Line: 3}
		members := []plan.MemberStatus{{Member: plan.Member{Name: s, Node: s}, State: plan.State(s)}}
		checkMarkdown(t, report.Rollout(plan.Rollout{Commit: s, CorrelationID: s,
			Held: []schema.Held{{File: s, Reason: schema.HeldReason(s), Message: s}}, Units: []plan.UnitProgress{
				{Key: key, Phase: plan.Phase(s), At: s, Total: 3, Members: members},
				{Key: key, Phase: plan.PhaseFailed, At: s, Failure: s, Settled: true, Members: members},
				{Key: key, Phase: plan.Phase(s), TakenOver: s, Settled: true},
				{Key: key, Phase: plan.Phase(s), Failure: s,
					Stale: &plan.StalePlan{Reviewed: s, Now: s,
						Diff: []plan.DiffLine{{Sign: s, Text: s}, {Sign: "@", Text: s}, {Sign: "+", Text: s}}}},
			}}))
		decision := schema.Decision{Key: key, Field: s, Verdict: schema.Verdict(s), Rule: s, Source: pos, At: pos, Before: s, After: s,
			Message: s}
		explained := &policy.Explanation{Key: key, Values: []policy.Value{{
			Field: s, Value: s, Asked: []any{s, map[string]any{s: s}},
			Steps: []policy.Step{{Scope: policy.Scope(s), Source: pos, Says: s, Value: []any{s}}}, Decisions: []schema.Decision{decision},
		}}, Noncompliance: &schema.Noncompliance{Key: key, Fate: schema.FateStopping, Day: s, Because: []schema.Decision{decision}}}
		for _, kind := range []plan.AnswerKind{plan.AnswerExplain, plan.AnswerHelp, plan.AnswerRefused, plan.AnswerDone, plan.AnswerRepeat,
			plan.AnswerKind(s)} {
			for _, field := range []string{"", s, "none"} {
				a := plan.Answer{To: s, Said: s, Kind: kind, Did: s, Why: s, Left: []schema.Held{{File: s, Message: s}},
					Proposal: &plan.Proposal{Digest: s, Documents: []plan.DocumentChange{{File: s, Change: s}}}, Instance: key,
					Field: field}
				checkAnswer(t, a, explained)
				checkAnswer(t, a, nil)
			}
		}
		if s == "" {
			continue // a finding has a message
		}
		c := plan.PullContext{Number: 1, Fork: true, Queue: true, Paused: s}
		for _, found := range []schema.Diagnostic{
			{Severity: schema.SeverityError, Code: s}, {Severity: schema.SeverityError, Code: "policy." + s},
			{Severity: schema.SeverityError, Code: "deletion." + s},
			{Severity: schema.SeverityWarning, Code: "authority." + s}, {Severity: schema.Severity(s), Code: s},
		} {
			found.Message, found.File, found.Line = s, s, 1
			other := found
			other.Message, other.Line = "other", 2
			checkProposal(t, plan.Proposal{Head: s, Base: s, Diagnostics: []schema.Diagnostic{found}}, c)
			checkProposal(t, plan.Proposal{Head: s, Base: s, Diagnostics: []schema.Diagnostic{found, other}}, c)
		}
		checkProposal(t, hostileSharing(s), plan.PullContext{Number: 1, Jobs: []plan.UnitJobs{{Key: department(), JobImpact: plan.JobImpact{
			CannotStart: hostileJobs(s), Ended: hostileJobs(s), Preemptible: hostileJobs(s), At: observedAt(),
		}}}})
		checkProposal(t, hostileSharing(s), plan.PullContext{})
		p := many(5, 3)
		for i := range p.Plans {
			key.Name = fmt.Sprint(s, i)
			p.Plans[i].Key = key
			p.Plans[i].Actions = []plan.Action{{ID: s, Verb: plan.Delete, Key: key, Member: s, Node: s, Reason: s,
				Impact: plan.Impact{Notes: []string{s}, Restarts: []string{s}, Drains: []string{s}, EndsJobs: true}}}
			p.Plans[i].Blocked = []plan.Blocked{{Code: plan.BlockedCode(s), Message: s, Wait: i == 0}}
		}
		p.Held = []schema.Held{{File: s, Reason: schema.HeldReason(s), Message: s}}
		p.Documents = []plan.DocumentChange{{File: s, Change: s, From: s}}
		p.Conflicts = []string{s}
		p.Authority = []authority.Decision{
			{Need: authority.Need{Permission: authority.Permission(s), File: s, Why: s}, Reason: s},
			{Need: authority.Need{Why: s}, Allowed: true, BreakGlass: true, By: s, Role: s, Reason: s},
		}
		p.Decisions = []schema.Decision{decision,
			{Key: key, Field: s, Verdict: schema.Narrow, Rule: s, Source: pos, Before: s, After: s, Message: s}}
		p.Impacted = []schema.Noncompliance{{Key: key, Fate: schema.FateStopping, Day: s, Because: []schema.Decision{decision}}}
		for range 2 {
			checkProposal(t, p, c)
			p.Conflicts = nil
			p.Plans = p.Plans[:2]
		}
	}
}

// hostileSharing is a change of a shared runtime in which each name is s.
func hostileSharing(s string) plan.Proposal {
	unit := func(id string) *plan.Unit {
		u := &plan.Unit{Members: []plan.Member{{Name: s, Node: s, Loan: &schema.Loan{ProjectID: s, Until: id}},
			{Name: id, Node: s, Loan: &schema.Loan{ProjectID: s}}}}
		u.Effective.Attachments = []schema.EffectiveAttachment{{ProjectID: s}, {ProjectID: id, Users: []string{s}}}
		return u
	}
	limits := func(n int) plan.JobLimits {
		return plan.JobLimits{Without: []string{s + fmt.Sprint(n)}, PerJob: map[string]int{plan.ResourceGPUs: n},
			Together: map[string]int{plan.ResourceJobs: n}}
	}
	change := plan.Action{ID: "c", Verb: plan.Configure, Key: department(),
		Changes: []plan.Change{{Field: "attachments." + s + "." + s, Before: s}, {Field: "users." + s + ".uid", After: s}},
		Impact: plan.Impact{
			Terms:    []plan.JobTerms{{Account: s, Before: limits(2), After: limits(1)}, {QoS: s, Before: limits(1), After: limits(2)}},
			Preempts: []plan.JobPreemption{{QoS: []string{s}, Mode: s, For: []string{s}}},
		}}
	view := plan.Plan{Key: schema.InstanceKey(s, s, s), After: &plan.Unit{},
		Blocked: []plan.Blocked{{Code: plan.CodeShared, Wait: true, Message: s}}}
	view.After.Effective.SharedRuntime = s
	return plan.Proposal{Head: s, Base: s,
		Plans: []plan.Plan{view, {Key: department(), Before: unit("a" + s), After: unit("b" + s), Actions: []plan.Action{
			change, {ID: "j", Verb: plan.Join, Key: department(), Member: "b" + s},
			{ID: "l", Verb: plan.Leave, Key: department(), Member: "a" + s},
		}}}}
}

// hostileJobs are jobs whose users, accounts and ids are s.
func hostileJobs(s string) plan.JobSet {
	return plan.JobSet{Count: 3, Accounts: []plan.AccountJobs{{Account: s, Count: 2}},
		Users: []plan.UserJobs{{User: s, Account: s, Count: 2}, {User: s, Count: 1}}, IDs: []string{s}}
}

// Any bytes in any order are escaped.
func TestAnyTextIsEscaped(t *testing.T) {
	text := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.OneOf(
			rapid.SampledFrom([]string{"evil", "- ", "* ", "1. ", "# ", "> ", "    ", "\t", "\n", "\r", "===", "---", "```", "`", "~~~",
				"[x] ", "|", "\\", "*", "_", "<", "&", "@a", "#1", "://", "<!--", "</details>", "é", "ß", "\xff", "\xc3", "\u202e"}),
			rapid.String(), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 4), func(b []byte) string { return string(b) }),
		), 1, 6).Draw(t, "parts"), "")
	}).Filter(func(s string) bool { return strings.TrimSpace(s) != "" }) // a finding has a message
	rapid.Check(t, func(rt *rapid.T) {
		s := text.Draw(rt, "text")
		key := schema.Key{Kind: schema.KindInstance, Tenant: s, Project: s, Name: s}
		found := schema.Diagnostic{Severity: rapid.SampledFrom([]schema.Severity{schema.SeverityError, schema.SeverityWarning}).Draw(rt,
			"severity"), Code: s, Message: s, File: s, Line: 1}
		checkProposal(t, plan.Proposal{Head: s, Base: s, Diagnostics: []schema.Diagnostic{found},
			Documents: []plan.DocumentChange{{File: s, Change: "modified"}}}, plan.PullContext{Number: 1})
		checkMarkdown(t, report.Rollout(plan.Rollout{Commit: s, CorrelationID: s, Units: []plan.UnitProgress{
			{Key: key, Phase: plan.PhaseFailed, At: s, Failure: s},
			{Key: key, Failure: s, Stale: &plan.StalePlan{Now: s, Diff: []plan.DiffLine{{Sign: "+", Text: s}}}},
		}}))
		checkAnswer(t, plan.Answer{To: s, Said: s, Kind: plan.AnswerRefused, Why: s}, nil)
	})
}

// A title has a whole path or none; the summary has it.
func TestTitlePathsAreNotCut(t *testing.T) {
	for file, titled := range map[string]bool{
		"tenants/x.yaml": true, "épreuve.yaml": true, "a_b.yaml": true, strings.Repeat("d/", 45) + "x.yaml": true,
		strings.Repeat("d/", 100) + "x.yaml": false,
	} {
		for _, severity := range []schema.Severity{schema.SeverityError, schema.SeverityWarning} {
			found := []schema.Diagnostic{{Severity: severity, Code: "yaml.syntax", Message: strings.Repeat("too long ", 40), File: file,
				Line: 7}}
			for range 2 {
				k := report.Checks(plan.Proposal{Diagnostics: found}, plan.PullContext{})[0]
				require.Equal(t, titled, strings.Contains(k.Title, file), k.Title)
				require.NotContains(t, k.Title, "d/d…")
				first, _, _ := strings.Cut(k.Summary, "\n")
				require.Regexp(t, "`"+regexp.QuoteMeta(file)+"(:7)?`", first+map[bool]string{true: k.Summary, false: ""}[!titled])
				found = append(found, found[0])
			}
		}
	}
}

// checkAnswer checks every answer: its line is one line, and all text is harmless.
func checkAnswer(t *testing.T, a plan.Answer, e *policy.Explanation) {
	t.Helper()
	line, details := report.Answer(a, e)
	require.NotContains(t, line, "\n")
	checkMarkdown(t, line)
	checkMarkdown(t, details)
}
