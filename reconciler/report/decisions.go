package report

import (
	"fmt"
	"strings"

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

// impacted lists the running instances that a change of policy concerns.
func (d *doc) impacted(all []schema.Noncompliance) {
	if len(all) == 0 {
		return
	}
	d.line("**Policy and what is there already**", "")
	d.table("Instance", "What becomes of it", "Because")
	for _, n := range all {
		what := prose(fate(n))
		if n.Fate == schema.FateStopping || n.Fate == schema.FateStopped {
			what = "**" + what + "**"
		}
		var rules []string
		for _, x := range n.Because {
			rules = append(rules, fmt.Sprintf("%s (%s, %s)", prose(short(x.Message, maxValue)), code(x.Rule), code(place(x.Source.File, x.Source.Line, 0))))
		}
		d.row(code(unitName(n.Key)), what, strings.Join(rules, "; "))
	}
	d.line("")
}

// glass says plainly where somebody of the platform acts in a tenant's place.
func (d *doc) glass(all []authority.Decision) {
	var lines []string
	for _, x := range all {
		if x.Allowed && x.BreakGlass {
			lines = append(lines, fmt.Sprintf("- %s, by %s as %s", prose(x.Why), code(x.By), code(x.Role)))
		}
	}
	if len(lines) > 0 {
		d.line("**Breaks the glass:** the platform acts in a tenant's place, which is audited", "")
		d.line(lines...)
		d.line("")
	}
}

// rights folds away which permission each change needs and who has it.
func (d *doc) rights(all []authority.Decision) {
	if len(all) == 0 {
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
