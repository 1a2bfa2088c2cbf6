package report

import (
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
)

// maxRows limits the units with a row of their own. Beyond it, units with equal rows
// share one.
const maxRows = 30

// units writes the table of units: one row a unit, one kind of fact a column.
func (d *page) units() {
	plans := d.p.Plans
	kind := noun(keysOf(plans))
	d.table("", upper(kind), "Change", "Services", "Jobs", "Nodes")
	type row struct{ sign, change, services, jobs, nodes string }
	names := map[row][]string{}
	var rows []row
	for i, u := range inOrder(d.p) {
		c := changeOf(d.p, u)
		r := row{c.sign(), d.changeCell(u), servicesCell(u), dash(d.jobs(u, false)), nodesCell(u)}
		if len(plans) <= maxRows || c == deletes {
			r.sign += strings.Repeat(" ", i+1) // makes the row unique
		}
		if names[r] == nil {
			rows = append(rows, r)
		}
		name := unitCode(u.Key)
		if kind != "unit" {
			name = code(clean(u.Key.ResourceName())) // the heading says the kind
		}
		names[r] = append(names[r], name)
	}
	for _, r := range rows {
		d.row(bold(strings.TrimSpace(r.sign)), strings.Join(atMost(3, names[r], ""), "<br>"), r.change, r.services, r.jobs, r.nodes)
	}
	d.line("")
}

// actionsOf groups the actions of a plan by verb.
func actionsOf(u *plan.Plan) map[plan.Verb][]plan.Action {
	by := map[plan.Verb][]plan.Action{}
	for _, a := range u.Actions {
		by[a.Verb] = append(by[a.Verb], a)
	}
	return by
}

// changeCell describes the change of a unit.
func (d *page) changeCell(u *plan.Plan) string {
	c, by := changeOf(d.p, u), actionsOf(u)
	var parts []string
	switch {
	case c == deletes:
		return "deleted" // the caution above has the rest
	case c == blocks:
		return d.blockedCell(u)
	case c == creates && isView(u):
		parts = append(parts, "uses "+unitCode(sharedBy(u)))
	case len(by[plan.Create]) > 0 && !isNew(u):
		parts = append(parts, "creation continues")
	case len(by[plan.Create]) > 0:
		parts = append(parts, "created")
	}
	if len(by[plan.Stop]) > 0 {
		parts = append(parts, "stopped")
	}
	parts = append(parts, sharing(u, code)...)
	parts = append(parts, phrase("removes", ownMembers(u, by[plan.Leave], by[plan.Join]))...)
	parts = append(parts, returning(by)...)
	for _, a := range by[plan.Configure] {
		if values := valuesOf(u, a); values != "" {
			parts = append(parts, values)
		}
	}
	parts = append(parts, phrase("adds", ownMembers(u, by[plan.Join], by[plan.Leave]))...)
	parts = append(parts, phrase("starts", ownMembers(u, by[plan.Start], nil))...)
	parts = append(parts, operations(u)...)
	parts = append(parts, notesOf(u)...)
	if len(u.Blocked) > 0 && len(u.Actions) > 0 {
		parts = append(parts, map[bool]string{true: "the rest is blocked", false: "the rest waits"}[blockOf(u) != nil])
	}
	return strings.Join(parts, "; ")
}

// blockedCell is changeCell for a unit without an action.
func (d *page) blockedCell(u *plan.Plan) string {
	switch {
	case blockOf(u) != nil:
		return "blocked, see " + map[bool]string{true: "above", false: "below"}[d.p.Comes(u.Key)]
	case isView(u):
		return "uses " + unitCode(sharedBy(u)) + "; waits, see below"
	}
	return "waits, see below"
}

// ownMembers names the members of actions without those of other actions and those on lent nodes.
func ownMembers(u *plan.Plan, actions, except []plan.Action) (names []string) {
	for _, a := range actions {
		if !slices.ContainsFunc(except, func(b plan.Action) bool { return b.Member == a.Member }) && !isLent(u, a) {
			names = append(names, code(a.Member))
		}
	}
	return names
}

