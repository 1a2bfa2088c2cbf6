package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler/plan"
)

// Rollout is what became of a merged change, as Markdown: it takes the place
// of the plan in the comment, and is written anew as things go on.
func Rollout(r plan.Rollout) string {
	var d doc
	d.line("### Berth rollout", "")
	d.line(rolloutHeadline(&r), "")
	if len(r.Units) > 0 {
		d.table("", "Instance", "Phase", "Steps", "Members", "Took")
		for _, u := range r.Units {
			steps, took := "–", "–"
			if u.Total > 0 {
				steps = fmt.Sprintf("%d of %d", u.Done, u.Total)
			}
			if u.Settled && u.Seconds > 0 {
				took = fmt.Sprintf("%.1f s", u.Seconds)
			}
			d.row("**"+progressSign(u)+"**", code(unitName(u.Key)), prose(string(u.Phase)), steps, memberCell(u.Members), took)
		}
		d.line("")
	}
	var bad []string
	for _, u := range r.Units {
		if u.Failure != "" {
			bad = append(bad, fmt.Sprintf("- %s: %s", code(unitName(u.Key)), prose(short(u.Failure, 1000))))
		}
	}
	for _, h := range r.Held {
		bad = append(bad, fmt.Sprintf("- %s is held (%s), the version in force stays: %s", code(h.File), prose(h.Reason), prose(short(h.Message, 1000))))
	}
	if len(bad) > 0 {
		d.line("**In the way**", "")
		d.line(bad...)
		d.line("")
	}
	foot := fmt.Sprintf("<sub>Merged as %s · correlation id %s, in the logs, events and host ledgers of every effect of it</sub>", code(commit(r.Commit)), code(r.CorrelationID))
	return d.cut(MaxMarkdown, foot, "git show berth/status")
}

func rolloutHeadline(r *plan.Rollout) string {
	if len(r.Units) == 0 {
		return "**No instance changes.** There is nothing to roll out."
	}
	byPhase := map[plan.Phase]int{}
	var failed, under int
	var slowest float64
	for _, u := range r.Units {
		switch progressSign(u) {
		case "✓":
			byPhase[u.Phase]++
		case "✗":
			failed++
		default:
			under++
		}
		slowest = max(slowest, u.Seconds)
	}
	var parts []string
	say := func(n int, what string) {
		if n == 0 {
			return
		}
		if len(parts) == 0 {
			what = map[bool]string{true: "instance ", false: "instances "}[n == 1] + what
		}
		parts = append(parts, fmt.Sprintf("%d %s", n, what))
	}
	for _, p := range slices.Sorted(maps.Keys(byPhase)) {
		say(byPhase[p], string(p))
	}
	say(failed, "failed")
	say(under, "under way")
	s := "**" + sentence(parts) + ".**"
	if failed+under == 0 && slowest > 0 {
		s += fmt.Sprintf(" It took %.1f s from the merge.", slowest)
	}
	return s
}

func progressSign(u plan.UnitProgress) string {
	switch {
	case u.Phase == plan.PhaseFailed || u.Settled && u.Failure != "":
		return "✗"
	case u.Settled:
		return "✓"
	}
	return "…"
}

// memberCell says where each member is, the first few by name.
func memberCell(ms []plan.MemberStatus) string {
	if len(ms) == 0 {
		return "–"
	}
	var cells []string
	for i, m := range ms {
		if i == 6 && len(ms) > 7 {
			cells = append(cells, fmt.Sprintf("%d more", len(ms)-6))
			break
		}
		cell := code(m.Name) + " on " + code(m.Node)
		if m.State != "" && m.State != plan.Running {
			cell += " (" + prose(string(m.State)) + ")"
		}
		cells = append(cells, cell)
	}
	return strings.Join(cells, "<br>")
}
