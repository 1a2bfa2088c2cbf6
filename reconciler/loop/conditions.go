package loop

import (
	"fmt"
	"strings"

	"berth/reconciler/plan"
)

// conditionList builds the conditions of one revision.
type conditionList struct {
	revision string
	list     []plan.Condition
}

func (l *conditionList) add(typ plan.ConditionType, status plan.ConditionStatus, reason plan.Reason, message string) {
	l.list = append(l.list, plan.Condition{Type: typ, Status: status, Reason: reason, Message: message, Revision: l.revision})
}

func (l *conditionList) set(typ plan.ConditionType, is bool, reason plan.Reason, message string) {
	l.add(typ, plan.StatusOf(is), reason, message)
}

// setAuthorized sets the condition Authorized. denied is the reason why a change of
// the document lacks a permission; "": none does.
func (l *conditionList) setAuthorized(denied string) {
	if denied != "" {
		l.set(plan.ConditionAuthorized, false, plan.ReasonHeld, denied)
	} else {
		l.set(plan.ConditionAuthorized, true, plan.ReasonPermitted, "")
	}
}

// actionsLine describes actions in one line.
func actionsLine(as []plan.Action) string {
	var words []string
	for i, a := range as {
		if i == 4 {
			words = append(words, fmt.Sprintf("and %d more", len(as)-i))
			break
		}
		words = append(words, strings.TrimSpace(string(a.Verb)+" "+a.Member))
	}
	return strings.Join(words, ", ")
}
