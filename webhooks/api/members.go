package api

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"berth/reconciler/plan"
	"berth/schema"
)

// unitMembers returns a unit's placed members; whose has the fields they share.
func (r *reading) unitMembers(key schema.Key, whose member) map[string]member {
	out := map[string]member{}
	s := r.Units.Get(key)
	if s == nil {
		return out
	}
	for _, m := range s.Members {
		one := whose
		one.ID, one.Role, one.ControlPlane, one.Status = m.Name, m.Role, m.ControlPlane, cmp.Or(string(m.State), "unknown")
		one.AppSlug, one.Node, one.Region, one.SKU, one.CPUs, one.MemoryMiB = s.App, m.Node, m.Region, m.SKU, m.CPUs, m.MemoryMiB
		one.PlacementReason = r.visible(key, m.Placed)
		for _, g := range m.GPUs {
			one.GPUs = append(one.GPUs, memberGPUs{g.Type, g.Count})
		}
		if m.Loan != nil {
			one.SourceProjectID, one.SourceUntil = m.Loan.ProjectID, m.Loan.Until
		}
		if m.Integration != nil {
			one.Integration = *m.Integration
		}
		out[m.Name] = one
	}
	return out
}

func (r *reading) operation(o *schema.MemberOperation) any {
	s := o.Spec
	out := operation{
		ID: o.ID(), OrgID: o.Key.Tenant, ProjectID: o.Key.ProjectID(), MemberID: s.Member,
		Operation: s.Operation, TargetLabels: s.Labels, Reason: s.Reason, declared: r.declared(o.Head()),
	}
	if o.Key.Parent != "" {
		out.SharedRuntimeID = r.sharedID(o.Key.Tenant, o.Key.Parent)
	} else {
		out.AppInstanceID = r.instanceID(s.Instance)
	}
	out.Status, out.followed = r.statusOf(o.Key, string(plan.OperationRequested))
	if s := r.Things[o.Key]; s != nil {
		_ = json.Unmarshal(s.Detail, &out.operated) // the branch is not trusted to be well formed
		out.Result = r.visible(o.Key, out.Result)
	}
	return out
}

// withRequests returns the operations on a unit together with those that were requested without a
// document, by name.
func (r *reading) withRequests(unit schema.Key, declared map[string]*schema.MemberOperation) map[string]*schema.MemberOperation {
	s := r.Units.Get(unit)
	if s == nil || !slices.ContainsFunc(s.Operations, func(o plan.Operation) bool { return o.IsRequest }) {
		return declared
	}
	out := maps.Clone(declared)
	if out == nil {
		out = map[string]*schema.MemberOperation{}
	}
	for _, o := range s.Operations {
		if !o.IsRequest {
			continue
		}
		key := schema.Key{Kind: schema.KindMemberOperation, Tenant: unit.Tenant, Project: unit.Project, Name: o.Name}
		spec := o.Spec
		if unit.Kind == schema.KindSharedRuntime {
			key.Parent = unit.Name
		} else {
			spec.Instance = unit.Name
		}
		out[o.Name] = &schema.MemberOperation{Header: schema.Header{Key: key, UID: o.ID}, Spec: spec}
	}
	return out
}
