package loop

import (
	"fmt"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// Left is a document or unit that has not converged, and the reason.
type Left struct {
	What  string
	Stuck bool // waiting does not help: it needs another commit, or a person
}

// Unsettled lists everything that has not converged, by unit. Nil: every commit is
// decided, every unit was reconciled and converged, and everything is written.
func (r *Reconciler) Unsettled() []Left {
	var out []Left
	st, _, frozen := r.inForce.get()
	if st != nil && st.Paused != "" {
		out = append(out, Left{What: "Berth is paused: " + st.Paused, Stuck: true})
	}
	switch err := r.inForce.repositoryError(); {
	case frozen != "":
		out = append(out, Left{What: "synchronization is frozen: " + frozen, Stuck: true})
	case r.inForce.known():
	case err != nil:
		return []Left{{What: err.Error()}}
	default:
		return []Left{{What: "no commit has been decided yet"}}
	}
	for _, h := range r.status.Revision().Held {
		out = append(out, Left{What: fmt.Sprintf("%s is held (%s): %s", h.File, h.Why(), h.Message), Stuck: true})
	}
	units := r.status.Units()
	for _, k := range units.Keys() {
		var want *schema.EffectiveUnit
		if st != nil {
			want = st.Unit(k)
		}
		if !r.units.isReconciled(k) {
			out = append(out, Left{What: k.String() + ": not observed yet"})
		} else if l := unsettledUnit(units.Get(k), want); l != nil {
			out = append(out, *l)
		}
	}
	if out == nil && !r.status.IsWritten() {
		out = append(out, Left{What: "status is not written yet"})
	}
	return out
}

// unsettledUnit returns the reason why a unit is not converged, or nil. A suspended
// unit is converged.
func unsettledUnit(s *plan.Status, want *schema.EffectiveUnit) *Left {
	l := describeUnsettled(s)
	switch {
	case want == nil:
	case want.Suspend, s.Settled() && s.Retry == nil && isInState(s, want.DesiredState):
		return nil
	}
	return &l
}

// isInState returns true if a unit is in its desired state.
func isInState(s *plan.Status, desired schema.DesiredState) bool {
	if desired == schema.DesiredStopped {
		return s.Phase == plan.PhaseStopped
	}
	return s.Phase == plan.PhaseRunning
}

// describeUnsettled describes a unit's phase, and its failure or reason to wait.
func describeUnsettled(s *plan.Status) Left {
	why := s.FailureReason
	for _, typ := range []plan.ConditionType{plan.ConditionReady, plan.ConditionDegraded} {
		if c := s.Condition(typ); why == "" && c != nil {
			why = c.Message
		}
	}
	what := strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", s.Key, s.Phase, why), ": ")
	return Left{What: what, Stuck: s.Condition(plan.ConditionStalled).Is(plan.ConditionTrue)}
}