// operations describes the operations of a plan, a phrase each.
func operations(u *plan.Plan) []string {
	var parts []string
	for _, a := range u.Actions {
		if a.Operation == nil {
			continue
		}
		what := string(a.Verb)
		if a.Member != "" {
			what += " " + code(a.Member)
		}
		parts = append(parts, what+" by operation "+code(clean(a.Operation.Name)))
	}
	return atMost(4, parts, " operations")
}

// returning names the members that leave and come back: to another node, or with other
// resources.
func returning(by map[plan.Verb][]plan.Action) []string {
	var moved, back []string
	for _, a := range by[plan.Join] {
		i := slices.IndexFunc(by[plan.Leave], func(b plan.Action) bool { return b.Member == a.Member })
		switch {
		case i < 0:
		case by[plan.Leave][i].Node != a.Node:
			moved = append(moved, code(a.Member))
		default:
			back = append(back, code(a.Member))
		}
	}
	parts := phrase("moves", moved)
	if len(back) > 0 {
		parts = append(parts, list(back, 4)+plural(len(back), " leaves and returns", " leave and return"))
	}
	return parts
}

// isLent reports whether an action is about a lent node, which sharing shows.
func isLent(u *plan.Plan, a plan.Action) bool {
	m, ok := u.After.Member(a.Member)
	_, was := u.Before.Member(a.Member)
	return returns(u, a) || a.Verb == plan.Join && ok && m.Loan != nil && !was
}

// valuesOf names the changes of a configure action, with short values.
func valuesOf(u *plan.Plan, a plan.Action) string {
	var parts []string
	known := false
	for _, c := range a.Changes {
		if strings.HasPrefix(c.Field, "members.") && (c.Before == "" || c.After == "") {
			continue // joins and leaves show the members
		}
		project, term, isKnown := termsOf(u, c.Field)
		if isKnown {
			known = true
			continue
		}
		parts = withNew(parts, valueText(c, project, term))
	}
	switch {
	case len(parts) > 0:
		return strings.Join(atMost(3, parts, " values"), "; ")
	case known:
		return ""
	}
	return prose(short(a.Reason, maxValue))
}

// valueText describes a changed value. project and term are those of termsOf.
func valueText(c plan.Change, project, term string) string {
	text := code(short(c.Field, 60))
	if project != "" {
		project = code(short(project, maxName))
		text = project + ": " + code(short(term, 60))
	}
	name, isUser := strings.CutPrefix(c.Field, "users.")
	name, _, _ = strings.Cut(name, ".")
	isClosing := project != "" && term == "closed"
	switch {
	case isClosing && c.After == "true":
		return project + " submits no new jobs"
	case isClosing:
		return project + " submits jobs again"
	case isUser && c.Before == "":
		return "adds user " + code(short(name, 60))
	case isUser && c.After == "":
		return "removes user " + code(short(name, 60))
	case len(c.Before) <= 24 && len(c.After) <= 24:
		return text + " " + code(dash(c.Before)) + " → " + code(dash(c.After))
	}
	return text
}

// servicesCell describes the effects on a unit's services.
func servicesCell(u *plan.Plan) string {
	by := actionsOf(u)
	var restarts, interruptions []string
	for _, r := range restartedBy(u) {
		restarts = append(restarts, prose(short(r, maxValue)))
	}
	reconfigures := false
	for _, a := range u.Actions {
		if a.Impact.Interruption != "" {
			interruptions = withNew(interruptions, prose(short(a.Impact.Interruption, maxValue)))
		}
		reconfigures = reconfigures || a.Impact.Reconfigure
	}
	switch {
	case len(by[plan.Delete])+len(by[plan.Stop]) > 0:
		return "stop"
	case len(by[plan.Create]) > 0:
		return "start"
	case len(restarts) > 0:
		jobs := ""
		if workOf(u) <= workTerms {
			jobs = "; running jobs go on"
		}
		return noticed(list(restarts, 4)+plural(len(restarts), " restarts", " restart"), strings.Join(interruptions, "; "), jobs)
	case reconfigures:
		return "reconfigured, no restart"
	}
	return "–"
}

