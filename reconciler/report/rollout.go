package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// Rollout returns the part of the comment about the roll-out of a merge. It is rewritten
// as the roll-out proceeds. It has no time or number that changes without an event.
func Rollout(r plan.Rollout) string {
	d := rolloutPage{r: &r, links: &links{prefix: r.Files, base: r.Commit}}
	r.Units = slices.Clone(r.Units)
	slices.SortStableFunc(r.Units, func(a, b plan.UnitProgress) int { return int(stageOf(a)) - int(stageOf(b)) })
	d.line("### Berth roll-out", "")
	d.line(d.headline(), "")
	d.blocking()
	if len(r.Units) > 0 {
		d.progress()
	}
	d.differences()
	foot := fmt.Sprintf("<sub>Merged as %s · correlation id %s, in logs, events and host ledgers</sub>", code(shortID(r.Commit)),
		code(r.CorrelationID))
	return d.cut(maxPart, foot, "berth trace "+short(r.CorrelationID, maxValue))
}

type rolloutPage struct {
	doc
	*links
	r *plan.Rollout
}

// noun returns the word for the units of the roll-out.
func (d *rolloutPage) noun() string {
	return noun(each(d.r.Units, func(u plan.UnitProgress) schema.Key { return u.Key }))
}

// stage is the progress of a unit in a roll-out.
type stage int

// The stages, in display order.
const (
	held stage = iota
	failed
	applying
	queued
	done
	replaced
)

func stageOf(u plan.UnitProgress) stage {
	switch {
	case u.Stale != nil:
		return held
	case u.TakenOver != "":
		return replaced
	case u.Phase == plan.PhaseFailed || u.Settled && u.Failure != "":
		return failed
	case u.Settled:
		return done
	case u.Total == 0:
		return queued
	}
	return applying
}

func (s stage) sign() string { return [...]string{"!", "✗", "…", "·", "✓", "»"}[s] }

func (s stage) String() string {
	return [...]string{"held", "failed", "applying", "queued", "done", "replaced by a later change"}[s]
}

// headline counts the instances by stage, the worst first.
func (d *rolloutPage) headline() string {
	r, docs := d.r, ""
	if n := len(d.r.Held); n > 0 {
		docs = "**Held: " + count(n, "document") + ".** "
	}
	if len(r.Units) == 0 {
		return cmp.Or(docs, "**Done.** ") + "No instance changed."
	}
	n := map[stage]int{}
	phases := map[plan.Phase]int{}
	var slowest float64
	for _, u := range r.Units {
		at := stageOf(u)
		n[at]++
		if at == done {
			phases[u.Phase]++
		}
		slowest = max(slowest, u.Seconds)
	}
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	for at := held; at <= queued; at++ {
		add(n[at], at.String())
	}
	for _, phase := range slices.Sorted(maps.Keys(phases)) {
		add(phases[phase], prose(string(phase)))
	}
	add(n[replaced], replaced.String())
	worst := stageOf(r.Units[0])
	if worst < done {
		s := docs + fmt.Sprintf("**%s: %d of %s.**", upper(worst.String()), n[worst], count(len(r.Units), d.noun()))
		if len(parts) > 1 {
			s += " " + upper(sentence(parts[1:])) + "."
		}
		return s
	}
	number, rest, _ := strings.Cut(parts[0], " ")
	parts[0] = number + " " + d.noun() + plural(n[worst], " ", "s ") + rest
	s := docs + "**Done: " + sentence(parts) + ".**"
	if slowest > 0 {
		s += fmt.Sprintf(" It took %.1f s from the merge.", slowest)
	}
	return s
}

// blocking lists held and failed changes, each with its next step.
func (d *rolloutPage) blocking() {
	var all entries
	for _, u := range d.r.Units {
		switch failure := prose(u.Failure); {
		case u.Stale != nil:
			all.add(unitCode(u.Key), staleText(u.Stale),
				"to apply the new plan, a user with the permission comments "+code("/berth apply "+shortID(d.r.Commit)))
		case stageOf(u) == failed:
			at := ""
			if u.At != "" {
				at = " at " + code(u.At)
			}
			all.add(unitCode(u.Key), "failed"+at+": "+failure, map[bool]string{
				true: "correct the cause and comment `/berth retry`, or revert the change", false: "Berth tries it again",
			}[u.Settled])
		case u.Failure != "" && u.TakenOver == "":
			all.add(unitCode(u.Key), failure, "")
		}
	}
	for _, h := range d.r.Held {
		all.add(d.place(h.File, 0, 0), "held, the version in force stays: "+prose(h.Message), d.heldStep(h))
	}
	d.list("Blocking", all)
}

