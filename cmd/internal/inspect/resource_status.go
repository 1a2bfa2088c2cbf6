package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"berth/cmd/internal/cli"
	"berth/reconciler/nodes"
	"berth/reconciler/plan"
	"berth/schema"
)

// ResourceStatus is the status of one resource, as status, get and describe show it.
type ResourceStatus struct {
	Key     schema.Key           `json:"key"`
	Name    string               `json:"name"` // with tenant and project
	App     string               `json:"app,omitempty"`
	Phase   string               `json:"phase"`
	Ready   plan.ConditionStatus `json:"ready,omitempty"` // True, False or Unknown
	Why     string               `json:"why,omitempty"`   // messages of conditions that need attention, and of retries
	Stalled bool                 `json:"stalled,omitempty"`
	Members []memberStatus       `json:"members,omitempty"`
	// Attachments of projects to a shared runtime, by project.
	Attachments []plan.AttachmentStatus `json:"attachments,omitempty"`
	Revision    string                  `json:"revision,omitempty"`
	Conditions  []plan.Condition        `json:"conditions,omitempty"`
	Node        *nodes.Record           `json:"node,omitempty"` // of a node: what its host answered last
}

type memberStatus struct {
	Name  string     `json:"name"`
	Node  string     `json:"node"`
	State plan.State `json:"state,omitempty"`
	Why   string     `json:"placed,omitempty"`
	Note  string     `json:"note,omitempty"`
	// OutOfService is why the member takes no jobs although it runs.
	OutOfService string `json:"out_of_service,omitempty"`
	// Source is the project that lends the node to a shared runtime; "": the node is the runtime's
	// own. Until is the day, UTC, with whose begin the node returns; "": open.
	Source      string            `json:"source_project_id,omitempty"`
	Until       string            `json:"source_until,omitempty"`
	Integration *plan.Integration `json:"integration,omitempty"`
}

// unitStatus is the status of an instance or a shared runtime, for people.
func unitStatus(s *plan.Status) ResourceStatus {
	r := ResourceStatus{
		Key: s.Key, Name: s.Key.ResourceName(), App: s.App, Phase: string(s.Phase), Conditions: s.Conditions,
		Ready:    conditionOf(s.Conditions, plan.ConditionReady).Status,
		Stalled:  s.Phase == plan.PhaseFailed || s.Condition(plan.ConditionStalled).Is(plan.ConditionTrue),
		Revision: s.Revision, Attachments: s.Attachments,
	}
	for _, m := range s.Members {
		one := memberStatus{Name: m.Name, Node: m.Node, State: m.State, Why: m.Placed, Note: m.Note, OutOfService: m.OutOfService,
			Integration: m.Integration}
		if m.Loan != nil {
			one.Source, one.Until = m.Loan.ProjectID, m.Loan.Until
		}
		r.Members = append(r.Members, one)
	}
	why := reasons(s.Conditions)
	if len(why) == 0 || !slices.ContainsFunc(why, func(w string) bool { return strings.Contains(w, s.FailureReason) }) {
		why = append(why, s.FailureReason)
	}
	switch retry := s.Retry; {
	case retry == nil:
	case retry.Terminal:
		why = append(why, fmt.Sprintf("Berth gave up after %s; a new commit or /berth retry tries again",
			cli.Count(retry.Attempts, "attempt")))
	default:
		why = append(why, fmt.Sprintf("%s failed, the next is at %s", cli.Count(retry.Attempts, "attempt"), cli.Stamp(retry.Next)))
	}
	if s.Review != nil && s.Review.Stale != nil {
		stale := "held: the plan changed after its review"
		if s.Review.Pull != 0 {
			stale += fmt.Sprintf("; see pull request #%d", s.Review.Pull)
		}
		why = append(why, stale)
	}
	r.Why = cli.Join(why...)
	return r
}

// thingStatus is unitStatus for other resources.
func thingStatus(s *plan.ThingStatus) ResourceStatus {
	var node *nodes.Record
	if s.Key.Kind == schema.KindNode {
		r := nodes.ReadRecord(s)
		node = &r
	}
	return ResourceStatus{
		Node: node,
		Key:  s.Key, Name: s.Key.ResourceName(), Phase: s.Phase, Conditions: s.Conditions, Revision: s.Revision,
		Ready:   conditionOf(s.Conditions, plan.ConditionReady).Status,
		Stalled: s.Phase == string(plan.PhaseFailed) || s.Condition(plan.ConditionStalled).Is(plan.ConditionTrue),
		Why:     cli.Join(reasons(s.Conditions)...),
	}
}

