package report

import (
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema/policy"
)

// Answer is the part of the comment that answers a command, as Markdown. e is
// what policy makes of the instance, for plan.AnswerExplain; else nil.
func Answer(a plan.Answer, e *policy.Explanation) string {
	var d doc
	d.line(fmt.Sprintf("### %s", code(short(a.Said, 120))), "")
	switch a.Kind {
	case plan.AnswerExplain:
		d.explain(&a, e)
	case plan.AnswerHelp:
		d.help()
	case plan.AnswerRefused:
		d.line("**Not done:** "+prose(short(a.Why, 1000))+".", "")
	case plan.AnswerStale:
		d.line(fmt.Sprintf("**Not done:** it names %s, and %s is what there is now. %s", code(commit(a.Given)), code(commit(a.Now)), prose(short(a.Why, 1000))), "")
		d.line("→ look at the plan as it is now; if that is meant, name "+code(commit(a.Now)), "")
	default:
		d.line("**Nothing to do:** "+prose(short(a.Why, 1000))+".", "")
		d.help()
	}
	return d.cut(maxPart, "<sub>To "+code(a.To)+"</sub>", short(strings.TrimSpace("berth explain "+unitName(a.Instance)+" "+clean(a.Field)), maxValue))
}

// help is the commands, what each needs and does.
func (d *doc) help() {
	d.table("Command", "Who", "What it does")
	for _, r := range [][3]string{
		{"/berth plan", "who may write, and the author", "makes the plan again and shows it, whatever was shown"},
		{"/berth apply COMMIT", "who may write and has the right to the change", "after a merge: does what is held because it is not what was reviewed; COMMIT is the merge's"},
		{"/berth ack-delete DIGEST", "who may write and has the right deletions.acknowledge", "says that just this large deletion is meant, before or after the merge"},
		{"/berth retry", "who may write and has the right to the change", "after a merge: tries again what gave up"},
		{"/berth explain INSTANCE [FIELD]", "who may read", "shows each value and the line that made it; INSTANCE is TENANT.PROJECT/NAME"},
		{"/berth help", "who may read", "shows this"},
	} {
		d.row(code(r[0]), prose(r[1]), prose(r[2]))
	}
	d.line("", "The first line of a new comment counts; an edited one is never a command.", "")
}

// maxExplained is how many values an answer explains.
const maxExplained = 60

// explain shows values and the layers that made them.
func (d *doc) explain(a *plan.Answer, e *policy.Explanation) {
	if e == nil {
		d.line("**There is no valid "+prose(a.Instance.String())+"**: the findings tell what is wrong with it.", "")
		return
	}
	d.line(fmt.Sprintf("%s is **%s**.", code(unitName(e.Key)), prose(judged(e))), "")
	values := slices.DeleteFunc(slices.Clone(e.Values), func(v policy.Value) bool {
		return a.Field != "" && v.Field != a.Field && !strings.HasPrefix(v.Field, a.Field+".")
	})
	if len(values) == 0 {
		d.line("It has no "+code(a.Field)+". There is: "+list(fieldsOf(e), 30)+".", "")
		return
	}
	for i, v := range values {
		if i == maxExplained {
			d.line(fmt.Sprintf("- and %d more values: name a FIELD", len(values)-i))
			break
		}
		is := fmt.Sprintf("- %s is %s", code(v.Field), code(short(policy.Text(v.Value), maxValue)))
		if v.Asked != nil {
			is += ", asked was " + code(short(policy.Text(v.Asked), maxValue))
		}
		d.line(is)
		for _, s := range v.Steps {
			line := fmt.Sprintf("  - %s says %s (%s)", word(string(s.Scope)), code(short(policy.Text(s.Says), maxValue)), code(place(s.Source.File, s.Source.Line, 0)))
			if after := policy.Text(s.Value); after != policy.Text(s.Says) {
				line += ", leaves " + code(short(after, maxValue))
			}
			d.line(line)
		}
		for _, x := range v.Decisions {
			d.line(fmt.Sprintf("  - **%s**: %s (%s)", word(string(x.Verdict)), prose(short(x.Message, maxValue)), code(place(x.Source.File, x.Source.Line, 0))))
		}
	}
	d.line("")
}

// judged is what becomes of an instance under its policies, in words.
func judged(e *policy.Explanation) string {
	switch {
	case e.Noncompliance != nil:
		return "refused: it " + fate(*e.Noncompliance)
	case e.Denied:
		return "refused"
	}
	return "allowed"
}

// fieldsOf are the first parts of the fields that can be asked for.
func fieldsOf(e *policy.Explanation) []string {
	var out []string
	for _, v := range e.Values {
		top, _, _ := strings.Cut(v.Field, ".")
		if c := code(top); !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}
