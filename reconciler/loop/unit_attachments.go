package loop

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// attachments returns the state of each project that is, or shall be, attached to the unit: nil for
// a unit that is no shared runtime. Pure.
func (v unitView) attachments(phase plan.Phase, failure string) []plan.AttachmentStatus {
	key := v.prev.Key
	if key.Kind != schema.KindSharedRuntime {
		return nil
	}
	applied := v.appliedAttachments()
	found := map[string]plan.AttachmentStatus{}
	if e := v.st.Desired.SharedRuntime(key.Tenant, key.Name); e != nil && e.Runtime != nil && v.want != nil {
		for _, id := range e.Runtime.Spec.AttachedProjectIDs {
			found[id] = plan.AttachmentStatus{ProjectID: id, Phase: plan.AttachmentRequested, Reason: plan.ReasonWithoutTerms,
				Message: fmt.Sprintf("no Attachment of %s states terms for %s", key, id)}
		}
		for name, doc := range e.Attachments {
			_, is := applied[doc.Spec.ProjectID]
			found[doc.Spec.ProjectID] = v.attachment(name, doc.Spec.ProjectID, is, phase, failure)
		}
	}
	for id, a := range applied {
		if _, declared := found[id]; !declared || found[id].Name == "" {
			found[id] = plan.AttachmentStatus{ProjectID: id, Name: a.Name, Phase: plan.AttachmentAttached, Reason: plan.ReasonDetaching}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b plan.AttachmentStatus) int { return strings.Compare(a.ProjectID, b.ProjectID) })
}

// appliedAttachments returns the attachments that the unit was applied with, by project.
func (v unitView) appliedAttachments() map[string]schema.EffectiveAttachment {
	unit := v.observed.Unit
	if unit == nil && v.observed.Presence != plan.Absent && v.prev.Observed != nil {
		unit = v.prev.Observed.Unit // not known now, and so as before
	}
	applied := map[string]schema.EffectiveAttachment{}
	if unit != nil {
		for _, a := range unit.Effective.Attachments {
			applied[a.ProjectID] = a
		}
	}
	return applied
}

// attachment returns the state of a project with an Attachment of that name.
func (v unitView) attachment(name, project string, applied bool, phase plan.Phase, failure string) plan.AttachmentStatus {
	s := plan.AttachmentStatus{ProjectID: project, Name: name, Phase: plan.AttachmentRequested}
	if applied {
		s.Phase = plan.AttachmentAttached
	}
	accepted := slices.ContainsFunc(v.want.Attachments, func(a schema.EffectiveAttachment) bool { return a.ProjectID == project })
	switch {
	case !accepted && applied: // the project has withdrawn, and its jobs end
		s.Reason = plan.ReasonDetaching
	case !accepted:
		s.Reason = plan.ReasonNotAccepted
		s.Message = fmt.Sprintf("no Instance of %s names the shared runtime %s; the project accepts the terms with one whose "+
			"shared_runtime is %s", project, v.prev.Key.Name, v.prev.Key.Name)
	case applied:
		s.Reason = plan.ReasonAttached
	case phase == plan.PhaseFailed:
		s.Phase, s.Reason, s.Message = plan.AttachmentFailed, plan.ReasonFailed, failure
	default:
		s.Reason, s.Message = plan.ReasonAttaching, v.waits
	}
	if v.prev.Key.Tenant == "" && accepted {
		s.Message = "" // a failure of the platform's runtime names hosts and projects that a tenant must not know
	}
	return s
}
