package loop

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
)

func isWaiting(o plan.Outcome) bool { return o.State == plan.Waiting }

// waitReasons returns what the actions that wait are waiting for.
func waitReasons(outcomes []plan.Outcome) string {
	var reasons []string
	for _, o := range outcomes {
		if isWaiting(o) {
			reasons = append(reasons, strings.TrimSuffix(o.Error, ": "+runtimes.ErrWaiting.Error()))
		}
	}
	const most = 3
	if len(reasons) > most {
		reasons = append(reasons[:most], fmt.Sprintf("and %d more", len(reasons)-most))
	}
	return strings.Join(reasons, "; ")
}

// repeats returns true if after contains an action that p executed with success.
func repeats(after, p plan.Plan, outcomes []plan.Outcome) bool {
	for i, o := range outcomes {
		if o.State == plan.Done && p.Actions[i].Operation == nil &&
			slices.ContainsFunc(after.Actions, func(a plan.Action) bool { return a.ID == p.Actions[i].ID }) {
			return true
		}
	}
	return false
}

// nextRetry counts one more failure: 5 s doubling to 120 s, terminal after max
// attempts (requirement E6). left is the plan that remains.
func nextRetry(prev *plan.Retry, reason string, left plan.Plan, now time.Time, max int) *plan.Retry {
	n := 1
	if prev != nil {
		n = prev.Attempts + 1
	}
	delay := min(5*time.Second<<min(n-1, 10), 120*time.Second)
	return &plan.Retry{Attempts: n, Next: now.Add(delay).UTC().Truncate(time.Second), Reason: reason, Terminal: n >= max,
		Plan: left.Digest, Actions: len(left.Actions)}
}

func hasFailed(os []plan.Outcome) bool { return firstFailure(os) != "" }

// firstFailure describes the first action that failed; "": none did.
func firstFailure(os []plan.Outcome) string {
	for _, o := range os {
		if o.State == plan.Failed || o.State == plan.Uncertain {
			return strings.TrimSpace(fmt.Sprintf("%s %s: %s", o.Verb, o.Member, o.Error))
		}
	}
	return ""
}
