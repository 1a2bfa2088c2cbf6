package report

import (
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema/policy"
)

// Answer returns the answer to a command as Markdown: one line above the plan, and
// details below it, which may be "". e explains the instance of a plan.AnswerExplain;
// nil if no valid document declares it.
func Answer(a plan.Answer, e *policy.Explanation) (line, details string) {
	said, to, why := code(short(a.Said, 120)), code(short(a.To, 60)), prose(short(a.Why, maxValue*2))
	d := &page{links: &links{}}
	switch a.Kind {
	case plan.AnswerExplain:
		if e == nil {
			return fmt.Sprintf("✗ %s: no valid document declares %s; check the name, or fix the errors in its document", said,
				prose(short(a.Instance.String(), 200))), ""
		}
		line = fmt.Sprintf("✓ %s: %s is %s, explained below for %s", said, unitCode(e.Key), prose(compliance(e)), to)
		d.section(htmlCode(short(a.Said, 120)), func() { d.explain(&a, e) })
	case plan.AnswerHelp:
		line = fmt.Sprintf("✓ %s: the commands are listed below for %s", said, to)
		d.section(htmlCode(short(a.Said, 120)), func() { d.help(a.Commands) })
	case plan.AnswerRepeat:
		line = fmt.Sprintf("✗ %s by %s: nothing is done yet, %s; read the plan below, then repeat the command", said, to, why)
		if a.Proposal != nil {
			d = newPage(a.Proposal, &plan.PullContext{})
			d.repeat(&a)
		}
	case plan.AnswerDone:
		line = fmt.Sprintf("✓ %s: %s by %s", said, prose(short(a.Did, maxValue)), to)
		if why != "" {
			line += "; " + why
		}
		return line, ""
	default:
		return fmt.Sprintf("✗ %s by %s: %s", said, to, why), ""
	}
	return line, d.cut(maxPart, "", short(strings.TrimSpace("berth explain "+unitName(a.Instance)+" "+clean(a.Field)), maxValue))
}

// repeat shows the plan of a command that a user must repeat to confirm it.
func (d *page) repeat(a *plan.Answer) {
	d.line(fmt.Sprintf("### Plan of %s", code(short(a.Said, 120))), "")
	if isQuiet(d.p, d.c) {
		d.line(quietVerdict(d.p), "")
	} else {
		d.overview()
		d.allSteps()
	}
	d.documents()
	var left entries
	for _, h := range a.Left {
		left.add(d.place(h.File, 0, 0), prose(h.Message), "")
	}
	d.list("Still held", left)
	d.line("<sub>"+origin(d.p)+"</sub>", "")
}

// help writes the table of commands.
func (d *page) help(commands []plan.CommandHelp) {
	d.table("Command", "Who", "Effect")
	for _, c := range commands {
		d.row(code(c.Usage), prose(c.Who), prose(c.Help))
	}
	d.line("", "A command is the first line of a new comment. Edited commands are not read.", "")
}

// maxExplained limits the values that an answer explains.
const maxExplained = 60

// explain lists values and the layers that set them.
func (d *page) explain(a *plan.Answer, e *policy.Explanation) {
	d.line(fmt.Sprintf("%s is **%s**.", unitCode(e.Key), prose(compliance(e))), "")
	values := slices.DeleteFunc(slices.Clone(e.Values), func(v policy.Value) bool {
		return a.Field != "" && v.Field != a.Field && !strings.HasPrefix(v.Field, a.Field+".")
	})
	if len(values) == 0 {
		d.line("It has no field "+code(a.Field)+". Its fields: "+list(fieldsOf(e), 30)+".", "")
		return
	}
	for i, v := range values {
		if i == maxExplained {
			d.line(fmt.Sprintf("- and %d more values: name a FIELD", len(values)-i))
			break
		}
		is := fmt.Sprintf("- %s is %s", code(v.Field), code(short(policy.Text(v.Value), maxValue)))
		if v.Asked != nil {
			is += ", requested was " + code(short(policy.Text(v.Asked), maxValue))
		}
		d.line(is)
		for _, s := range v.Steps {
			line := fmt.Sprintf("  - %s sets %s (%s)", word(string(s.Scope)), code(short(policy.Text(s.Says), maxValue)),
				code(place(s.Source.File, s.Source.Line, 0)))
			if after := policy.Text(s.Value); after != policy.Text(s.Says) {
				line += ", result " + code(short(after, maxValue))
			}
			d.line(line)
		}
		for _, x := range v.Decisions {
			d.line(fmt.Sprintf("  - **%s**: %s (%s)", word(string(x.Verdict)), prose(short(x.Message, maxValue)),
				code(place(x.Source.File, x.Source.Line, 0))))
		}
	}
	d.line("")
}

// compliance describes the policy decision about an instance.
func compliance(e *policy.Explanation) string {
	switch {
	case e.Noncompliance != nil:
		return "denied: it " + fate(*e.Noncompliance)
	case e.Denied:
		return "denied"
	}
	return "allowed"
}

// fieldsOf returns the first parts of the fields that can be explained.
func fieldsOf(e *policy.Explanation) []string {
	var out []string
	for _, v := range e.Values {
		top, _, _ := strings.Cut(v.Field, ".")
		out = withNew(out, code(top))
	}
	return out
}
