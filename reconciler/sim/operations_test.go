package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"berth/reconciler/plan"
	"berth/schema"
)

// operation is the operation on a member that main asks for; the zero value is none. It goes with the next change of its unit.
type operation struct {
	number int // of the operations so far
	unit   int
	verb   plan.Verb
	member string // "": the whole unit
}

func (o operation) key() schema.Key {
	return schema.Key{Kind: schema.KindMemberOperation, Tenant: "physics", Project: "lab", Name: fmt.Sprint("operation-", o.number)}
}

func (o operation) files() map[string]string {
	if o.verb == "" {
		return nil
	}
	member := ""
	if o.member != "" {
		member = "member: " + o.member + ", "
	}
	return map[string]string{"tenants/physics/projects/lab/operations/" + o.key().Name + ".yaml": fmt.Sprintf(`apiVersion: berth/v1
kind: MemberOperation
metadata: {name: %s}
spec: {instance: unit-%d, operation: %s, %sreason: a fan is loud}
`, o.key().Name, o.unit, o.verb, member)}
}

// operate draws the next operation, on a member that main declares. The caller has the lock.
func (s *simulation) operate(r *rand.Rand) {
	verb, unit, worker := []plan.Verb{plan.Restart, plan.Drain, plan.Replace}[r.IntN(3)], r.IntN(instances), r.IntN(2)
	w := s.want.wishes[unit]
	if !w.exists || w.stopped || w.workers <= worker {
		return
	}
	s.ask(operation{s.want.number + 1, unit, verb, fmt.Sprint("worker-", worker)})
	s.tracef("merge: %s %s of unit-%d: %s", verb, s.want.member, unit, s.remote.merge(s.want.tree()))
}

// checkOperation: an operation that is over on berth/status has no further effect (I14).
func (s *simulation) checkOperation(e effect) {
	op := e.action.Operation
	if op == nil || len(s.remote.statuses) == 0 {
		return
	}
	key := schema.Key{Kind: schema.KindMemberOperation, Tenant: "physics", Project: "lab", Name: op.Name}
	if t := last(s.remote.statuses).Things[key]; isOver(t) {
		s.violate("I14", "%s of %s for %s, which is %s", e.action.Verb, e.unit, key, t.Phase)
	}
}

func isOver(t *plan.ThingStatus) bool {
	if t == nil {
		return false
	}
	switch plan.OperationPhase(t.Phase) {
	case plan.OperationDone, plan.OperationFailed, plan.OperationExpired:
		return true
	}
	return false
}

// hasFreeNode reports whether a node for workers has no member. A stopped unit keeps the nodes of members that main no
// longer declares. The caller has the lock.
func (s *simulation) hasFreeNode() bool {
	used := map[string]bool{}
	for _, u := range last(s.remote.statuses).Units.All() {
		for _, m := range u.Members {
			used[m.Node] = true
		}
		if u.Observed != nil && u.Observed.Unit != nil {
			for _, m := range u.Observed.Unit.Members {
				used[m.Node] = true
			}
		}
	}
	return slices.ContainsFunc(nodeNames()[1:], func(n string) bool { return !used[n] })
}

// pending returns the operation that is not over; "" if there is none. The caller has the lock.
func (s *simulation) pending() string {
	if s.want.verb == "" || s.want.verb == plan.Hold || s.want.verb == plan.Replace && !s.hasFreeNode() {
		return ""
	}
	t := last(s.remote.statuses).Things[s.want.operation.key()]
	if isOver(t) {
		return ""
	}
	return fmt.Sprintf("%s of %s should be over: %+v", s.want.verb, s.want.member, t)
}
