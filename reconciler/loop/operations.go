package loop

import (
	"slices"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// operationsOf returns the operations on a unit. A new one has the revision of the status.
func operationsOf(st *reconciler.State, s *plan.Status, now time.Time) []plan.Operation {
	all := plan.Operations(st.Effective.Operations(s.Key), s.Operations, now)
	if st.Unit(s.Key) == nil {
		all = append(all, plan.RunningHolds(s.Operations)...)
	}
	for i := range all {
		if o := &all[i]; !o.IsRequest && o.Revision == "" {
			o.Revision, o.CorrelationID = s.Revision, s.CorrelationID
		}
	}
	return all
}

// newOperations returns the documents in force whose operations a unit's status does not have.
func newOperations(st *reconciler.State, s *plan.Status, key schema.Key) []*schema.MemberOperation {
	docs := st.Effective.Operations(key)
	if s == nil {
		return docs
	}
	return slices.DeleteFunc(slices.Clone(docs), func(d *schema.MemberOperation) bool {
		return slices.ContainsFunc(s.Operations, func(o plan.Operation) bool { return !o.IsRequest && o.ID == d.ID() })
	})
}

// operationKey returns the key of an operation on a unit.
func operationKey(unit schema.Key, name string) schema.Key {
	k := schema.Key{Kind: schema.KindMemberOperation, Tenant: unit.Tenant, Project: unit.Project, Name: name}
	if unit.Kind == schema.KindSharedRuntime {
		k.Parent = unit.Name
	}
	return k
}

// samePending reports whether the same operations are to be done: plans then are the same.
func samePending(a, b []plan.Operation) bool {
	return slices.EqualFunc(plan.Pending(a), plan.Pending(b),
		func(x, y plan.Operation) bool { return x.ActionID() == y.ActionID() && x.From == y.From })
}

// correlations returns the correlation ids of operations by the id in their actions.
func correlations(all []plan.Operation) map[string]string {
	out := map[string]string{}
	for _, o := range all {
		out[o.ActionID()] = o.CorrelationID
	}
	return out
}

// operationIndex returns the index of the operation that an action carries out, or -1.
func operationIndex(all []plan.Operation, a plan.Action) int {
	return slices.IndexFunc(all, func(o plan.Operation) bool { return a.Operation != nil && o.ActionID() == a.Operation.ID })
}
