package report

import (
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
)

// fate describes the fate of an instance that policy denies.
func fate(n schema.Noncompliance) string {
	switch n.Fate {
	case schema.FateStopped:
		return "stopped: its grace period ended on " + n.Day
	case schema.FateStopping:
		return "continues until " + n.Day + ", then it is stopped"
	case schema.FateComplies:
		return "complies again"
	}
	return "continues unchanged; changes that do not comply are held"
}

// because lists the rules that deny an instance, with their positions.
func because(n schema.Noncompliance) string {
	return strings.Join(each(n.Because, func(d schema.Decision) string {
		return fmt.Sprintf("%s (%s, %s)", d.Message, d.Rule, place(d.Source.File, d.Source.Line, 0))
	}), "; ")
}

// narrows reports whether policy changed a value.
func narrows(d schema.Decision) bool { return d.Verdict == schema.Narrow }

// isShown reports whether a decision is of interest to a change. Those about terms of a project that
// stay as they are are not: a shared runtime may have many.
func isShown(p *plan.Proposal, x schema.Decision) bool {
	if x.Rule != schema.RuleTwoSided {
		return true
	}
	return slices.ContainsFunc(p.Plans, func(u plan.Plan) bool {
		return u.Key == x.Key && slices.ContainsFunc(u.Actions, func(a plan.Action) bool {
			return a.Verb == plan.Create || slices.ContainsFunc(a.Changes, func(c plan.Change) bool { return c.Field == x.Field })
		})
	})
}

// policy lists the values that policy narrows, and its effect on existing instances.
func (d *page) policy() {
	var narrowed, terms entries
	for _, x := range d.p.Decisions {
		switch {
		case !narrows(x) || !isShown(d.p, x):
		case x.Rule == schema.RuleTwoSided:
			terms.add(unitCode(x.Key), fmt.Sprintf("%s is %s, not %s: %s (%s)", code(x.Field), code(short(dash(x.After), maxValue)),
				code(short(dash(x.Before), maxValue)), prose(short(x.Message, maxValue)), d.source(x.Source.File, x.Source.Line)), "")
		default:
			narrowed.add(unitCode(x.Key), fmt.Sprintf("%s is %s, not %s: %s (%s, %s)", code(x.Field), code(short(dash(x.After), maxValue)),
				code(short(dash(x.Before), maxValue)), prose(short(x.Message, maxValue)), code(x.Rule),
				d.source(x.Source.File, x.Source.Line)), "")
		}
	}
	d.list("Terms that the two sides state differently", terms)
	d.list("Narrowed by policy", narrowed)
	d.quotas()
	if len(d.p.Impacted) == 0 {
		return
	}
	keys := each(d.p.Impacted, func(n schema.Noncompliance) schema.Key { return n.Key })
	d.line(bold(upper(noun(keys))+"s that this policy affects"), "")
	d.table(upper(noun(keys)), "Effect", "Rule")
	for _, n := range d.p.Impacted {
		what := prose(fate(n))
		if n.Fate == schema.FateStopping || n.Fate == schema.FateStopped {
			what = bold(what)
		}
		var rules []string
		for _, x := range n.Because {
			rules = append(rules, fmt.Sprintf("%s (%s, %s)", prose(short(x.Message, maxValue)), code(x.Rule),
				d.source(x.Source.File, x.Source.Line)))
		}
		d.row(unitCode(n.Key), what, strings.Join(rules, "<br>"))
	}
	d.line("")
}

// quotas lists the quotas whose use the change moves, with the rest of each.
func (d *page) quotas() {
	if len(d.p.Quotas) == 0 {
		return
	}
	d.line(bold("Quotas after this merge"), "")
	d.table("Owner", "Amount", "Used", "Was", "Left", "Quota")
	for _, q := range d.p.Quotas {
		d.row(code(q.Owner), prose(q.What), fmt.Sprintf("%d of %d", q.Used, q.Most), fmt.Sprint(q.Was), left(q),
			fmt.Sprintf("%s, %s", code(q.Rule), d.source(q.Source.File, q.Source.Line)))
	}
	d.line("")
}

