package plan

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"berth/schema"
)

// OperationWait is how long an operation may wait for its start. Then it expires.
const OperationWait = 24 * time.Hour

// keptRequests is the number of finished requests that the status of a unit keeps, the newest.
// Within it, an id that comes again is not done again.
const keptRequests = 100

// OperationPhase is where an operation is in its life (requirement D5).
type OperationPhase string

// The phases. The last three are final.
const (
	OperationRequested OperationPhase = "requested"
	OperationRunning   OperationPhase = "running"
	OperationDone      OperationPhase = "done"
	OperationFailed    OperationPhase = "failed"
	OperationExpired   OperationPhase = "expired"
)

// Operation is one operation on a unit, asked for by a MemberOperation or by a request. It is
// done once: ID is the idempotency key.
type Operation struct {
	Name          string                     `json:"name"` // of the document; that of a request follows from its id
	ID            string                     `json:"id"`   // uid of the document or else its name, or the id of the request
	IsRequest     bool                       `json:"request,omitempty"`
	Spec          schema.MemberOperationSpec `json:"spec"`
	Phase         OperationPhase             `json:"phase"`
	Message       string                     `json:"message,omitempty"`        // why it waits, or its result
	From          string                     `json:"from,omitempty"`           // node of the member when the operation started
	Revision      string                     `json:"revision,omitempty"`       // commit that asked for it
	CorrelationID string                     `json:"correlation_id,omitempty"` // of the commit or the request
	RequestedBy   string                     `json:"requested_by,omitempty"`   // login or service account; "": unknown
	Requested     time.Time                  `json:"requested_at,omitzero"`
	Started       time.Time                  `json:"started_at,omitzero"`
	Finished      time.Time                  `json:"finished_at,omitzero"`
}

// IsFinished reports whether an operation has a final phase.
func (o *Operation) IsFinished() bool {
	return o.Phase != OperationRequested && o.Phase != OperationRunning
}

// Finish sets the final phase of an operation and its result.
func (o *Operation) Finish(phase OperationPhase, message string, now time.Time) {
	o.Phase, o.Message, o.Finished = phase, message, now.UTC().Truncate(time.Second)
}

// ActionID names the operation in actions and at runtimes. A request has another form than a document, whose
// id has no slash: the key of a caller never stands for a document.
func (o *Operation) ActionID() string {
	if o.IsRequest {
		return "request/" + o.ID
	}
	return o.ID
}

// Verb returns the verb that carries out an operation.
func (o *Operation) Verb() Verb { return Verb(o.Spec.Operation) }