// addHeld adds that a change of the instance is held, unless a condition has it.
func (r *ResourceStatus) addHeld(held []schema.Held) {
	if len(held) > 0 && conditionOf(r.Conditions, plan.ConditionAuthorized).Status != plan.ConditionFalse {
		r.Why = cli.Join("held: "+held[0].Message, r.Why)
	}
}

// conditionOf returns the condition of a type, or the zero value.
func conditionOf(cs []plan.Condition, kind plan.ConditionType) plan.Condition {
	if i := slices.IndexFunc(cs, func(c plan.Condition) bool { return c.Type == kind }); i >= 0 {
		return cs[i]
	}
	return plan.Condition{}
}

// reasons returns the messages of conditions that need attention, the most important
// first. It leaves out a message that another one contains.
func reasons(cs []plan.Condition) []string {
	var out []string
	add := func(kind plan.ConditionType, status plan.ConditionStatus, prefix string) {
		if c := conditionOf(cs, kind); c.Status == status && cmp.Or(c.Message, string(c.Reason)) != "" {
			text := c.Message
			if text == "" && kind == plan.ConditionDriftDetected {
				text = string(c.Reason)
			}
			if text != "" && !slices.ContainsFunc(out, func(o string) bool { return strings.Contains(o, text) }) {
				out = append(out, prefix+text)
			}
		}
	}
	add(plan.ConditionAuthorized, plan.ConditionFalse, "held: ")
	add(plan.ConditionReady, plan.ConditionFalse, "")
	add(plan.ConditionReady, plan.ConditionUnknown, "")
	add(plan.ConditionStalled, plan.ConditionTrue, "")
	add(plan.ConditionDegraded, plan.ConditionTrue, "")
	add(plan.ConditionSuspended, plan.ConditionTrue, "suspended: ")
	add(plan.ConditionScheduled, plan.ConditionFalse, "")
	add(plan.ConditionPolicyCompliant, plan.ConditionFalse, "policy: ")
	add(plan.ConditionOnHold, plan.ConditionTrue, "")
	add(plan.ConditionWithinQuota, plan.ConditionFalse, "quota: ")
	add(plan.ConditionDriftDetected, plan.ConditionTrue, "drift: ")
	add(plan.ConditionReconciling, plan.ConditionTrue, "doing: ")
	return out
}

// state is the member's state for people.
func (m *memberStatus) state() string {
	if m.OutOfService != "" {
		return string(m.State) + ", " + m.OutOfService
	}
	return string(m.State)
}

// line is the resource's state in one line.
func (r *ResourceStatus) line() string {
	parts := []string{r.Phase}
	if r.Ready == plan.ConditionTrue {
		parts[0] += ", ready"
	}
	if m := r.members(); m != "" {
		parts = append(parts, fmt.Sprintf("%s members on %s", m, r.nodes()))
	}
	return cli.Join(append(parts, r.Why)...)
}

// members counts the members that run, of all.
func (r *ResourceStatus) members() string {
	if len(r.Members) == 0 {
		return ""
	}
	running := 0
	for _, m := range r.Members {
		if m.State == plan.Running && m.OutOfService == "" {
			running++
		}
	}
	return fmt.Sprintf("%d/%d", running, len(r.Members))
}

// attached returns the number of attached projects of a shared runtime and of all its attachments.
func (r *ResourceStatus) attached() string {
	if len(r.Attachments) == 0 {
		return ""
	}
	n := 0
	for _, a := range r.Attachments {
		if a.Phase == plan.AttachmentAttached {
			n++
		}
	}
	return fmt.Sprintf("%d/%d", n, len(r.Attachments))
}

// maxNodes bounds how many nodes of an instance a table names.
const maxNodes = 4

// nodes are the nodes of the members, in the order of the members.
func (r *ResourceStatus) nodes() string {
	var names []string
	for _, m := range r.Members {
		if m.Node != "" && !slices.Contains(names, m.Node) {
			names = append(names, m.Node)
		}
	}
	if n := len(names); n > maxNodes {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNodes], ","), n-maxNodes)
	}
	return strings.Join(names, ",")
}

// heldOf returns the held changes of a document, including those of its tenant.
func heldOf(held []schema.Held, key schema.Key) []schema.Held {
	path, err := key.Path()
	return slices.DeleteFunc(slices.Clone(held), func(h schema.Held) bool {
		return h.Key != key && (err != nil || path != h.File && !strings.HasPrefix(path, h.File+"/"))
	})
}
