package loop

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
)

// unitView is all that is known of one unit at the end of a pass; the status
// is computed from it once, in one place.
type unitView struct {
	prev      *plan.Status              // as remembered; never nil
	want      *schema.EffectiveInstance // nil: the unit is to go
	members   []plan.Member             // placement
	plan      plan.Plan                 // what is still to do, from observed
	observed  plan.Observed
	outcomes  []plan.Outcome        // of this pass; nil: nothing was applied
	acting    bool                  // the plan is about to be applied
	pending   bool                  // decided, and not looked at since
	refused   *schema.Noncompliance // what policy no longer allows of it, and what becomes of it; nil: it complies
	denied    string                // why a change of the unit's document waits for somebody's right
	paused    string                // why nothing may be done
	waits     string                // what holds up the plan that is applied, such as jobs
	retry     *plan.Retry
	review    *plan.UnitReview // what of its review is awaited
	attempt   int
	suspended *plan.Condition // nil: it never was
	applied   string          // digest of the plan that brought the unit here, if one did now
}

// status computes what berth/status shall say. Pure.
func (v unitView) status() plan.Status {
	s := *v.prev
	s.APIVersion, s.Kind = schema.APIVersion, "InstanceStatus"
	s.Attempt, s.Retry, s.Review = v.attempt, v.retry, v.review.Offered(v.prev.Review)
	if v.want != nil {
		s.UID, s.App, s.RuntimeBackend = v.want.UID, v.want.App, v.want.RuntimeBackend
		s.OperatingMode, s.ControlPlaneScope = v.want.OperatingMode, v.want.ControlPlaneScope
	}
	if v.observed.Presence != plan.Unknown {
		o := plan.Structural(v.observed)
		s.Observed = &o
	}
	if len(v.observed.RuntimeState) > 0 {
		s.RuntimeState = v.observed.RuntimeState
	}
	s.Members = v.memberStatuses()
	s.Phase = v.phase()
	s.FailureReason = v.failure()
	s.Digest = cmp.Or(v.applied, s.Digest)
	s.Conditions = v.conditions(s.Phase, s.Revision, s.FailureReason)
	return s
}

// phase follows the state machine of requirement A5. A unit that failed stays
// failed until it is well: its retries are told by Retry, not by a flicker.
func (v unitView) phase() plan.Phase {
	switch {
	case v.want == nil:
		if v.observed.Presence == plan.Absent {
			return plan.PhaseDeleted
		}
		return plan.PhaseDeleting
	case v.observed.Presence == plan.Unknown:
		return v.prev.Phase
	case v.converged():
		if v.want.DesiredState == schema.DesiredStopped {
			return plan.PhaseStopped
		}
		return plan.PhaseRunning
	case hasFailed(v.outcomes), v.prev.Phase == plan.PhaseFailed:
		return plan.PhaseFailed
	case !v.acting:
		return v.prev.Phase
	case v.observed.Presence == plan.Absent, !v.observed.Complete:
		return plan.PhaseDeploying
	default:
		return plan.PhaseUpdating
	}
}

// converged: the unit is what it shall be.
func (v unitView) converged() bool {
	return !v.pending && v.observed.Presence == plan.Present && len(v.plan.Actions) == 0 && len(v.plan.Blocked) == 0
}

func hasFailed(os []plan.Outcome) bool {
	return slices.ContainsFunc(os, func(o plan.Outcome) bool { return o.State == plan.Failed || o.State == plan.Uncertain })
}

// failure is the first thing that went wrong.
func (v unitView) failure() string {
	for _, o := range v.outcomes {
		if o.State == plan.Failed || o.State == plan.Uncertain {
			return strings.TrimSpace(fmt.Sprintf("%s %s: %s", o.Verb, o.Member, o.Error))
		}
	}
	if v.converged() || (v.want == nil && v.observed.Presence == plan.Absent) {
		return ""
	}
	return v.prev.FailureReason
}

func (v unitView) memberStatuses() []plan.MemberStatus {
	seen := map[string]plan.MemberState{}
	for _, m := range v.observed.Members {
		seen[m.Name] = m
	}
	remembered := map[string]plan.MemberStatus{}
	for _, m := range v.prev.Members {
		remembered[m.Name] = m
	}
	var out []plan.MemberStatus
	put := func(m plan.Member) {
		ms := plan.MemberStatus{Member: m, Placed: m.Reason}
		ms.Reason = ""
		if ms.Placed == "" && remembered[m.Name].Node == m.Node {
			ms.Placed = remembered[m.Name].Placed
		}
		if o, ok := seen[m.Name]; ok && o.Node == m.Node {
			ms.State = o.State
		} else if v.observed.Presence == plan.Unknown && remembered[m.Name].Node == m.Node {
			ms.State = remembered[m.Name].State
		}
		out = append(out, ms)
		delete(seen, m.Name)
	}
	if v.want != nil {
		for _, m := range v.members {
			put(m)
		}
	}
	// Members that are still there but shall not be stay in sight, and keep
	// their node, until they are gone.
	if u := v.observed.Unit; u != nil {
		for _, m := range u.Members {
			if _, ok := seen[m.Name]; ok {
				put(m)
			}
		}
	} else if v.observed.Presence == plan.Unknown && v.want == nil {
		out = v.prev.Members
	}
	return out
}

