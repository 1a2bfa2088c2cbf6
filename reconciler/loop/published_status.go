package loop

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// phaseIntent is the phase of an artifact whose bytes were not verified yet.
const phaseIntent = "intent"

// artifactStatus is the detail of an Artifact's status.
type artifactStatus struct {
	UID string `json:"uid,omitempty"` // identifies the artifact if it is renamed
	bytesStatus
}

// versionStatus is the detail of an AppVersion's status: the state of each artifact, by
// its name in the manifest.
type versionStatus struct {
	Artifacts map[string]bytesStatus `json:"artifacts"`
}

// recordedBytes returns the bytes recorded in a status, or nil for a malformed detail.
func recordedBytes(s *plan.ThingStatus) map[string]bytesStatus {
	if s == nil {
		return nil
	}
	if s.Key.Kind == schema.KindAppVersion {
		var d versionStatus
		_ = json.Unmarshal(s.Detail, &d)
		return d.Artifacts
	}
	var d bytesStatus
	if json.Unmarshal(s.Detail, &d) != nil {
		return nil
	}
	return map[string]bytesStatus{"": d}
}

// next returns the status of p after prev, which may be nil, with the result of a
// verification, or nil without one. Results for bytes that are no longer declared are
// dropped. commit is the commit that changed the declaration, or "". Pure.
func (p *published) next(prev *plan.ThingStatus, found map[string]bytesStatus, commit string) plan.ThingStatus {
	s := plan.ThingStatus{APIVersion: schema.APIVersion, Kind: string(p.head.Key.Kind) + "Status", Key: p.head.Key, UID: p.head.UID}
	all, isSame := p.merge(recordedBytes(prev), found)
	if s.Revision, s.CorrelationID = commit, reconciler.CorrelationID(commit); commit == "" && prev != nil && isSame {
		s.Revision, s.CorrelationID = prev.Revision, prev.CorrelationID
	}
	verified := verifiedCondition(all, s.Revision)
	s.Phase = p.phase(prev, isSame, verified.Status == plan.ConditionTrue, found != nil)
	if verified.Status == plan.ConditionTrue && p.awaitsBytes(s.Phase) {
		verified.Status, verified.Reason = plan.ConditionUnknown, plan.ReasonNotVerified
		verified.Message = "nobody looked at the bytes since this change"
	}
	s.Conditions = []plan.Condition{p.readyCondition(s.Phase, verified), verified}
	var detail any = versionStatus{all}
	if one, ok := all[""]; ok {
		detail = artifactStatus{p.head.UID, one}
	}
	data, err := json.Marshal(detail)
	if err == nil {
		data, err = schema.CanonicalJSON(data)
	}
	if err != nil {
		panic(err) // strings and numbers only
	}
	s.Detail = data
	return s
}

// merge returns the declared bytes with their recorded and observed fields. isSame is
// true if all of them were recorded as declared.
func (p *published) merge(recorded, found map[string]bytesStatus) (all map[string]bytesStatus, isSame bool) {
	all, isSame = make(map[string]bytesStatus, len(p.bytes)), len(recorded) == len(p.bytes)
	for name, b := range p.bytes {
		old, isKnown := recorded[name]
		isKnown = isKnown && old.declared() == b
		isSame = isSame && isKnown
		now, isFound := found[name]
		switch {
		case isFound:
			checked := now.Checked
			if now.Checked = old.Checked; !isKnown || now != old {
				now.Checked = checked
			}
			all[name] = now
		case isKnown:
			all[name] = old
		default:
			all[name] = b
		}
	}
	return all, isSame
}

// phase returns the phase of p. An artifact is an intent until its bytes were
// verified once; from then on its owner declares the phase. It is promoted only
// once a verification after the promotion found the bytes (isFresh). An artifact
// with another declaration is verified again.
func (p *published) phase(prev *plan.ThingStatus, isSame, isVerified, isFresh bool) string {
	promoted := string(schema.ArtifactPromoted)
	switch {
	case p.head.Key.Kind == schema.KindAppVersion:
		return p.status
	case p.status == "":
		return phaseIntent
	case !isVerified && (prev == nil || !isSame || prev.Phase == phaseIntent):
		return phaseIntent
	case p.status == promoted && prev != nil && prev.Phase != promoted && !(isVerified && isFresh):
		return prev.Phase
	}
	return p.status
}

// awaitsBytes returns true if p is in a phase because its bytes are not verified.
func (p *published) awaitsBytes(phase string) bool {
	return p.head.Key.Kind == schema.KindArtifact && p.status != "" && phase != p.status
}

// reasonOfSight returns the reason of the condition Verified.
func reasonOfSight(r runtimes.SightReason) plan.Reason { return plan.Reason(r) }

