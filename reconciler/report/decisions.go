package report

import (
	"fmt"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
)

// fate is what becomes of an instance that policy refuses, in words.
func fate(n schema.Noncompliance) string {
	switch n.Fate {
	case schema.FateStopped:
		return "stopped, as its grace ended on " + n.Day
	case schema.FateStopping:
		return "goes on until " + n.Day + ", then it is stopped"
	case schema.FateComplies:
		return "complies again"
	}
	return "goes on as it is; changes that do not comply are held"
}

// because is the rules that refuse it, and where each stands.
func because(n schema.Noncompliance) string {
	var rules []string
	for _, d := range n.Because {
		rules = append(rules, fmt.Sprintf("%s (%s, %s)", d.Message, d.Rule, place(d.Source.File, d.Source.Line, 0)))
	}
	return strings.Join(rules, "; ")
}

// narrows says whether policy changed a value of what was asked. What it denies is
// told as an obstacle.
func narrows(d schema.Decision) bool { return d.Verdict == schema.Narrow }

// policy is what rules made of what was asked, and of what is there already.
func (d *doc) policy(p *plan.Proposal) {
	var lines []string
	for _, x := range p.Decisions {
		if narrows(x) {
			lines = append(lines, fmt.Sprintf("- %s gets %s where %s was asked, of %s: %s (%s, %s)", code(unitName(x.Key)), code(short(dash(x.After), maxValue)),
				code(short(dash(x.Before), maxValue)), code(x.Field), prose(short(x.Message, maxValue)), code(x.Rule), code(place(x.Source.File, x.Source.Line, 0))))
		}
	}
	if len(lines) > 0 {
		d.line("**Narrowed by policy**", "")
		d.line(lines...)
		d.line("")
	}
	if len(p.Impacted) == 0 {
		return
	}
	d.line("**What this policy makes of instances that are there**", "")
	d.table("Instance", "What becomes of it", "Because")
	for _, n := range p.Impacted {
		what := prose(fate(n))
		if n.Fate == schema.FateStopping || n.Fate == schema.FateStopped {
			what = "**" + what + "**"
		}
		var rules []string
		for _, x := range n.Because {
			rules = append(rules, fmt.Sprintf("%s (%s, %s)", prose(short(x.Message, maxValue)), code(x.Rule), code(place(x.Source.File, x.Source.Line, 0))))
		}
		d.row(code(unitName(n.Key)), what, strings.Join(rules, "<br>"))
	}
	d.line("")
}

// broken says whether a right is there only by breaking the glass.
func broken(x authority.Decision) bool { return x.Allowed && x.BreakGlass }

// authority says by whose right the change may be made; where somebody of the
// platform acts in a tenant's place, in a box. What is missing is told as an
// obstacle.
func (d *doc) authority(all []authority.Decision) {
	var glass []string
	type right struct{ by, role, source string }
	given := map[right]int{}
	var order []right
	for _, x := range all {
		switch {
		case broken(x):
			glass = append(glass, fmt.Sprintf("> - %s as %s: %s: %s", code(x.By), code(x.Role), prose(short(x.Why, maxValue)), prose(short(x.Reason, maxValue))))
		case x.Allowed:
			r := right{x.By, x.Role, place(x.Source.File, x.Source.Line, 0)}
			if given[r]++; given[r] == 1 {
				order = append(order, r)
			}
		}
	}
	if len(glass) > 0 {
		d.line("> [!WARNING]", "> **Breaks the glass:** the platform acts in a tenant's place, which is audited.", ">")
		d.line(glass...)
		d.line("")
	}
	if len(order) == 0 {
		return
	}
	var parts []string
	for _, r := range order {
		s := fmt.Sprintf("%s as %s", code(r.by), code(r.role))
		if r.source != "" {
			s += " (" + code(r.source) + ")"
		}
		if len(order) > 1 {
			s += fmt.Sprintf(" for %d", given[r])
		}
		parts = append(parts, s)
	}
	d.line("**Permitted** by "+list(parts, 4)+".", "")
}

// rights folds away which permission each change needs and who has it.
func (d *doc) rights(all []authority.Decision) {
	if len(all) < 2 { // one is told already
		return
	}
	denied := 0
	for _, x := range all {
		if !x.Allowed {
			denied++
		}
	}
	summary := count(len(all), "permission") + " needed, all given"
	if denied > 0 {
		summary = fmt.Sprintf("%s needed, %d missing", count(len(all), "permission"), denied)
	}
	d.details(summary, func() {
		d.table("", "Change", "Permission", "By")
		for _, x := range all {
			mark, by := "✓", prose(short(x.Reason, maxValue))
			if !x.Allowed {
				mark = "**✗**"
			}
			if x.Allowed {
				by = code(x.By) + " as " + code(x.Role)
				if x.Source.File != "" {
					by += " (" + code(place(x.Source.File, x.Source.Line, 0)) + ")"
				}
			}
			d.row(mark, prose(short(x.Why, maxValue)), code(string(x.Permission)), by)
		}
	})
}