// left describes the rest of a quota. An owner may use more than it allows, after a policy became narrower.
func left(q schema.QuotaUse) string {
	if q.Used > q.Most {
		return fmt.Sprintf("none: %d too many", q.Used-q.Most)
	}
	return fmt.Sprint(q.Most - q.Used)
}

// breakGlass warns of break-glass access.
func (d *page) breakGlass() {
	var lines []string
	for _, x := range d.p.Authority {
		if isBreakGlass(x) {
			lines = append(lines, fmt.Sprintf("- %s as %s: %s: %s", code(x.By), code(x.Role), prose(short(x.Why, maxValue)),
				prose(short(x.Reason, maxValue))))
		}
	}
	if len(lines) > 0 {
		d.box("WARNING", append([]string{"**Break-glass access:** a platform administrator acts in a tenant. The use is audited.", ""},
			lines...)...)
	}
}

// approved names the permissions that allow the change.
func (d *page) approved() {
	type right struct{ by, role, scope, source string }
	given := map[right]map[string]bool{} // files of the documents
	var order []right
	for _, x := range d.p.Authority {
		if !x.Allowed || x.BreakGlass {
			continue
		}
		r := right{x.By, x.Role, x.Scope.String(), ""}
		if x.Source.File != "" {
			r.source = d.source(x.Source.File, x.Source.Line)
		}
		if given[r] == nil {
			given[r], order = map[string]bool{}, append(order, r)
		}
		given[r][x.File] = true
	}
	if len(order) == 0 {
		return
	}
	var parts []string
	for _, r := range order {
		s := fmt.Sprintf("%s: %s in %s", code(r.by), word(r.role), prose(short(r.scope, maxValue)))
		if r.source != "" {
			s += " (" + r.source + ")"
		}
		if len(order) > 1 {
			s += " for " + count(len(given[r]), "document")
		}
		parts = append(parts, s)
	}
	d.line("**Approved** by "+strings.Join(atMost(4, parts, ""), "; ")+".", "")
}

// permissions folds the permissions that each change needs, and their holder. Those of a single
// document with one holder are shown elsewhere.
func (d *page) permissions() {
	all := d.p.Authority
	rows := grouped(all)
	if len(rows) < 2 {
		return
	}
	summary := count(len(all), "permission") + " needed, all given"
	missing := slices.DeleteFunc(slices.Clone(all), func(x authority.Decision) bool { return x.Allowed })
	if len(missing) > 0 {
		summary = fmt.Sprintf("%s needed, %d missing", count(len(all), "permission"), len(missing))
	}
	d.section(summary, func() {
		d.table("", "Change", "Permission", "By")
		for _, row := range rows {
			x := row[0]
			mark, by := "✓", code(x.By)+" as "+code(x.Role)
			if !x.Allowed {
				mark, by = "**✗**", prose(short(x.Reason, maxValue))
			} else if x.Source.File != "" {
				by += " (" + d.source(x.Source.File, x.Source.Line) + ")"
			}
			permissions := each(row, func(x authority.Decision) string { return code(string(x.Permission)) })
			d.row(mark, prose(short(x.Why, maxValue)), strings.Join(permissions, ", "), by)
		}
	})
}

// grouped returns decisions that differ in the permission only together, in order.
func grouped(all []authority.Decision) (rows [][]authority.Decision) {
	same := func(a, b authority.Decision) bool {
		return a.Why == b.Why && a.Scope == b.Scope && a.Allowed == b.Allowed && a.By == b.By && a.Role == b.Role && a.Source == b.Source &&
			(a.Allowed || a.Reason == b.Reason)
	}
	for _, x := range all {
		i := slices.IndexFunc(rows, func(row []authority.Decision) bool { return same(row[0], x) })
		if i < 0 {
			rows = append(rows, []authority.Decision{x})
			continue
		}
		rows[i] = append(rows[i], x)
	}
	return rows
}