// verifiedCondition is the condition Verified: the worst of all references.
func verifiedCondition(all map[string]bytesStatus, revision string) plan.Condition {
	c := plan.Condition{Type: plan.ConditionVerified, Status: plan.ConditionTrue,
		Reason: reasonOfSight(runtimes.ReasonFound), Revision: revision}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b := all[name]
		status := plan.ConditionFalse
		switch runtimes.SightState(b.State) {
		case runtimes.SightFound:
			continue
		case runtimes.SightDifferent, runtimes.SightAbsent:
		default:
			status = plan.ConditionUnknown
		}
		if c.Status == plan.ConditionFalse || c.Status == status {
			continue
		}
		c.Status, c.Reason, c.Message = status, reasonOfSight(b.Reason), b.Message
		if b.Reason == "" {
			c.Reason, c.Message = plan.ReasonNotVerified, "nobody looked at the bytes yet"
		}
		if name != "" {
			c.Message = name + ": " + c.Message
		}
	}
	return c
}

// readyCondition is the condition Ready: whether p can be used.
func (p *published) readyCondition(phase string, verified plan.Condition) plan.Condition {
	c := plan.Condition{Type: plan.ConditionReady, Status: plan.ConditionTrue, Reason: plan.ReasonOfPhase(phase),
		Revision: verified.Revision}
	switch {
	case p.status == "":
		c.Status, c.Message = plan.ConditionFalse, "it is not registered: once the bytes are there, add their digest and status: registered"
	case p.status == string(schema.ArtifactRetired), p.status == string(schema.StatusDisabled):
		c.Status = plan.ConditionFalse
	case verified.Status != plan.ConditionTrue:
		c.Status, c.Reason, c.Message = verified.Status, verified.Reason, verified.Message
		if p.awaitsBytes(phase) {
			c.Message = fmt.Sprintf("it is %s once its bytes were seen: %s", p.status, verified.Message)
		}
	}
	return c
}

// UnverifiedPromotions returns a warning for each promotion of a change that has to
// wait, because the last verification did not find the bytes. The change comes into
// force; the promotion follows once the bytes are found. status returns what
// berth/status says about a resource of before. Pure.
func UnverifiedPromotions(before, after *schema.Desired, status func(schema.Key) *plan.ThingStatus) []schema.Diagnostic {
	var out []schema.Diagnostic
	for tenant, t := range after.Tenants {
		if before.Tenants[tenant] == t {
			continue
		}
		was := schema.ArtifactsBefore(before.Tenants[tenant], t)
		for _, project := range t.Projects {
			for _, a := range project.Artifacts {
				if old := was(a); isPromotion(old, a) {
					out = append(out, promotionWarnings(a, status(old.Key))...)
				}
			}
		}
	}
	schema.SortDiagnostics(out)
	return out
}

// isPromotion returns true if a change promotes an artifact. old is nil for a new one.
func isPromotion(old, now *schema.Artifact) bool {
	return old != nil && old.Spec.Status != schema.ArtifactPromoted && now.Spec.Status == schema.ArtifactPromoted
}

// promotionWarnings returns the warning about an artifact that is promoted before its bytes are found.
func promotionWarnings(a *schema.Artifact, s *plan.ThingStatus) []schema.Diagnostic {
	why := unverifiedReason(s)
	if why == "" {
		return nil
	}
	at := a.At("spec.status")
	return []schema.Diagnostic{{
		Severity: schema.SeverityWarning, Code: schema.CodeArtifactUnseen, File: a.File, Line: at.Line, Column: at.Column,
		Path:    "spec.status",
		Message: "it is promoted once its bytes are found, and stays what it is until then; when Berth looked last: " + why,
	}}
}

// unverifiedReason returns why the bytes of a resource are not verified; "": they
// are, or were never checked. s may be nil.
func unverifiedReason(s *plan.ThingStatus) string {
	if c := s.Condition(plan.ConditionVerified); c != nil && c.Status != plan.ConditionTrue {
		return c.Message
	}
	return ""
}

// VersionBlocked returns true if new instances of a version have to wait, because its
// bytes are missing or differ from the declared and reviewed ones. An unknown state
// blocks nothing. s is the version's status, or nil. Pure.
func VersionBlocked(v *schema.AppVersion, s *plan.ThingStatus) (plan.Blocked, bool) {
	p := publishedVersion(v)
	if p == nil {
		return plan.Blocked{}, false
	}
	recorded := recordedBytes(s)
	for _, name := range slices.Sorted(maps.Keys(p.bytes)) {
		b := recorded[name]
		switch runtimes.SightState(b.State) {
		case runtimes.SightDifferent, runtimes.SightAbsent:
			if b.declared() == p.bytes[name] {
				return plan.Blocked{Code: plan.CodeUnverified, Wait: true, Artifact: b.Reference, Message: fmt.Sprintf(
					"%s is made from %s of %s, and new instances wait: %s", v.Key, b.Reference, b.Source, b.Message)}, true
			}
		}
	}
	return plan.Blocked{}, false
}
