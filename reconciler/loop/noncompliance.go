package loop

import (
	"fmt"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// fateReason returns the reason of the condition of a unit that breaks a policy.
func fateReason(n *schema.Noncompliance) plan.Reason {
	switch n.Fate {
	case schema.FateStopping:
		return plan.ReasonGrace
	case schema.FateStopped:
		return plan.ReasonStopped
	}
	return plan.ReasonHeld
}

// fateMessage describes the consequence for a unit that breaks a policy, the policy
// and the reason.
func fateMessage(n *schema.Noncompliance) string {
	var b strings.Builder
	switch n.Fate {
	case schema.FateStopping:
		fmt.Fprintf(&b, "goes on until %s, then it is stopped", n.Day)
	case schema.FateStopped:
		fmt.Fprintf(&b, "is stopped, as its grace ended on %s", n.Day)
	default:
		b.WriteString("continues unchanged; changes that do not comply are held")
	}
	if n.Source != nil {
		fmt.Fprintf(&b, " (%s)", n.Source.Place())
	}
	for _, d := range n.Because {
		fmt.Fprintf(&b, "; %s (%s, %s)", d.Message, d.Rule, d.Source.Place())
	}
	return b.String()
}
