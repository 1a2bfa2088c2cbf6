package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

// NewEvent returns an event in its envelope. attempt distinguishes events of one
// type about one resource at one revision.
func NewEvent(t event.Type, about schema.Key, revision string, attempt int, correlationID string, payload any, now time.Time) plan.Event {
	data, err := json.Marshal(payload)
	if err != nil {
		panic(err) // the payloads of package event are strings and booleans
	}
	return plan.Event{
		EventID:       event.ID(t, about, revision, attempt),
		EventType:     string(t),
		OccurredAt:    now.UTC(),
		Version:       event.Version,
		CorrelationID: correlationID,
		Payload:       data,
	}
}

// unitEvents returns the events of a unit's transition from prev to next, in
// order: an instance is resumed before its phase changes, and requested before it
// is suspended (requirement A8).
func unitEvents(prev, next *plan.Status, now time.Time) []plan.Event {
	var out []plan.Event
	if e, ok := phaseEvent(prev, next, now); ok {
		out = append(out, e)
	}
	switch e, typ := suspensionEvent(prev, next, now); typ {
	case event.InstanceSuspended:
		out = append(out, e)
	case event.InstanceResumed:
		out = slices.Insert(out, 0, e)
	}
	if e, ok := movedEvent(prev, next, now); ok {
		out = append(out, e)
	}
	return out
}

// movedEvent returns the event about members that are placed on other nodes than before, if there are any. The same move made
// again after a crash has the same id.
func movedEvent(prev, next *plan.Status, now time.Time) (plan.Event, bool) {
	var names []string
	moves := fnv.New32a()
	for _, m := range next.Members {
		if was := lastNode(prev, m.Name); was != "" && m.Node != "" && was != m.Node {
			names = append(names, m.Name)
			fmt.Fprintln(moves, m.Name, m.Node)
		}
	}
	if len(names) == 0 {
		return plan.Event{}, false
	}
	p := event.Moved{
		OrgID: next.Key.Tenant, ProjectID: next.Key.ProjectID(), AppSlug: next.App, ResourceName: next.Key.ResourceName(),
		Status: string(next.Phase), Members: strings.Join(names, ", "), Revision: next.Revision,
	}
	if next.Key.Kind == schema.KindSharedRuntime {
		p.SharedRuntimeID = schema.ID(next.UID, next.Key)
	} else {
		p.AppInstanceID = schema.ID(next.UID, next.Key)
	}
	fmt.Fprintln(moves, next.Attempt)
	return NewEvent(event.MembersMoved, next.Key, next.Revision, int(moves.Sum32()), next.CorrelationID, p, now), true
}

// lastNode returns the node of a member by a status, which may be nil: that where it is placed, or that where it is while it waits
// for another one.
func lastNode(s *plan.Status, member string) string {
	if s == nil {
		return ""
	}
	for _, m := range s.Members {
		if m.Name == member && m.Node != "" {
			return m.Node
		}
	}
	if s.Observed == nil {
		return ""
	}
	m, _ := s.Observed.Unit.Member(member)
	return m.Node
}

// phaseEvent returns the event of a change of phase, if there is one. The same
// transition made again after a crash has the same event ID.
func phaseEvent(prev, next *plan.Status, now time.Time) (plan.Event, bool) {
	if prev != nil && prev.Phase == next.Phase {
		return plan.Event{}, false
	}
	d, ok := event.Of(next.Key.Kind, string(next.Phase))
	if !ok {
		return plan.Event{}, false
	}
	return NewEvent(d.Type, next.Key, next.Revision, next.Attempt, next.CorrelationID, phasePayload(d, next), now), true
}

// phasePayload returns the payload of an event of a unit's phase.
func phasePayload(d event.Definition, s *plan.Status) any {
	if _, ok := d.Payload.(event.SharedRuntime); ok {
		return event.SharedRuntime{
			OrgID: s.Key.Tenant, AppSlug: s.App, SharedRuntimeID: schema.ID(s.UID, s.Key), ResourceName: s.Key.ResourceName(),
			Status:        string(s.Phase),
			OperatingMode: s.OperatingMode, ControlPlaneScope: s.ControlPlaneScope, RuntimeBackend: s.RuntimeBackend,
			OperatorID: s.Operator,
			Revision:   s.Revision, FailureReason: s.FailureReason,
		}
	}
	return event.Instance{
		OrgID:             s.Key.Tenant,
		ProjectID:         s.Key.ProjectID(),
		AppSlug:           s.App,
		AppInstanceID:     schema.ID(s.UID, s.Key),
		ResourceName:      s.Key.ResourceName(),
		Status:            string(s.Phase),
		OperatingMode:     s.OperatingMode,
		ControlPlaneScope: s.ControlPlaneScope,
		RuntimeBackend:    s.RuntimeBackend,
		Revision:          s.Revision,
		FailureReason:     s.FailureReason,
		RequestedBy:       s.RequestedBy,
	}
}

// LostJobsEvent returns the event about jobs of a unit that its scheduler lost. Published again after a crash of the daemon, it
// has the same id.
func LostJobsEvent(s *plan.Status, jobs []plan.LostJob, now time.Time) plan.Event {
	const most = 100
	var ids, users []string
	for _, j := range jobs {
		ids = append(ids, strconv.Itoa(j.ID))
		if j.User != "" && !slices.Contains(users, j.User) {
			users = append(users, j.User)
		}
	}
	if more := len(ids) - most; more > 0 {
		ids = append(ids[:most], fmt.Sprintf("and %d more", more))
	}
	p := event.LostJobs{
		OrgID: s.Key.Tenant, ProjectID: s.Key.ProjectID(), AppSlug: s.App, ResourceName: s.Key.ResourceName(), Status: string(s.Phase),
		Jobs: strings.Join(ids, ", "), Users: strings.Join(users, ", "), Revision: s.Revision,
	}
	if s.Key.Kind == schema.KindSharedRuntime {
		p.SharedRuntimeID = schema.ID(s.UID, s.Key)
	} else {
		p.AppInstanceID = schema.ID(s.UID, s.Key)
	}
	return NewEvent(event.JobsLost, s.Key, s.Revision, jobs[0].ID, s.CorrelationID, p, now)
}

