package loop

import (
	"context"
	"slices"
	"strings"
	"sync"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// journal reports the actions on a unit to the rollout of its commit and to the audit
// log. The intent of an action is in the host's ledger before it has an effect.
type journal struct {
	*recorder
	unit          *plan.Status // when the actions started
	credential    runtimes.Credential
	attempt       int
	noncompliance *schema.Noncompliance
	isKept        bool   // the plan repairs the applied state and does not apply the commit
	openUsage     string // first day with usage that an operation may give up; "": none does

	operations []plan.Operation // on the unit

	mu    sync.Mutex
	steps map[string]string          // description of each started action, by its id
	of    map[string]*plan.Operation // operation of each started action that has one, by its id
}

// Begin reports that an action starts.
func (j *journal) Begin(_ context.Context, a plan.Action) error {
	step := strings.TrimSpace(string(a.Verb) + " " + a.Member)
	if a.Node != "" {
		step += " on " + a.Node
	}
	j.mu.Lock()
	j.steps[a.ID] = step
	if i := slices.IndexFunc(j.operations,
		func(o plan.Operation) bool { return a.Operation != nil && o.ActionID() == a.Operation.ID }); i >= 0 {
		j.of[a.ID] = &j.operations[i]
	}
	j.mu.Unlock()
	if !j.isKept {
		j.pulls.RollOuts.At(j.unit.Revision, j.unit.Key, step)
		j.pulls.Touched(j.unit.Revision)
	}
	return nil
}

// End reports the outcome of an action.
func (j *journal) End(_ context.Context, o plan.Outcome) error {
	j.mu.Lock()
	step, operation := j.steps[o.ActionID], j.of[o.ActionID]
	j.mu.Unlock()
	switch {
	case j.isKept:
	case o.State == plan.Done:
		j.pulls.RollOuts.Done(j.unit.Revision, j.unit.Key)
	case step != "":
		j.pulls.RollOuts.At(j.unit.Revision, j.unit.Key, step)
	}
	if o.State == plan.Done || o.State == plan.Failed || o.State == plan.Uncertain {
		record := effectRecord(j.unit, j.credential, o, j.attempt, j.noncompliance, j.now())
		if operation != nil {
			record.CorrelationID, record.Change.Commit = operation.CorrelationID, operation.Revision
			record.Reason += "; operation " + operation.Name + requestedBy(operation.RequestedBy)
			if o.Verb == plan.AbandonUsage {
				record.Reason += "; usage of jobs since " + j.openUsage + " that berth/status lacks is given up"
			}
		}
		j.status.Record(record)
	}
	j.pulls.Touched(j.unit.Revision)
	return nil
}

// requestedBy names who asked for an operation, if known.
func requestedBy(who string) string {
	if who == "" {
		return ""
	}
	return " of " + who
}

// hasStarted returns true if an action was started.
func (j *journal) hasStarted() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.steps) > 0
}
