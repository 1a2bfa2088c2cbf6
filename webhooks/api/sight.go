package api

import (
	"slices"

	"berth/schema"
	"berth/schema/authority"
)

// sight is the part of the resources on a path that the caller may read.
type sight struct {
	whole      bool              // all of them
	granted    []authority.Scope // otherwise those of these scopes
	schedulers bool              // with schedulers and their instances, which need a permission of their own
	platform   bool              // the caller has the permission at the platform, and may read every message
	sharedOnly bool              // the caller is a tenant's account, which acts on shared runtimes only
}

// tenant says whether a tenant's own resources are in sight.
func (s sight) tenant(name string) bool {
	return s.whole || slices.ContainsFunc(s.granted, func(g authority.Scope) bool { return g.Tenant == name })
}

// owns reports whether the caller reads a shared runtime as its owner.
func (s sight) owns(runtime schema.Key) bool {
	if runtime.Tenant == "" {
		return s.platform
	}
	return s.whole
}

// attached says whether a project's attachment is in sight.
func (s sight) attached(projectID string) bool {
	return s.whole || slices.ContainsFunc(s.granted,
		func(g authority.Scope) bool { return g.Project != "" && g.Tenant+"."+g.Project == projectID })
}

// hides reports whether the caller may not see an app: it lacks the permission for schedulers, and the app is one
// or is unknown (nil).
func (s sight) hides(a *schema.App) bool { return !s.schedulers && (a == nil || a.IsScheduler()) }
