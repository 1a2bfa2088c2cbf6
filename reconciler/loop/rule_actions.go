package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/reconciler/rules"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/authority"
	"berth/schema/event"
)

// hookActor begins the actor of an action of a rule; its name follows.
const hookActor = "hook/"

// ruleActions asks for the operations of rules. A rule has the permissions of the user who brought it, by the roles in
// force when it fires. The id of an operation follows from that of the firing, so that it is done once.
type ruleActions struct {
	*recorder
	inForce     *inForce
	permissions decide.Permissions
	request     func(context.Context, plan.OperationRequest, ...audit.Record) (plan.Operation, error)
}

// target is a unit, and a member of it; "": the whole unit.
type target struct {
	unit   schema.Key
	member string
}

// try asks for an operation on each target of a firing. again: another try may help. A target that is refused does not keep the
// operation from the others. The refusals are to be written with the outcome of the effect, so that an effect which is tried
// again after a crash is audited once.
func (a ruleActions) try(
	ctx context.Context, r *schema.HookRule, operation string, firing plan.Event,
) (again bool, refusals []audit.Record, err error) {
	f, _ := rules.Firing(firing)
	all := a.targets(f)
	if len(all) == 0 {
		return false, nil, fmt.Errorf("no unit in force is, or has a member on, %s %s", f.ResourceKind, f.ResourceName)
	}
	var faults []error
	for _, t := range all {
		retry, refusal, err := a.operate(ctx, r, operation, firing, t)
		again, refusals, faults = again || retry, append(refusals, refusal...), append(faults, err)
	}
	return again, refusals, errors.Join(faults...)
}

// targets returns the units and members that a firing is about, sorted.
func (a ruleActions) targets(f event.Rule) (out []target) {
	for key, s := range a.status.Units().All() {
		if string(key.Kind) == f.ResourceKind && key.ResourceName() == f.ResourceName {
			return []target{{unit: key}}
		}
		for _, m := range s.Members {
			if f.ResourceKind == string(schema.KindNode) && m.Node == f.ResourceName {
				out = append(out, target{key, m.Name})
			}
		}
	}
	slices.SortFunc(out, func(a, b target) int { return a.unit.Compare(b.unit) })
	return out
}

// operate asks for an operation on one target, if the user who brought the rule may.
func (a ruleActions) operate(
	ctx context.Context, r *schema.HookRule, operation string, firing plan.Event, t target,
) (again bool, refusal []audit.Record, err error) {
	st := a.inForce.current()
	user, permission := "", authority.MemberOperate
	if d := detailOf(a.status.Resource(r.Key)); d.Declared == r.Blob {
		user = d.RequestedBy
	}
	if t.unit.Kind == schema.KindSharedRuntime {
		permission = authority.SharedRuntimeMemberOperate
	}
	id := firing.EventID + "-" + operation // the reason of the record has it: two firings have two records
	if t.member != "" {
		id += "-" + t.member
	}
	d := a.permissions.May(st.Desired, user, permission, authority.Scope{Tenant: t.unit.Tenant, Project: t.unit.Project})
	record := audit.Record{
		OccurredAt: firing.OccurredAt, CorrelationID: firing.CorrelationID, Author: audit.Author{Actor: hookActor + r.Key.Name},
		Permission: string(permission), Action: "operation." + operation, Resource: audit.About(t.unit, a.appOf(st.Desired, t.unit)),
		Outcome: audit.Outcome{Verdict: audit.Allowed, Rule: d.Role, Reason: "rule of " + user + ", operation " + id},
		Change:  audit.Change{Commit: st.Main},
	}
	if !d.Allowed {
		record.Verdict, record.Rule, record.Reason = audit.Denied, d.Rule, d.Reason+", operation "+id
		if user == "" {
			return false, []audit.Record{record}, fmt.Errorf("%s on %s needs %s, and the user who brought the rule is unknown: merge a "+
				"change of it", operation, t.unit, permission)
		}
		return false, []audit.Record{record}, fmt.Errorf("%s on %s needs %s, and %s, who brought the rule, lacks it: %s", operation, t.unit,
			permission, user, d.Message())
	}
	req := plan.OperationRequest{Unit: t.unit, ID: id, RequestedBy: hookActor + r.Key.Name,
		CorrelationID: firing.CorrelationID,
		Spec:          schema.MemberOperationSpec{Instance: t.unit.Name, Member: t.member, Operation: operation, Reason: "rule " + r.Key.Name}}
	if t.unit.Kind == schema.KindSharedRuntime {
		req.Spec.Instance = ""
	}
	if err := req.Check(st.Unit(t.unit)); err != nil {
		return false, nil, err
	}
	_, err = a.request(ctx, req, record)
	return err != nil && !errors.Is(err, plan.ErrOperationID), nil, err
}
