package schema

import "slices"

// The values of operating_mode and control_plane_scope. There are three product modes:
// tenant_dedicated with project or tenant, and platform_managed with platform
// (requirement B5).
const (
	ModeTenantDedicated = "tenant_dedicated"
	ModePlatformManaged = "platform_managed"

	ControlPlaneProject  = "project"
	ControlPlaneTenant   = "tenant"
	ControlPlanePlatform = "platform"
)

// AppSupports lists the product modes in which an app can run (requirement B5). A nil list
// has its default: an app that declares nothing is for instances with a control plane of
// their own, as before there were others (D7).
type AppSupports struct {
	OperatingModes     []string `json:"operating_modes,omitzero"`
	ControlPlaneScopes []string `json:"control_plane_scopes,omitzero"`
}

// Modes returns the operating modes that the app supports.
func (s AppSupports) Modes() []string {
	if s.OperatingModes == nil {
		return []string{ModeTenantDedicated}
	}
	return s.OperatingModes
}

// Scopes returns the control plane scopes that the app supports.
func (s AppSupports) Scopes() []string {
	if s.ControlPlaneScopes == nil {
		return []string{ControlPlaneProject}
	}
	return s.ControlPlaneScopes
}

// AppRequires lists what an app needs (SPA: declare required actions and call only allowed
// endpoints). It bounds each service account that operates a unit of the app, and gives
// nothing by itself. A nil list sets no bound; an empty one allows nothing.
type AppRequires struct {
	Permissions []string `json:"permissions,omitzero"`
	Endpoints   []string `json:"endpoints,omitzero"`
}

// AllowsPermission reports whether the bound leaves a permission to an account.
func (r AppRequires) AllowsPermission(permission string) bool {
	return r.Permissions == nil || slices.Contains(r.Permissions, permission)
}

// AllowsEndpoint reports whether the bound leaves a call of the API, a method and a path
// as in allowed_endpoints, to an account.
func (r AppRequires) AllowsEndpoint(endpoint string) bool {
	return r.Endpoints == nil || slices.Contains(r.Endpoints, endpoint)
}
