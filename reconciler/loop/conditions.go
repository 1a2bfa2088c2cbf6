package loop

import (
	"fmt"
	"strings"

	"berth/reconciler/plan"
)

// reasonWaiting is Ready's reason while a plan waits for jobs or a drain.
const reasonWaiting = "Waiting"

// conditionList builds the conditions of one revision.
type conditionList struct {
	revision string
	list     []plan.Condition
}

func (l *conditionList) add(typ, status, reason, message string) {
	l.list = append(l.list, plan.Condition{Type: typ, Status: status, Reason: reason, Message: message, Revision: l.revision})
}

func (l *conditionList) set(typ string, is bool, reason, message string) {
	status := "False"
	if is {
		status = "True"
	}
	l.add(typ, status, reason, message)
}

// setAuthorized sets the condition Authorized. denied is the reason why a change of
// the document lacks a permission; "": none does.
func (l *conditionList) setAuthorized(denied string) {
	if denied != "" {
		l.set("Authorized", false, "Held", denied)
	} else {
		l.set("Authorized", true, "Permitted", "")
	}
}

// reasonOf returns the reason that names a phase.
func reasonOf(p plan.Phase) string {
	return strings.ToUpper(string(p[:1])) + string(p[1:])
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
