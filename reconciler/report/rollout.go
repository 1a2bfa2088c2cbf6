package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// heldUnauthorised is the reason of what is held for lack of a permission, as
// schema/load names it.
const heldUnauthorised = "unauthorised"

// Rollout is the part of the comment that says what became of a merge, as
// Markdown. It is written anew as things go on, and says nothing that changes by
// itself.
func Rollout(r plan.Rollout) string {
	var d doc
	d.line("### Berth roll-out", "")
	d.line(rolloutHeadline(&r), "")
	d.stale(&r)
	var bad []string
	for _, u := range r.Units {
		if stageOf(u) == failed {
			at := ""
			if u.At != "" {
				at = " at " + code(u.At)
			}
			bad = append(bad, fmt.Sprintf("- %s **failed**%s: %s", code(unitName(u.Key)), at, prose(short(u.Failure, 1000)))+retries(u))
		} else if u.Failure != "" && u.Stale == nil && u.TakenOver == "" {
			bad = append(bad, fmt.Sprintf("- %s: %s", code(unitName(u.Key)), prose(short(u.Failure, 1000))))
		}
	}
	for _, h := range r.Held {
		bad = append(bad, fmt.Sprintf("- %s is held (%s), the version in force stays: %s", code(h.File), prose(h.Why()), prose(short(h.Message, 1000))))
	}
	if len(bad) > 0 {
		d.line("**In the way**", "")
		d.line(bad...)
		d.line("")
		d.applyHint(&r)
	}
	if len(r.Units) > 0 {
		d.progress(r.Units)
	}
	foot := fmt.Sprintf("<sub>Merged as %s · correlation id %s, in the logs, events and host ledgers of every effect of it</sub>", code(commit(r.Commit)), code(r.CorrelationID))
	return d.cut(maxPart, foot, "berth trace "+short(r.CorrelationID, maxValue))
}

// applyHint says how held documents of a merge come into force, where a command
// can do that.
func (d *doc) applyHint(r *plan.Rollout) {
	unauthorised, deletion, tenant := false, false, false
	for _, h := range r.Held {
		unauthorised = unauthorised || h.Reason == heldUnauthorised
		tenant = tenant || h.Key.Kind == schema.KindTenant // a tenant as a whole takes an acknowledgement
		deletion = deletion || strings.Contains(h.Message, "/berth ack-delete ")
	}
	apply := code("/berth apply " + commit(r.Commit))
	switch {
	case unauthorised:
		d.line("→ An approval after the merge has no effect. To bring these documents into force, a user with the permission comments "+apply+".", "")
	case deletion && !tenant:
		d.line("→ To delete these documents, a user with the permission comments "+apply+".", "")
	}
}

// retries says how a unit that gave up is begun again.
func retries(u plan.UnitProgress) string {
	if !u.Settled {
		return "<br>→ it is tried again by itself"
	}
	return "<br>→ mend it and say `/berth retry`, or take the change back"
}

// stage is where a unit of a roll-out stands.
type stage int

// In the order people should see them.
const (
	held stage = iota
	failed
	applying
	queued
	through
	overtaken
)

func stageOf(u plan.UnitProgress) stage {
	switch {
	case u.Stale != nil:
		return held
	case u.TakenOver != "":
		return overtaken
	case u.Phase == plan.PhaseFailed || u.Settled && u.Failure != "":
		return failed
	case u.Settled:
		return through
	case u.Total == 0:
		return queued
	}
	return applying
}

func (s stage) sign() string { return [...]string{"!", "✗", "…", "·", "✓", "»"}[s] }

