package api

import (
	"encoding/json"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/event"
)

// eventSight decides which events a caller may read, by the rules in force at that moment: an event is for those to
// whom another path shows its resource. Any other event is for platform users, below /admin.
type eventSight struct {
	desired *schema.Desired
	rules   authority.Rules
	actor   authority.Actor
	admin   bool // the path is below /admin
	off     []Family
	kinds   map[string]schema.Kind // of the resource of each type
}

// eventKinds returns the kind of the resource of each type of event.
func eventKinds() map[string]schema.Kind {
	out := map[string]schema.Kind{}
	for _, d := range event.Definitions() {
		out[string(d.Type)] = d.Kind
	}
	return out
}

// eventAbout is what the payload of an event says of its resource.
type eventAbout struct {
	OrgID           string `json:"org_id"`
	ProjectID       string `json:"project_id"`
	AppSlug         string `json:"app_slug"`
	ResourceName    string `json:"resource_name"`
	SharedRuntimeID string `json:"shared_runtime_id"`
}

func aboutOf(e plan.Event) (about eventAbout) {
	_ = json.Unmarshal(e.Payload, &about) // the branch is not trusted to be well formed
	return about
}

// visible returns an event with the texts that the caller may read, or false.
func (s eventSight) visible(e plan.Event, about eventAbout) (plan.Event, bool) {
	kind := s.kinds[e.EventType]
	if !s.admits(e, kind, about) {
		return plan.Event{}, false
	}
	p := privacy{isPlatform: s.may(authority.InstanceRead, authority.Scope{}), tenants: s.desired.Tenants}
	key := schema.Key{Kind: kind, Tenant: about.OrgID}
	var fields map[string]json.RawMessage
	if json.Unmarshal(e.Payload, &fields) != nil {
		return plan.Event{}, false
	}
	hidden := false
	hide := func(name string, visible func(text string) string) {
		var text string
		if json.Unmarshal(fields[name], &text) == nil && text != "" && visible(text) == "" {
			fields[name], hidden = json.RawMessage(`""`), true
		}
	}
	for _, name := range []string{"failure_reason", "message", "result"} {
		hide(name, func(text string) string { return p.visible(key, text) })
	}
	if about.OrgID == "" && !p.isPlatform { // how the platform runs a shared runtime
		hide("operator_service_account_id", func(string) string { return "" })
	}
	if hidden {
		e.Payload, _ = json.Marshal(fields) // it was decoded from JSON
	}
	return e, true
}

// admits reports whether the caller may read an event about a resource.
func (s eventSight) admits(e plan.Event, kind schema.Kind, about eventAbout) bool {
	scope := authority.Scope{Tenant: about.OrgID}
	if about.ProjectID != "" {
		tenant, project, ok := splitProject(about.ProjectID)
		if !ok || about.OrgID != "" && about.OrgID != tenant {
			return s.asPlatform()
		}
		scope = authority.Scope{Tenant: tenant, Project: project}
	}
	inProject := scope.Project != ""
	switch {
	case e.EventType == string(event.JobsLost) && inProject:
		return s.in(Queue, authority.QueueRead, scope)
	case (e.EventType == string(event.MembersMoved) || e.EventType == string(event.ConditionChanged)) && !inProject:
		return s.in(SharedRuntimes, "", scope) && s.owns(scope)
	case e.EventType == string(event.JobsLost):
		return s.in(Queue, authority.QueueRead, scope) && s.owns(scope)
	case kind == schema.KindInstance && inProject:
		return s.in(Instances, authority.InstanceRead, scope) && s.seesApp(about, scope)
	case kind == schema.KindMemberOperation && inProject:
		return s.in(Instances, authority.MemberRead, scope) && s.seesApp(about, scope)
	case kind == schema.KindEntitlement && inProject:
		return s.in(Entitlements, authority.EntitlementRead, scope)
	case kind == schema.KindArtifact && inProject:
		return s.in(Artifacts, authority.ArtifactRead, scope)
	case kind == schema.KindAttachment && inProject:
		return s.in(SharedRuntimes, authority.SharedRuntimeRead, scope)
	case kind == schema.KindSharedRuntime:
		return s.in(SharedRuntimes, "", scope) && (s.owns(scope) || s.consumes(about))
	case kind == schema.KindMemberOperation:
		return s.in(SharedRuntimes, "", scope) && s.owns(scope)
	}
	return s.asPlatform()
}

func (s eventSight) may(p authority.Permission, scope authority.Scope) bool {
	return authority.May(s.rules, s.actor, p, scope).Allowed
}

// asPlatform reports whether the caller reads what belongs to no project or tenant.
func (s eventSight) asPlatform() bool {
	return s.admin && s.may(authority.InstanceRead, authority.Scope{})
}

// in reports whether a family is served, and whether the caller has a permission. Without a permission, only the first
// counts.
func (s eventSight) in(f Family, p authority.Permission, scope authority.Scope) bool {
	return !slices.Contains(s.off, f) && (p == "" || s.may(p, scope))
}

// owns reports whether the caller reads a shared runtime as its owner: a tenant, or the platform for the empty scope.
func (s eventSight) owns(scope authority.Scope) bool {
	if scope == (authority.Scope{}) {
		return s.asPlatform()
	}
	return s.may(authority.SharedRuntimeRead, scope)
}

// consumes reports whether the caller reads a shared runtime by a project that is attached to it.
func (s eventSight) consumes(about eventAbout) bool {
	r := s.desired.SharedRuntime(about.OrgID, about.ResourceName[strings.LastIndexByte(about.ResourceName, '/')+1:])
	if r == nil || r.Runtime == nil {
		return false
	}
	ids := slices.Clone(r.Runtime.Spec.AttachedProjectIDs)
	for _, a := range r.Attachments {
		ids = append(ids, a.Spec.ProjectID)
	}
	return slices.ContainsFunc(ids, func(id string) bool {
		tenant, project, ok := splitProject(id)
		return ok && s.may(authority.SharedRuntimeRead, authority.Scope{Tenant: tenant, Project: project})
	})
}

// seesApp reports whether the caller may see the app of an instance: a scheduler needs a permission of its own.
func (s eventSight) seesApp(about eventAbout, scope authority.Scope) bool {
	app := s.desired.App(scope.Tenant, about.AppSlug)
	return !sight{schedulers: s.may(authority.SchedulerInstanceRead, scope)}.hides(app)
}
