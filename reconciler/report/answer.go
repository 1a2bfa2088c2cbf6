package report

import (
	"fmt"
	"strings"

	"berth/reconciler/plan"
	"berth/schema/policy"
)

// Answer is what is said to a command in a comment, as Markdown. e is what
// policy says of the instance, for plan.AnswerExplain; else nil.
func Answer(a plan.Answer, e *policy.Explanation) string {
	var d doc
	d.line(fmt.Sprintf("%s asked %s: %s", code(a.To), code(short(a.Said, maxValue)), prose(short(a.Why, 1000))), "")
	if e != nil {
		for _, v := range e.Values {
			if a.Field == "" || v.Field == a.Field || strings.HasPrefix(v.Field, a.Field+".") {
				d.line(fmt.Sprintf("- %s: %s", code(v.Field), code(short(policy.Text(v.Value), maxValue))))
			}
		}
	}
	return d.cut(MaxMarkdown, "", "berth explain")
}