func (v unitView) conditions(phase plan.Phase, revision, failure string) []plan.Condition {
	var cs []plan.Condition
	add := func(typ string, yes bool, reason, message string) {
		status := "False"
		if yes {
			status = "True"
		}
		cs = append(cs, plan.Condition{Type: typ, Status: status, Reason: reason, Message: message, Revision: revision})
	}
	unknown := func(typ, reason, message string) {
		cs = append(cs, plan.Condition{Type: typ, Status: "Unknown", Reason: reason, Message: message, Revision: revision})
	}
	var blocked *plan.Blocked
	if len(v.plan.Blocked) > 0 {
		blocked = &v.plan.Blocked[0]
	}
	terminal := v.retry != nil && v.retry.Terminal
	stalled := terminal || v.paused != "" || (blocked != nil && !blocked.Wait)

	switch {
	case v.observed.Presence == plan.Unknown:
		unknown("Ready", "ObservationUnknown", v.observed.Reason)
	case v.paused != "":
		add("Ready", false, "Paused", "Berth is paused: "+v.paused)
	case v.pending:
		unknown("Ready", "NotObserved", "not looked at since this change")
	case v.converged() && v.refused != nil && v.refused.Fate == schema.FateStopped:
		add("Ready", false, "StoppedByPolicy", fateMessage(v.refused))
	case v.converged():
		add("Ready", phase == plan.PhaseRunning, reasonOf(phase), "")
	case failure != "":
		add("Ready", false, "Failed", failure)
	case v.waits != "":
		add("Ready", false, reasonWaiting, v.waits)
	case blocked != nil:
		add("Ready", false, "Blocked", blocked.Message)
	default:
		add("Ready", false, reasonOf(phase), "")
	}
	settled := v.converged() || stalled || phase == plan.PhaseDeleted
	if settled {
		add("Reconciling", false, reasonOf(phase), "")
	} else {
		reason := "Progressing"
		if v.retry != nil {
			reason = "ProgressingWithRetry"
		}
		add("Reconciling", true, reason, actionsLine(v.plan.Actions))
	}
	switch {
	case terminal:
		add("Stalled", true, "RetriesExhausted", v.retry.Reason)
	case v.paused != "":
		add("Stalled", true, "Paused", v.paused)
	case stalled:
		add("Stalled", true, blocked.Code, blocked.Message)
	default:
		add("Stalled", false, "None", "")
	}
	if v.denied != "" {
		add("Authorized", false, "Held", v.denied)
	} else {
		add("Authorized", true, "Permitted", "")
	}
	if v.want != nil {
		denied := slices.IndexFunc(v.plan.Blocked, func(b plan.Blocked) bool { return strings.HasPrefix(b.Code, "policy.") })
		switch {
		case v.refused != nil:
			add("PolicyCompliant", false, fateReason(v.refused), fateMessage(v.refused))
		case denied >= 0:
			add("PolicyCompliant", false, v.plan.Blocked[denied].Code, v.plan.Blocked[denied].Message)
		default:
			add("PolicyCompliant", true, "Allowed", "")
		}
		unplaced := slices.IndexFunc(v.plan.Blocked, func(b plan.Blocked) bool { return strings.HasPrefix(b.Code, "place.") })
		if unplaced >= 0 {
			add("Scheduled", false, v.plan.Blocked[unplaced].Code, v.plan.Blocked[unplaced].Message)
		} else {
			add("Scheduled", true, "Placed", "")
		}
		if v.suspended != nil {
			cs = append(cs, *v.suspended)
		}
	}
	if len(v.observed.Drift) > 0 {
		d := v.observed.Drift[0]
		add("DriftDetected", true, d.What, strings.TrimSpace(d.Member+" "+d.Detail))
	}
	slices.SortFunc(cs, func(a, b plan.Condition) int { return strings.Compare(a.Type, b.Type) })
	return cs
}

// fateReason is what becomes of what policy no longer allows, as a reason.
func fateReason(n *schema.Noncompliance) string {
	switch n.Fate {
	case schema.FateStopping:
		return "Grace"
	case schema.FateStopped:
		return "Stopped"
	}
	return "Held"
}

// fateMessage says what becomes of it, by which policy, and why.
func fateMessage(n *schema.Noncompliance) string {
	var b strings.Builder
	switch n.Fate {
	case schema.FateStopping:
		fmt.Fprintf(&b, "goes on until %s, then it is stopped", n.Day)
	case schema.FateStopped:
		fmt.Fprintf(&b, "is stopped, as its grace ended on %s", n.Day)
	default:
		b.WriteString("goes on as it is; changes that do not comply are held")
	}
	if n.Source != nil {
		fmt.Fprintf(&b, " (%s)", place(*n.Source))
	}
	for _, d := range n.Because {
		fmt.Fprintf(&b, "; %s (%s, %s)", d.Message, d.Rule, place(d.Source))
	}
	return b.String()
}

// reasonWaiting is Ready's reason while jobs or a drain hold a plan up.
const reasonWaiting = "Waiting"

// waitsFor is what a status says that its unit waits for, or "".
func waitsFor(s *plan.Status) string {
	for _, c := range s.Conditions {
		if c.Type == "Ready" && c.Reason == reasonWaiting {
			return c.Message
		}
	}
	return ""
}

func reasonOf(p plan.Phase) string {
	return strings.ToUpper(string(p[:1])) + string(p[1:])
}

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

// nextRetry counts one more failure: 5 s doubling to 120 s, terminal after
// max tries (requirement E6).
func nextRetry(prev *plan.Retry, reason string, now time.Time, max int) *plan.Retry {
	n := 1
	if prev != nil {
		n = prev.Attempts + 1
	}
	delay := 5 * time.Second << min(n-1, 10)
	delay = min(delay, 120*time.Second)
	return &plan.Retry{Attempts: n, Next: now.Add(delay).UTC().Truncate(time.Second), Reason: reason, Terminal: n >= max}
}