// suspensionEvent returns the event of a change of the condition Suspended; the
// type is "" if it did not change.
func suspensionEvent(prev, next *plan.Status, now time.Time) (plan.Event, event.Type) {
	was, is := prev.Condition(plan.ConditionSuspended), next.Condition(plan.ConditionSuspended)
	if next.Key.Kind != schema.KindInstance { // the events of a shared runtime are those of TSR
		return plan.Event{}, ""
	}
	if is == nil || was != nil && was.Status == is.Status || was == nil && is.Status != plan.ConditionTrue {
		return plan.Event{}, ""
	}
	typ := event.InstanceSuspended
	if is.Status != plan.ConditionTrue {
		typ = event.InstanceResumed
	}
	return NewEvent(typ, next.Key, is.Revision, next.Attempt, reconciler.CorrelationID(is.Revision), event.Suspension{
		OrgID:             next.Key.Tenant,
		ProjectID:         next.Key.ProjectID(),
		AppSlug:           next.App,
		AppInstanceID:     schema.ID(next.UID, next.Key),
		ResourceName:      next.Key.ResourceName(),
		Status:            string(next.Phase),
		OperatingMode:     next.OperatingMode,
		ControlPlaneScope: next.ControlPlaneScope,
		RuntimeBackend:    next.RuntimeBackend,
		Revision:          is.Revision,
		Reason:            string(is.Reason),
		Message:           is.Message,
	}, now), typ
}

// resourceEvents returns the events of a resource that is not a unit. Detail has the fields of the payload that the status lacks,
// such as app_slug, by their names in the payload, and the attempt of the event as "attempt".
func resourceEvents(prev, next *plan.ThingStatus, now time.Time) []plan.Event {
	if next.Key.Kind == schema.KindQueueMap {
		return QueueMapEvents(prev, next, now)
	}
	if next.Key.Kind == schema.KindNode {
		return nodeEvents(prev, next, now)
	}
	if prev != nil && prev.Phase == next.Phase {
		return nil
	}
	d, ok := event.Of(next.Key.Kind, next.Phase)
	if !ok {
		return nil
	}
	var more struct {
		Attempt    int    `json:"attempt"`
		RuntimeUID string `json:"shared_runtime_uid"`
	}
	Detail(next, &more)
	id := schema.ID(next.UID, next.Key)
	var payload any
	switch p := d.Payload.(type) {
	case event.Artifact:
		Detail(next, &p)
		p.OrgID, p.ProjectID, p.ArtifactID = next.Key.Tenant, next.Key.ProjectID(), id
		p.ResourceName = next.Key.ResourceName()
		p.Status, p.Revision = next.Phase, next.Revision
		payload = p
	case event.Attachment:
		Detail(next, &p)
		p.OrgID, p.SharedRuntimeID, p.AttachmentID = next.Key.Tenant, cmp.Or(more.RuntimeUID, next.Key.Parent), id
		p.ResourceName = next.Key.ResourceName()
		p.Status, p.Revision = next.Phase, next.Revision
		payload = p
	case event.Operation:
		Detail(next, &p)
		p.OrgID, p.ProjectID, p.OperationID = next.Key.Tenant, next.Key.ProjectID(), id
		p.ResourceName = next.Key.ResourceName()
		p.Status, p.Revision = next.Phase, next.Revision
		out := []plan.Event{NewEvent(d.Type, next.Key, next.Revision, 0, next.CorrelationID, p, now)}
		if d.Type == event.OperationDone && p.Operation == schema.OpRetry {
			out = append(out, NewEvent(event.RetryTriggered, next.Key, next.Revision, 0, next.CorrelationID, p, now))
		}
		return out
	default:
		return nil
	}
	return []plan.Event{NewEvent(d.Type, next.Key, next.Revision, more.Attempt, next.CorrelationID, payload, now)}
}

// nodeEvents returns the event of a node's transition. The number of transitions tells a transition from a status that is written
// again, and from that of a node that never answered.
func nodeEvents(prev, next *plan.ThingStatus, now time.Time) []plan.Event {
	var was, is struct {
		Attempt  int    `json:"attempt"`
		Previous string `json:"previous_status"`
		Region   string `json:"region"`
	}
	if Detail(next, &is); prev != nil {
		Detail(prev, &was)
	}
	d, ok := event.Of(next.Key.Kind, next.Phase)
	if !ok || is.Attempt == was.Attempt {
		return nil
	}
	p := event.Node{ResourceName: next.Key.ResourceName(), Status: next.Phase, PreviousStatus: is.Previous, Region: is.Region,
		Revision: next.Revision}
	if c := next.Condition(plan.ConditionReady); c != nil {
		p.Reason = string(c.Reason)
	}
	return []plan.Event{NewEvent(d.Type, next.Key, next.Revision, is.Attempt, next.CorrelationID, p, now)}
}

// Detail decodes the fields of s.Detail that into names. A field of another type
// is left out: the branch is not trusted to be well formed.
func Detail(s *plan.ThingStatus, into any) {
	_ = json.Unmarshal(s.Detail, into)
}
