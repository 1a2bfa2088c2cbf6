package loop

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/schema"
)

// attachments records the statuses of Attachments (requirement D2). unitView.attachments derives
// each from the state in force and from the status of its shared runtime. Its users hold the status
// writer's decision lock.
type attachments struct {
	status   *status.Writer
	queues   *queues
	recorded *reconciler.State // recorded last by the estate's task; nil: nothing in this run
}

// attachmentDetail is the detail of the status of an Attachment. Its names are those of the
// events.
type attachmentDetail struct {
	AppSlug           string          `json:"app_slug"`
	ProjectID         string          `json:"project_id"`
	OperatingMode     string          `json:"operating_mode"`
	ControlPlaneScope string          `json:"control_plane_scope"`
	RuntimeBackend    string          `json:"runtime_backend"`
	BillingPolicyRef  string          `json:"billing_policy_ref,omitempty"`
	RuntimeUID        string          `json:"shared_runtime_uid,omitempty"` // of a SharedRuntime that has one
	PolicyMetadata    json.RawMessage `json:"policy_metadata,omitempty"`    // unread
	FailureReason     string          `json:"failure_reason,omitempty"`
	Declared          string          `json:"declared"` // blob of the document
}

// record records the attachments that a decision changes.
func (a *attachments) record(st *reconciler.State) {
	last := a.recorded
	a.recorded = st
	owners := map[string]bool{}
	if last != nil {
		for _, name := range slices.Concat(changedOwners(last.Desired, st.Desired), changedConditions(last, st)) {
			owners[name] = true
		}
	}
	runtimes := map[schema.Key]bool{}
	for _, s := range a.status.ResourcesOf(schema.KindAttachment) {
		runtimes[runtimeOf(s.Key)] = true
	}
	add := func(all map[string]*schema.SharedRuntimeEstate) {
		for _, r := range all {
			if r.Runtime != nil {
				runtimes[r.Runtime.Key] = true
			}
		}
	}
	add(st.Desired.Platform.SharedRuntimes)
	for _, t := range st.Desired.Tenants {
		add(t.SharedRuntimes)
	}
	for _, key := range slices.SortedFunc(maps.Keys(runtimes), schema.Key.Compare) {
		if last == nil || owners[key.Tenant] || key.Tenant == "" {
			a.update(st, key)
		}
	}
}

// update records the attachments of a shared runtime whose documents may have changed.
func (a *attachments) update(st *reconciler.State, key schema.Key) {
	for {
		unit := a.status.Unit(key)
		if unit == nil {
			return
		}
		v := newView(st, unit, time.Time{})
		if unit.Observed != nil {
			v.observed = *unit.Observed
		}
		next := *unit
		next.Attachments = v.attachments(unit.Phase, unit.FailureReason)
		if _, ok := a.status.SetUnit(unit, next); ok {
			a.follow(st, &next)
			return
		}
	}
}

// runtimeOf returns the shared runtime of an Attachment.
func runtimeOf(attachment schema.Key) schema.Key {
	return schema.Key{Kind: schema.KindSharedRuntime, Tenant: attachment.Tenant, Name: attachment.Parent}
}

// follow records the statuses of the attachments of a shared runtime by its own status. It does
// nothing for another unit.
func (a *attachments) follow(st *reconciler.State, unit *plan.Status) {
	key := unit.Key
	if key.Kind != schema.KindSharedRuntime {
		return
	}
	estate := st.Desired.SharedRuntime(key.Tenant, key.Name)
	stays := map[string]bool{}
	for _, s := range unit.Attachments {
		if s.Name == "" {
			continue
		}
		stays[s.Name] = true
		var doc *schema.Attachment
		if estate != nil {
			doc = estate.Attachments[s.Name]
		}
		at := schema.Key{Kind: schema.KindAttachment, Tenant: key.Tenant, Parent: key.Name, Name: s.Name}
		if s.Phase == plan.AttachmentRequested {
			a.detach(st, at) // the project has withdrawn; it can be attached again
		}
		a.set(st, at, func(prev *plan.ThingStatus) (plan.ThingStatus, bool) {
			return attachmentStatus(st, prev, at, unit, s, doc)
		})
	}
	for _, r := range a.status.ResourcesOf(schema.KindAttachment) {
		if runtimeOf(r.Key) == key && !stays[r.Key.Name] {
			a.detach(st, r.Key)
			a.status.RemoveResource(a.status.Resource(r.Key))
		}
	}
}

// detach records that an attached project is detached. An attachment that was never attached
// ends without that.
func (a *attachments) detach(st *reconciler.State, key schema.Key) {
	a.set(st, key, func(prev *plan.ThingStatus) (plan.ThingStatus, bool) {
		if prev == nil || prev.Phase != string(plan.AttachmentAttached) {
			return plan.ThingStatus{}, false
		}
		next := *prev
		next.Phase, next.Revision, next.CorrelationID = string(plan.AttachmentDetached), st.Main, reconciler.CorrelationID(st.Main)
		return next, true
	})
}

// set records a status, and wakes the instances of the project that follow it.
func (a *attachments) set(st *reconciler.State, key schema.Key, change func(prev *plan.ThingStatus) (plan.ThingStatus, bool)) {
	for {
		prev := a.status.Resource(key)
		next, ok := change(prev)
		if !ok {
			return
		}
		changed, ok := a.status.SetResource(prev, next)
		if !ok {
			continue
		}
		if changed && (prev == nil || prev.Phase != next.Phase) {
			a.wake(st, next)
		}
		return
	}
}