// heldStep returns the command that brings a held document into force, if there is one.
func (d *rolloutPage) heldStep(h schema.Held) string {
	apply := code("/berth apply " + shortID(d.r.Commit))
	// needs an acknowledgement
	wholeTenant := slices.ContainsFunc(d.r.Held, func(h schema.Held) bool { return h.Key.Kind == schema.KindTenant })
	switch {
	case h.Reason == schema.HeldUnauthorised:
		return "An approval after the merge has no effect: a user with the permission comments " + apply
	case h.Ack != "" && !wholeTenant:
		return "to delete it, a user with the permission comments " + apply
	}
	return ""
}

// differences folds how each stale plan differs from the reviewed one.
func (d *rolloutPage) differences() {
	for _, u := range d.r.Units {
		if u.Stale == nil {
			continue
		}
		summary := unitAs(u.Key, htmlCode) + ": new plan"
		if u.Stale.Reviewed != "" {
			summary = unitAs(u.Key, htmlCode) + ": difference from the reviewed plan"
		}
		d.section(summary, func() {
			var lines []string
			for _, l := range u.Stale.Diff {
				switch l.Sign {
				case "@":
					lines = append(lines, "@@ "+short(l.Text, maxValue)+" @@")
				case "-", "+":
					lines = append(lines, l.Sign+" "+short(l.Text, maxValue))
				default:
					lines = append(lines, "  "+short(l.Text, maxValue))
				}
			}
			d.diff(lines)
			d.line("", fmt.Sprintf("Reviewed: %s. New: %s.", code(short(u.Stale.Reviewed, 13)), code(short(u.Stale.Now, 13))))
			if u.Failure != "" {
				d.line("", "Last error: "+prose(u.Failure))
			}
		})
	}
}

// progress writes a row for each unit, the worst first. It folds finished units if there
// are many.
func (d *rolloutPage) progress() {
	show := func(units []plan.UnitProgress) {
		d.table("", upper(d.noun()), "Progress", "Members")
		for _, u := range units {
			d.row(bold(stageOf(u).sign()), unitCode(u.Key), progressOf(u), memberCell(u.Members))
		}
	}
	units, open := d.r.Units, len(d.r.Units)
	if len(units) > maxRows {
		open = slices.IndexFunc(append(units[:len(units):len(units)], plan.UnitProgress{Settled: true}),
			func(u plan.UnitProgress) bool { return stageOf(u) >= done })
	}
	if open > 0 {
		show(units[:open])
		d.line("")
	}
	if rest := units[open:]; len(rest) > 0 {
		d.section(count(len(rest), d.noun())+" done", func() { show(rest) })
	}
}

// progressOf describes the progress of a unit.
func progressOf(u plan.UnitProgress) string {
	steps := ""
	if u.Total > 0 {
		steps = fmt.Sprintf(" %d/%d", u.Done, u.Total)
	}
	switch stageOf(u) {
	case held:
		return "**held**, still " + prose(string(u.Phase))
	case failed:
		return "**failed**" + steps
	case applying:
		if u.At != "" {
			steps += ": " + code(u.At)
		}
		return "applying" + steps
	case queued:
		return "queued"
	case replaced:
		return "replaced by " + code(shortID(u.TakenOver))
	}
	s := prose(string(u.Phase))
	if u.Total > 0 {
		s += ", " + count(u.Total, "step")
	}
	if u.Seconds > 0 {
		s += fmt.Sprintf(" in %.1f s", u.Seconds)
	}
	if u.Degraded != "" {
		s += "; " + prose(u.Degraded)
	}
	return s
}

// memberCell names the nodes of the first few members.
func memberCell(ms []plan.MemberStatus) string {
	var cells []string
	for _, m := range ms {
		cell := code(m.Name) + " on " + code(m.Node)
		if m.State != "" && m.State != plan.Running {
			cell += " (" + prose(string(m.State)) + ")"
		}
		cells = append(cells, cell)
	}
	return dash(strings.Join(atMost(7, cells, ""), "<br>"))
}