// notesOf returns the runtime's notes about the steps of a unit, a phrase each.
func notesOf(u *plan.Plan) []string {
	var notes []string
	for _, a := range u.Actions {
		for _, note := range a.Impact.Notes {
			if note = prose(short(note, maxValue)); note != "" {
				notes = withNew(notes, note)
			}
		}
	}
	return notes
}

// nodesCell lists the nodes that a plan drains and uses.
func nodesCell(u *plan.Plan) string {
	var drains, later, takes []string
	for _, a := range u.Actions {
		for _, n := range a.Impact.Drains {
			drains = withNew(drains, code(n))
		}
		if (a.Verb == plan.Create || a.Verb == plan.Join) && a.Node != "" {
			takes = withNew(takes, code(a.Node))
		}
	}
	for _, a := range u.Later {
		for _, n := range a.Impact.Drains {
			later = withNew(later, code(n))
		}
	}
	return dash(strings.Join(slices.Concat(phrase("drains", drains), phrase("later drains", later), phrase("uses", takes)), "; "))
}

// allSteps folds the steps of every plan, and folds many plans once more.
func (d *page) allSteps() {
	plans := slices.DeleteFunc(inOrder(d.p), func(u *plan.Plan) bool { return len(u.Actions) == 0 })
	show := func() {
		for _, u := range plans {
			d.steps(u)
		}
	}
	if n := len(plans); n > maxNamed {
		d.section("Steps of "+count(n, noun(each(plans, unitKey))), show)
		return
	}
	show()
}

// steps folds the values that a plan changes, and each of its steps.
func (d *page) steps(u *plan.Plan) {
	d.section(fmt.Sprintf("%s: %s", unitAs(u.Key, htmlCode), count(len(u.Actions), "step")), func() {
		if lines := diffLines(u); len(lines) > 0 {
			d.diff(lines)
			d.line("")
		}
		d.stepTable(u)
		for i, a := range u.Actions {
			if text := differencesText(a.Impact); text != "" {
				d.line("", fmt.Sprintf("Step %d %s.", i+1, prose(short(text, maxValue))))
			}
		}
		d.jobSets(u)
	})
}

func (d *page) stepTable(u *plan.Plan) {
	number := map[string]string{}
	for i, a := range u.Actions {
		number[a.ID] = fmt.Sprint(i + 1)
	}
	d.table("#", "Action", "Node", "Reason", "Effect", "After")
	for _, a := range u.Actions {
		needs := each(slices.Concat(a.Needs, a.After), func(id string) string { return number[id] })
		reason := prose(short(a.Reason, maxValue))
		if why := placed(u, a); why != "" {
			reason += "; node: " + prose(short(why, maxValue))
		}
		d.row(number[a.ID], strings.TrimSpace(signOf(a.Verb)+" "+string(a.Verb)+" "+optional(a.Member)), optional(a.Node), reason,
			prose(short(strings.Join(impact(a.Impact), "; "), maxValue)), strings.Join(needs, ", "))
	}
}

func optional(s string) string {
	if s == "" {
		return ""
	}
	return code(s)
}

// diffLines formats the values that a plan changes as a diff.
func diffLines(u *plan.Plan) []string {
	var lines []string
	for _, a := range u.Actions {
		for _, c := range a.Changes {
			if isShownOtherwise(u, c) {
				continue
			}
			if c.Before != "" {
				lines = append(lines, "- "+c.Field+": "+short(c.Before, maxValue))
			}
			if c.After != "" {
				lines = append(lines, "+ "+c.Field+": "+short(c.After, maxValue))
			}
		}
	}
	return lines
}