// wake reconciles the views of a shared runtime in an attached project.
func (a *attachments) wake(st *reconciler.State, s plan.ThingStatus) {
	var detail attachmentDetail
	status.Detail(&s, &detail)
	tenant, project, _ := strings.Cut(detail.ProjectID, ".")
	if t := st.Desired.Tenants[tenant]; t != nil && t.Projects[project] != nil {
		for _, i := range t.Projects[project].Instances {
			if schema.SharedRuntimeKey(i.Key.Tenant, i.Spec.ControlPlaneScope, i.Spec.SharedRuntime) == runtimeOf(s.Key) {
				a.queues.addUnit(i.Key)
			}
		}
	}
}

// attachmentStatus returns the status of an Attachment. doc is nil while the project of a deleted
// document is still attached.
func attachmentStatus(
	st *reconciler.State, prev *plan.ThingStatus, key schema.Key, unit *plan.Status, s plan.AttachmentStatus, doc *schema.Attachment,
) (plan.ThingStatus, bool) {
	next := plan.ThingStatus{Phase: string(s.Phase)}
	var detail attachmentDetail
	if prev != nil {
		next = *prev
		next.Phase = string(s.Phase)
		status.Detail(prev, &detail)
	}
	next.APIVersion, next.Kind, next.Key = schema.APIVersion, string(key.Kind)+"Status", key
	declared := detail.Declared
	detail.FailureReason = ""
	if s.Phase == plan.AttachmentFailed {
		detail.FailureReason = s.Message
	}
	detail.AppSlug, detail.OperatingMode, detail.ControlPlaneScope, detail.RuntimeBackend = unit.App, unit.OperatingMode,
		unit.ControlPlaneScope, unit.RuntimeBackend
	detail.RuntimeUID = unit.UID
	if doc != nil {
		next.UID, detail.Declared = doc.UID, doc.Blob
		detail.ProjectID, detail.BillingPolicyRef, detail.PolicyMetadata = doc.Spec.ProjectID, doc.Spec.BillingPolicyRef,
			doc.Spec.PolicyMetadata
	}
	next.Detail, _ = json.Marshal(detail) // the reader has checked the only raw value
	switch {
	case prev == nil, declared != detail.Declared:
		next.Revision, next.CorrelationID = st.Main, reconciler.CorrelationID(st.Main)
	case prev.Phase != next.Phase, !status.EqualJSON(prev.Detail, next.Detail):
		next.Revision, next.CorrelationID = unit.Revision, unit.CorrelationID
	}
	next.Conditions = withResumed(prev, attachmentConditions(st, key, s, next.Revision, doc), st.Main)
	return next, true
}

// attachmentConditions returns the conditions that a unit has too.
func attachmentConditions(
	st *reconciler.State, key schema.Key, s plan.AttachmentStatus, revision string, doc *schema.Attachment,
) []plan.Condition {
	l := &conditionList{revision: revision}
	l.setAuthorized(st.Denied(key))
	if i := slices.IndexFunc(st.Held, func(h schema.Held) bool { return h.Key == key && h.Reason == schema.HeldDenied }); i >= 0 {
		l.set(plan.ConditionPolicyCompliant, false, plan.ReasonHeld, st.Held[i].Message)
	} else {
		l.set(plan.ConditionPolicyCompliant, true, plan.ReasonAllowed, "")
	}
	l.set(plan.ConditionReady, s.Phase == plan.AttachmentAttached && s.Reason == plan.ReasonAttached, s.Reason, s.Message)
	l.set(plan.ConditionReconciling, s.Reason == plan.ReasonAttaching || s.Reason == plan.ReasonDetaching, s.Reason, "")
	if st.Paused != "" {
		l.set(plan.ConditionStalled, true, plan.ReasonPaused, st.Paused)
	} else {
		isStalled := s.Phase == plan.AttachmentFailed || s.Reason == plan.ReasonNotAccepted || s.Reason == plan.ReasonWithoutTerms
		l.set(plan.ConditionStalled, isStalled, s.Reason, s.Message)
	}
	if by := attachmentSuspendedBy(st, key, doc); !by.IsZero() {
		l.set(plan.ConditionSuspended, true, plan.ReasonDeclared, plan.Suspension(key, by))
	} else if st.Paused != "" {
		l.set(plan.ConditionSuspended, true, plan.ReasonPaused, st.Paused)
	}
	return l.list
}

// attachmentSuspendedBy returns the widest document that suspends an attachment; zero: none does.
func attachmentSuspendedBy(st *reconciler.State, key schema.Key, doc *schema.Attachment) schema.Key {
	if want := st.Unit(runtimeOf(key)); want != nil && !want.SuspendedBy.IsZero() {
		return want.SuspendedBy
	}
	if doc != nil && doc.Suspend {
		return doc.Key
	}
	return schema.Key{}
}

// changedConditions returns the owners of shared runtimes whose attachments get other conditions with
// a decision although their documents are the same: a change is held or released, or a pause begins
// or ends.
func changedConditions(last, st *reconciler.State) []string {
	owners := map[string]bool{}
	if last.Paused != st.Paused {
		owners[""] = true
		for name := range st.Desired.Tenants {
			owners[name] = true
		}
	}
	was, is := heldAttachments(last), heldAttachments(st)
	for _, held := range []map[schema.Key]schema.Held{was, is} {
		for k := range held {
			if was[k] != is[k] {
				owners[k.Tenant] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(owners))
}

// heldAttachments returns the held changes of Attachments.
func heldAttachments(st *reconciler.State) map[schema.Key]schema.Held {
	out := map[schema.Key]schema.Held{}
	for _, h := range st.Held {
		if h.Key.Kind == schema.KindAttachment {
			out[h.Key] = h
		}
	}
	return out
}