// ActionOperation is what the action of an operation tells the runtime.
type ActionOperation struct {
	ID     string            `json:"id"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	OnJobs *schema.OnJobs    `json:"on_jobs,omitempty"` // nil: that of the unit counts
}

// Operations returns the operations of a unit, sorted by name: those of documents in force, and
// the requests, each as known has it. An operation of a document that is gone is left out. One
// that did not start within OperationWait before now is expired, and so is one that a newer one
// contradicts; a zero now expires none.
func Operations(docs []*schema.MemberOperation, known []Operation, now time.Time) []Operation {
	var out []Operation
	for _, d := range docs {
		o := Operation{Name: d.Key.Name, ID: d.ID(), Spec: d.Spec, Phase: OperationRequested}
		if !now.IsZero() {
			o.Requested = now.UTC().Truncate(time.Second)
		}
		if i := slices.IndexFunc(known, func(k Operation) bool { return !k.IsRequest && k.ID == o.ID }); i >= 0 {
			was := known[i]
			if was.Phase != OperationRequested {
				o.Spec = was.Spec // what was done, or is being done
			}
			was.Name, was.Spec = o.Name, o.Spec
			o = was
		}
		out = append(out, o)
	}
	out = append(out, requests(known)...)
	for i := range out {
		if o := &out[i]; o.Phase == OperationRequested && !now.IsZero() && !o.Requested.IsZero() && now.Sub(o.Requested) > OperationWait {
			o.Finish(OperationExpired, strings.TrimSuffix(fmt.Sprintf("not started within %s: %s", OperationWait, o.Message), ": "), now)
		}
	}
	if !now.IsZero() {
		expireContradicted(out, now)
	}
	slices.SortFunc(out, func(a, b Operation) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return out
}

// expireContradicted ends operations that are not done and whose opposite was asked for later. Otherwise an old drain would
// drain a member again after its resume. Of two that came at the same time, such as in two commits that were fetched together,
// the one that gives the member back counts as the later, unless it is done already. A release that is done ended each hold that it
// found: it ends no other one, whatever the clocks said.
func expireContradicted(all []Operation, now time.Time) {
	for i := range all {
		o := &all[i]
		if o.IsFinished() {
			continue
		}
		for k := range all {
			newer := &all[k]
			ended := newer.Phase == OperationFailed || newer.Phase == OperationExpired || o.Verb() == Hold && newer.IsFinished()
			isLater := newer.Requested.After(o.Requested) || newer.Requested.Equal(o.Requested) && givesBack(newer.Verb()) &&
				!newer.IsFinished()
			isLater = isLater || newer.Verb() == Release && !newer.IsFinished() && o.Phase == OperationRunning // whatever the clocks said
			switch {
			case ended || !isLater || newer.Member() != o.Member() || !areOpposite(o.Verb(), newer.Verb()) || o.Verb() == Release:
				continue
			case o.Verb() == Hold:
				o.Finish(OperationDone, "released by the operation "+newer.Name, now)
			default:
				o.Finish(OperationExpired, fmt.Sprintf("the later operation %s asks for the opposite (%s)", newer.Name, newer.Verb()), now)
			}
			break
		}
	}
}

// areOpposite reports whether one of two operations on one member or unit stops jobs or changes there, and the other allows them again.
func areOpposite(a, b Verb) bool {
	takes := func(v Verb) bool { return v == Drain || v == Cordon || v == Hold }
	return takes(a) && givesBack(b) || givesBack(a) && takes(b)
}

func givesBack(v Verb) bool { return v == Resume || v == Uncordon || v == Release }

// requests returns the known requests without the oldest finished ones.
func requests(known []Operation) (out []Operation) {
	var finished []Operation
	for _, o := range known {
		switch {
		case !o.IsRequest:
		case o.IsFinished():
			finished = append(finished, o)
		default:
			out = append(out, o)
		}
	}
	slices.SortFunc(finished, func(a, b Operation) int { return cmp.Or(b.Finished.Compare(a.Finished), cmp.Compare(a.ID, b.ID)) })
	return append(out, finished[:min(len(finished), keptRequests)]...)
}

// Pending returns the operations to do by a plan, in their order. No plan has a hold or a release: they decide whether plans are executed.
func Pending(all []Operation) []Operation {
	return slices.DeleteFunc(slices.Clone(all), func(o Operation) bool {
		return o.IsFinished() || o.Verb() == Hold || o.Verb() == Release
	})
}

// Holding returns the operation that holds a unit, or false. One that runs goes before those that have not begun: it ends by a release
// only.
func Holding(all []Operation) (first Operation, ok bool) {
	for _, o := range all {
		isHold := o.Verb() == Hold && !o.IsFinished()
		if isHold && (!ok || first.Phase != OperationRunning && o.Phase == OperationRunning) {
			first, ok = o, true
		}
	}
	return first, ok
}

// RunningHolds returns the holds of documents that run. The document of an operation goes with that of its unit, and its hold does not.
func RunningHolds(known []Operation) []Operation {
	return slices.DeleteFunc(slices.Clone(known), func(o Operation) bool {
		return o.IsRequest || o.Verb() != Hold || o.Phase != OperationRunning
	})
}

// BeginHolds returns operations in which each hold and release that was requested has begun. A hold runs until it is released; another
// one meanwhile is done at once, so that a rule that fires again and again leaves one hold to release.
func BeginHolds(all []Operation, now time.Time) []Operation {
	all = slices.Clone(all)
	for i := range all {
		first, isHeld := Holding(all)
		switch o := &all[i]; {
		case o.IsFinished():
		case o.Verb() == Release:
			o.Finish(OperationDone, "", now)
		case o.Verb() == Hold && isHeld && first.ActionID() != o.ActionID():
			o.Finish(OperationDone, "the unit is held already by "+first.Name, now)
		case o.Verb() == Hold && o.Phase == OperationRequested:
			o.Phase, o.Started = OperationRunning, now.UTC().Truncate(time.Second)
		}
	}
	return all
}

// operations returns those on record. A nil status has none.
func (s *Status) operations() []Operation {
	if s == nil {
		return nil
	}
	return s.Operations
}

// leavingNodes returns, by member, the nodes that operations have members leave.
func leavingNodes(docs []*schema.MemberOperation, st *Status) map[string]string {
	if len(docs) == 0 && len(st.operations()) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, o := range Pending(Operations(docs, st.operations(), time.Time{})) {
		if o.Verb() != Replace {
			continue
		}
		was, ok := applied(st).Member(o.Spec.Member)
		if node := cmp.Or(o.From, was.Node); ok && !was.ControlPlane && node != "" {
			out[o.Spec.Member] = node
		}
	}
	return out
}

// Refusal returns why an operation can never be done on a complete unit that is observed as before
// and declared as after; "": it can be done, now or later.
func Refusal(o Operation, before, after *Unit) string {
	name := o.Spec.Member
	m, isMember := before.Member(name)
	wanted, isWanted := after.Member(name)
	switch {
	case o.isOfUnit():
		return ""
	case (m.ControlPlane || wanted.ControlPlane) && o.Verb() != Restart:
		return name + " is the control plane: only restart is done on it"
	case o.Verb() == Remove && isWanted:
		role, number := splitMember(name)
		return fmt.Sprintf("%s is declared, so it would come back: lower spec.roles.%s.count to %d at most, or use replace", name, role,
			number)
	case o.Verb() == Remove:
		return ""
	case !isMember && !isWanted && !declares(after, name):
		return fmt.Sprintf("%s does not exist: name a member of the unit", name)
	}
	return ""
}

// declares reports whether the role of a unit has a member of that name, with or without a node.
func declares(u *Unit, name string) bool {
	role, number := splitMember(name)
	return u != nil && slices.ContainsFunc(u.Effective.Roles,
		func(r schema.EffectiveRole) bool { return r.Name == role && number < r.Count })
}

// operationMaker adds the actions of operations to a plan.
type operationMaker struct{ *maker }

// operate adds the operations on members that stay.
func (m operationMaker) operate(ready []string) {
	last := map[string]string{} // action before, by member: operations on one member are done in order
	for _, o := range m.in.Operations {
		s, seen := m.states[o.Spec.Member]
		_, wanted := m.plan.After.Member(o.Spec.Member)
		why := Refusal(o, m.plan.Before, m.plan.After)
		switch {
		case o.isOfUnit() || why == "" && (o.Verb() == Replace || o.Verb() == Remove):
		case why != "":
			m.block(CodeOperation, false, "operation %s: %s", o.Name, why)
		case !seen || !wanted:
			m.block(CodeOperation, true, "operation %s waits until %s has joined", o.Name, o.Spec.Member)
		case s.State == Unreachable || m.leaves(s) != "": // other blocks and actions tell it
		default:
			needs := slices.Clone(ready)
			if last[s.Name] != "" {
				needs = append(needs, last[s.Name])
			}
			last[s.Name] = m.operation(o, s.Node, needs)
		}
	}
}

// evacuate adds the operations that a member leaves by, and returns the ids of their actions.
func (m operationMaker) evacuate(s MemberState, ready []string) (ids []string) {
	for _, o := range m.in.Operations {
		if m.hasLeave(o, s.Name) {
			ids = append(ids, m.operation(o, s.Node, ready))
		}
	}
	return ids
}

// leaving returns the first operation that has a member leave.
func (m operationMaker) leaving(name string) (Operation, bool) {
	i := slices.IndexFunc(m.in.Operations, func(o Operation) bool { return m.hasLeave(o, name) })
	if i < 0 {
		return Operation{}, false
	}
	return m.in.Operations[i], true
}

// hasLeave reports whether an operation has a member leave.
func (m operationMaker) hasLeave(o Operation, name string) bool {
	return o.Spec.Member == name && (o.Verb() == Replace || o.Verb() == Remove) && Refusal(o, m.plan.Before, m.plan.After) == ""
}

// action describes the operation in its action.
func (o Operation) action() *ActionOperation {
	return &ActionOperation{ID: o.ActionID(), Name: o.Name, Labels: o.Spec.Labels, OnJobs: o.Spec.OnJobs}
}

// isOfUnit reports whether an operation is of the whole unit.
func (o Operation) isOfUnit() bool { return schema.IsOfUnit(string(o.Verb())) }

// ofUnit adds operations on the whole unit, whatever its state. A loss is accepted once the unit is made anew.
func (m operationMaker) ofUnit() {
	after := m.plan.After
	if after == nil || len(m.in.Denied) > 0 || after.Effective.Suspend || after.Effective.SharedRuntime != "" ||
		m.in.Observed.Presence == Unknown {
		return
	}
	control, ok := after.Control()
	for _, o := range m.in.Operations {
		if !o.isOfUnit() || !ok {
			continue
		}
		var needs []string
		for _, a := range m.plan.Actions {
			if a.Verb == Create && o.Verb() == AcceptLoss {
				needs = append(needs, a.ID)
			}
		}
		m.operation(o, control.Node, needs)
	}
}

// Member returns the member that an operation is on; "": it is on the whole unit.
func (o *Operation) Member() string {
	if o.isOfUnit() {
		return ""
	}
	return o.Spec.Member
}

// operation adds the action of an operation.
func (m operationMaker) operation(o Operation, node string, needs []string) string {
	return m.add(Action{
		Verb: o.Verb(), Member: o.Member(), Node: node, Reason: fmt.Sprintf("operation %s: %s", o.Name, o.Spec.Reason), Needs: needs,
		Operation: o.action(),
	}, nil)
}

// drainedBy returns a unit whose jobs end by the on_jobs of an operation.
func drainedBy(u *Unit, a Action) *Unit {
	if u == nil {
		return nil
	}
	of := *u
	of.Effective.OnJobs = a.Operation.OnJobs
	of.Members = slices.Clone(u.Members)
	for i, m := range of.Members {
		if m.Name == a.Member && m.Loan != nil {
			loan := *m.Loan
			loan.OnJobs = a.Operation.OnJobs
			of.Members[i].Loan = &loan
		}
	}
	return &of
}

// ErrManyPending means that too many requests on a unit wait.
var ErrManyPending = errors.New("too many operations wait")

// ErrOperationID means that the id of a request stands for another operation.
var ErrOperationID = errors.New("the id stands for another operation")

// OperationRequest asks for an operation on a unit without a document.
type OperationRequest struct {
	Unit          schema.Key
	ID            string // idempotency key, unique for the unit
	RequestedBy   string // login or service account
	CorrelationID string // of the request
	Spec          schema.MemberOperationSpec
}

// The forms of a reason and of a label's value are those of the documents (schema/cue/common.cue).
var (
	operationReason = regexp.MustCompile(`^[^\s]([^\n\t]{0,198}[^\s])?$`)
	operationLabel  = regexp.MustCompile(`^[A-Za-z0-9]([-._+A-Za-z0-9]{0,62}[A-Za-z0-9])?$`)
)

const (
	maxLabels = 32
	// MaxPending is the number of requests on a unit that may wait at a time.
	MaxPending = 32
)

// maxOperationID limits the id of a request in bytes.
const maxOperationID = 128

// Check returns what is wrong with a request on a unit; want is nil for an unknown unit. It checks
// what the reader checks of a document.
func (r OperationRequest) Check(want *schema.EffectiveUnit) error {
	why := cmp.Or(r.wrongUnit(want), wrongOperation(&r.Spec), wrongForm(&r.Spec))
	if why == "" {
		after := &Unit{Effective: *want, Members: declaredMembers(want)}
		why = Refusal(Operation{Spec: r.Spec}, after, after)
	}
	if why != "" {
		return fmt.Errorf("request operation %s on %s: %s", r.ID, r.Unit, why)
	}
	return nil
}

func (r OperationRequest) wrongUnit(want *schema.EffectiveUnit) string {
	switch {
	case r.ID == "" || len(r.ID) > maxOperationID:
		return fmt.Sprintf("the id has to have 1 to %d bytes", maxOperationID)
	case want == nil:
		return "there is no such unit in force; check its name"
	case want.SharedRuntime != "":
		return "it has no members of its own; name the shared runtime " + want.SharedRuntime
	}
	return ""
}

func wrongOperation(s *schema.MemberOperationSpec) string {
	switch {
	case !slices.Contains(schema.MemberOperations(), s.Operation):
		return fmt.Sprintf("operation %q is unknown; use one of %s", s.Operation, strings.Join(schema.MemberOperations(), ", "))
	case schema.AcceptsLoss(s.Operation):
		return "a loss is accepted by a MemberOperation in Git only"
	case s.Member == "" && !schema.IsOfUnit(s.Operation):
		return s.Operation + " needs a member, such as worker-0"
	case (s.Operation == schema.OpLabel) != (len(s.Labels) > 0):
		return "label needs labels, and no other operation has them"
	case s.OnJobs != nil && !schema.EndsJobs(s.Operation):
		return s.Operation + " ends no jobs; take on_jobs away"
	case s.OnJobs != nil && s.OnJobs.Wait && s.OnJobs.CancelAfterSeconds > 0:
		return "on_jobs waits without end and cancels after a while; keep one of the two"
	}
	return ""
}

func wrongForm(s *schema.MemberOperationSpec) string {
	switch {
	case !operationReason.MatchString(s.Reason) || strings.TrimSpace(s.Reason) != s.Reason:
		return "the reason has to be one line of 1 to 200 characters, without spaces at its ends"
	case schema.UnsafeText(s.Reason, false) != "":
		return "the reason holds " + schema.UnsafeText(s.Reason, false)
	case s.OnJobs != nil && s.OnJobs.CancelAfterSeconds < 0:
		return "cancel_after_seconds cannot be negative"
	case len(s.Labels) > maxLabels:
		return fmt.Sprintf("at most %d labels are possible", maxLabels)
	}
	for name, value := range s.Labels {
		if !schema.ValidName(name) || !operationLabel.MatchString(value) {
			return fmt.Sprintf("the label %.40q has to have a name of lower-case letters, digits and dashes, and a value of up to 64 letters, "+
				"digits and . _ + -", name)
		}
	}
	return ""
}

// declaredMembers returns the members that the roles of a unit declare, without nodes.
func declaredMembers(want *schema.EffectiveUnit) (all []Member) {
	for _, role := range want.Roles {
		if role.ControlPlane {
			all = append(all, Member{Name: memberName(role.Name, 0), Role: role.Name, ControlPlane: true})
			continue
		}
		for i := range role.Count {
			all = append(all, Member{Name: memberName(role.Name, i), Role: role.Name})
		}
	}
	return all
}