// rolloutHeadline counts the units by where they stand, the gravest first.
func rolloutHeadline(r *plan.Rollout) string {
	if len(r.Units) == 0 {
		if len(r.Held) > 0 {
			return "**Held:** none of it came into force."
		}
		return "**No instance changes.** There is nothing to roll out."
	}
	n := map[stage]int{}
	phases := map[plan.Phase]int{}
	var slowest float64
	for _, u := range r.Units {
		n[stageOf(u)]++
		if stageOf(u) == through {
			phases[u.Phase]++
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
	say(n[held], "held")
	say(n[failed], "failed")
	say(n[applying], "under way")
	say(n[queued], "queued")
	for _, p := range slices.Sorted(maps.Keys(phases)) {
		say(phases[p], prose(string(p)))
	}
	say(n[overtaken], "taken over by a later change")
	s := "**" + sentence(parts) + ".**"
	if n[through]+n[overtaken] == len(r.Units) && slowest > 0 {
		s += fmt.Sprintf(" It took %.1f s from the merge.", slowest)
	}
	return s
}

// stale tells of the units that are held as what would be done to them is not
// what was reviewed: what differs, and how to let it through.
func (d *doc) stale(r *plan.Rollout) {
	var all []plan.UnitProgress
	for _, u := range r.Units {
		if u.Stale != nil {
			all = append(all, u)
		}
	}
	if len(all) == 0 {
		return
	}
	why := "what would be done now is not what was reviewed"
	if !slices.ContainsFunc(all, func(u plan.UnitProgress) bool { return u.Stale.Reviewed != "" }) {
		why = "no plan of it was shown before the merge"
	}
	d.line("> [!IMPORTANT]", fmt.Sprintf("> **Held:** %s. Nothing changes there until a user with the permission applies the plan below: %s", why, code("/berth apply "+commit(r.Commit))), "")
	for i, u := range all {
		body := func() {
			var lines []string
			for _, l := range u.Stale.Diff {
				sign := l.Sign
				if !slices.Contains([]string{"-", "+", " ", "@"}, sign) {
					sign = " "
				}
				if sign == "@" {
					lines = append(lines, "@@ "+short(l.Text, maxValue)+" @@")
				} else {
					lines = append(lines, sign+" "+short(l.Text, maxValue))
				}
			}
			d.line(fence("diff", lines)...)
			if u.Failure != "" {
				d.line("", "Last said: "+prose(short(u.Failure, 1000)))
			}
		}
		was := "reviewed as " + code(short(u.Stale.Reviewed, 13))
		if u.Stale.Reviewed == "" {
			was = "never shown"
		}
		if i < maxNamed {
			d.line(fmt.Sprintf("**%s**: %s, now %s", code(unitName(u.Key)), was, code(short(u.Stale.Now, 13))), "")
			body()
			d.line("")
		} else {
			d.details(fmt.Sprintf("%s: what differs", htmlCode(unitName(u.Key))), body)
		}
	}
}

// progress is a row for each unit, the gravest first; of many, those that are
// through are folded away.
func (d *doc) progress(units []plan.UnitProgress) {
	units = slices.Clone(units)
	slices.SortStableFunc(units, func(a, b plan.UnitProgress) int { return int(stageOf(a)) - int(stageOf(b)) })
	show := func(units []plan.UnitProgress) {
		d.table("", "Instance", "Where it stands", "Members")
		for _, u := range units {
			d.row("**"+stageOf(u).sign()+"**", code(unitName(u.Key)), standing(u), memberCell(u.Members))
		}
	}
	open := units
	if len(units) > maxRows {
		open = slices.DeleteFunc(slices.Clone(units), func(u plan.UnitProgress) bool { return stageOf(u) >= through })
	}
	if len(open) > 0 {
		show(open)
		d.line("")
	}
	if rest := units[len(open):]; len(rest) > 0 {
		d.details(count(len(rest), "instance")+" done", func() { show(rest) })
	}
}

// standing is where a unit stands, in words.
func standing(u plan.UnitProgress) string {
	steps := ""
	if u.Total > 0 {
		steps = fmt.Sprintf(" %d/%d", u.Done, u.Total)
	}
	at := ""
	if u.At != "" {
		at = ": " + code(u.At)
	}
	switch stageOf(u) {
	case held:
		return "**held**, still " + prose(string(u.Phase))
	case failed:
		return "**failed**" + steps
	case applying:
		return "applying" + steps + at
	case queued:
		return "queued"
	case overtaken:
		return "taken over by " + code(commit(u.TakenOver))
	}
	s := prose(string(u.Phase))
	if u.Total > 0 {
		s += ", " + count(u.Total, "step")
	}
	if u.Seconds > 0 {
		s += fmt.Sprintf(" in %.1f s", u.Seconds)
	}
	return s
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
