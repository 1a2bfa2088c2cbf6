package api

import (
	"cmp"

	"berth/schema"
)

// Resources of a project.

func (r *reading) entitlement(e *schema.Entitlement) any {
	return entitlement{e.ID(), e.Key.Tenant, e.Key.ProjectID(), r.appID(e.Key.Name), e.Key.Name, e.Spec.Enabled,
		e.Spec.PolicyOverrides, r.declared(e.Head())}
}

func listEntitlements(r *reading) *listing { return all(r.projectEstate().Entitlements, r.entitlement) }

func readEntitlement(r *reading) any {
	e := r.projectEstate().Entitlements[r.params["app_slug"]]
	if e == nil {
		return nil
	}
	return r.entitlement(e)
}

func (r *reading) artifact(a *schema.Artifact) any {
	s := a.Spec
	out := artifact{
		ID: a.ID(), OrgID: a.Key.Tenant, ProjectID: a.Key.ProjectID(), AppSlug: s.App, DisplayName: s.DisplayName,
		Source: s.Source, Reference: s.Reference, MediaType: s.MediaType, Digest: s.Digest, declared: r.declared(a.Head()),
	}
	out.Status, out.followed = r.statusOf(a.Key, cmp.Or(string(s.Status), "intent"))
	return out
}

func artifactsOf(r *reading) (map[string]*schema.Artifact, bool) {
	return r.projectEstate().Artifacts, true
}
