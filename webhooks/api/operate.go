package api

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
)

// NodeRequest is the body of a request for an operation.
type NodeRequest struct {
	Operation string            `json:"operation"`
	Reason    string            `json:"reason"`
	Labels    map[string]string `json:"labels,omitempty"`
	OnJobs    *schema.OnJobs    `json:"on_jobs,omitempty"`
}

// NodeOperation is an operation that was taken. It is read under member-operations.
type NodeOperation struct {
	OperationID   string    `json:"operation_id"`
	Operation     string    `json:"operation"`
	MemberID      string    `json:"member_id"`
	Reason        string    `json:"reason"`
	Status        string    `json:"status"`
	RequestedAt   time.Time `json:"requested_at"`
	CorrelationID string    `json:"correlation_id"`
}

// member is the member that the path names. On admin paths the name of a node means its member.
func (l *liveCall) member() string {
	name, s := l.params["node"], l.view.Units.Get(l.caller.Instance)
	if !l.route.admin || s == nil {
		return name
	}
	for _, m := range s.Members {
		if m.Node == name {
			return m.Name
		}
	}
	return name
}

// operateNode asks for an operation on a member. In a project's path a node is a member of its unit.
func operateNode(l *liveCall) (answer, *failure) {
	key, fail := l.key()
	if fail != nil {
		return answer{}, fail
	}
	var body NodeRequest
	if fail := l.body(&body); fail != nil {
		return answer{}, fail
	}
	if fail := l.mayOperate(body.Operation); fail != nil {
		return answer{}, fail
	}
	r := plan.OperationRequest{Unit: l.caller.Instance, ID: key, RequestedBy: l.who.name, CorrelationID: l.correlation,
		Spec: schema.MemberOperationSpec{Instance: l.caller.Instance.Name, Member: l.member(), Operation: body.Operation,
			Labels: body.Labels, Reason: body.Reason, OnJobs: body.OnJobs}}
	if err := r.Check(l.view.Effective.Unit(r.Unit)); err != nil {
		return answer{}, &failure{code: codeOperation, message: err.Error()}
	}
	if l.live.Operations == nil {
		return answer{}, starting()
	}
	l.begins()
	o, err := l.live.Operations.RequestOperation(l.Context(), r)
	switch {
	case errors.Is(err, plan.ErrOperationID):
		return answer{}, &failure{code: codeConflict, message: err.Error()}
	case errors.Is(err, plan.ErrManyPending):
		return answer{}, &failure{code: codeRate, after: time.Minute, message: err.Error()}
	case err != nil:
		return answer{}, &failure{code: codeNotReady, after: retryAfter, cause: err,
			message: "the operation is not recorded yet: send the same request again with the same Idempotency-Key"}
	}
	return asJSON(http.StatusAccepted,
		NodeOperation{o.Name, o.Spec.Operation, o.Spec.Member, o.Spec.Reason, string(o.Phase), o.Requested, o.CorrelationID})
}

// mayOperate checks the permission that an operation needs beside that of the route. One call is one person, so where a policy
// requires an approval, a loss is accepted in a pull request.
func (l *liveCall) mayOperate(operation string) *failure {
	permission := authority.MemberOperate
	scope, rules := authority.Scope{Tenant: l.tenant, Project: l.project}, l.authoriser.rules(l.call)
	accepts := schema.AcceptsLoss(operation)
	switch operation {
	case schema.OpDrain, schema.OpResume, schema.OpCordon, schema.OpUncordon, schema.OpLabel:
		return nil
	}
	if accepts {
		permission = authority.LossAccept
	}
	d := authority.May(rules, l.who.actor, permission, scope)
	if d.Allowed && accepts {
		d = authority.Decide(rules, l.who.actor, []authority.Need{{Permission: permission, Scope: scope}})[0]
	}
	if d.Allowed {
		return nil
	}
	l.authoriser.refused(l.call, d)
	return &failure{code: codePermission, details: map[string]any{"permission": string(permission)},
		message: fmt.Sprintf("%.40q needs %s too: %s", operation, permission, d.Message())}
}
